// Figures for people.

const grouped = new Intl.NumberFormat("en");

export const count = (value) => grouped.format(value);

/** Sets a text only if it is another, so that nobody's selection is lost. */
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export function bytes(value) {
  if (value < 1000) return `${Math.round(value)} B`;
  let unit = "";
  for (unit of ["kB", "MB", "GB", "TB"]) {
    value /= 1000;
    if (value < 1000) break;
  }
  return `${value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

export function duration(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function microseconds(value) {
  if (value < 1000) return `${Math.round(value)} µs`;
  return value < 1e6 ? `${(value / 1000).toFixed(value < 1e5 ? 2 : 0)} ms` : `${(value / 1e6).toFixed(2)} s`;
}

/** The value that a share of all do not exceed, of [end of bucket, count] pairs; null without any. */
export function percentile(buckets, share) {
  const all = buckets.reduce((sum, [, number]) => sum + number, 0);
  if (all === 0) return null;
  let seen = 0;
  for (const [end, number] of buckets) {
    seen += number;
    if (seen >= share * all) return end;
  }
  return buckets.at(-1)[0];
}
