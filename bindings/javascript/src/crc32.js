// CRC-32 (ISO 3309), the checksum that runs over all that one side sends.

// Four tables, so that four bytes are taken in one step.
const tables = Array.from({ length: 4 }, () => new Uint32Array(256));
for (let index = 0; index < 256; index++) {
  let value = index;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  tables[0][index] = value;
}
for (let index = 0; index < 256; index++) {
  for (let step = 1; step < 4; step++) {
    const before = tables[step - 1][index];
    tables[step][index] = (before >>> 8) ^ tables[0][before & 0xff];
  }
}

/** Continues a checksum, which starts at 0, over `bytes`. */
export function crc32(bytes, checksum = 0) {
  const [t0, t1, t2, t3] = tables;
  let value = ~checksum;
  let index = 0;
  for (const end = bytes.length - 3; index < end; index += 4) {
    value ^= bytes[index] | (bytes[index + 1] << 8) | (bytes[index + 2] << 16) | (bytes[index + 3] << 24);
    value = t3[value & 0xff] ^ t2[(value >>> 8) & 0xff] ^ t1[(value >>> 16) & 0xff] ^ t0[value >>> 24];
  }
  for (; index < bytes.length; index++) value = (value >>> 8) ^ t0[(value ^ bytes[index]) & 0xff];
  return ~value >>> 0;
}
