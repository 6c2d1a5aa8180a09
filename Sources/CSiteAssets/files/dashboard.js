// The dashboard: asks its server once a second, by BLIP, and shows what comes.

import { connect, BlipError } from "./blip.js";
import { bytes, count, duration, microseconds, percentile, text } from "./figures.js";

const INTERVAL = 1000;
const HISTORY = 300;
const $ = (id) => document.getElementById(id);
const series = { messagesIn: [], messagesOut: [], bytesIn: [], bytesOut: [], trip: [] };
let last = null;
let hasConsole = false;

function socketURL(path) {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;
}

function setState(word, isGood) {
  $("state").textContent = word;
  $("state").className = isGood ? "good" : "bad";
}

/** An element with text and children; nothing is ever read as HTML. */
function element(name, content, options = {}) {
  const node = document.createElement(name);
  if (content !== undefined) node.textContent = content;
  for (const [key, value] of Object.entries(options)) node.setAttribute(key, value);
  return node;
}

function showFacts(facts, snapshot) {
  $("url").textContent = facts.url;
  $("version").textContent = `libblip ${facts.version}`;
  document.title = `BLIP ${facts.host}`;
  const totals = snapshot.totals;
  const rows = [
    ["Host", facts.host],
    ["Process", String(facts.process)],
    ["Up", duration(facts.uptime)],
    ["Load", facts.load.map((value) => (value / 100).toFixed(2)).join("  ")],
    ["Processors", `${facts.processors}, ${facts.loops} loop${facts.loops === 1 ? "" : "s"}`],
    ["Memory", bytes(facts.memory)],
    ["Descriptors", `${count(facts.descriptors)} of ${count(facts.descriptorLimit ?? 0)}`],
    ["Connections", `${count(snapshot.connectionCount)}, ${count(totals.opened)} so far`],
    ["Failed to open", count(totals.failed)],
    ["Messages in / out", `${count(totals.messagesReceived)} / ${count(totals.messagesSent)}`],
    ["Bytes in / out", `${bytes(totals.bytesReceived)} / ${bytes(totals.bytesSent)}`],
    ["Error responses", count(totals.errors)],
    ["Round trips p50 / p99", trips(percentile(snapshot.roundTrips, 0.5), percentile(snapshot.roundTrips, 0.99))],
  ];
  fill($("facts"), rows, ([name, value], node) => {
    const box = node ?? element("div");
    if (!node) box.append(element("dt"), element("dd"));
    text(box.firstChild, name);
    text(box.lastChild, value);
    return box;
  });
}

const trips = (p50, p99) => (p50 === null ? "–" : `${microseconds(p50)} / ${microseconds(p99)}`);

/**
 * Makes the children of `parent` as many as there are items, using those that are there: each its item's, where items
 * have an `id`, so that a click never falls on what has just taken the place of another.
 */
function fill(parent, items, update) {
  const known = new Map([...parent.children].map((node) => [node.dataset.id, node]));
  items.forEach((item, index) => {
    const there = parent.children[index] ?? null;
    const node = update(item, item.id === undefined ? there : (known.get(item.id) ?? null));
    if (item.id !== undefined) node.dataset.id = item.id;
    if (node !== there) parent.insertBefore(node, there);
  });
  while (parent.children.length > items.length) parent.lastChild.remove();
}

function showConnections(snapshot, connection) {
  const rows = snapshot.connections;
  const more = snapshot.connectionCount - rows.length;
  $("connection-count").textContent = more > 0 ? `(${rows.length} of ${count(snapshot.connectionCount)})` : `(${rows.length})`;
  $("no-connections").hidden = rows.length > 0;
  fill($("connections"), rows, (row, node) => {
    const line = node ?? makeConnectionRow(connection);
    const values = [
      row.incoming ? row.peer : `to ${row.peer}`,
      row.subprotocol,
      row.tls || "–",
      duration(row.age),
      `${count(row.messagesReceived)} / ${count(row.messagesSent)}`,
      `${bytes(row.bytesReceived)} / ${bytes(row.bytesSent)}`,
      count(row.pending + row.unanswered + row.queued),
      row.pausedTime > 0 || row.paused > 0 ? `${row.paused > 0 ? "now, " : ""}${row.pausedTime} ms` : "–",
      trips(row.p50, row.p99),
    ];
    values.forEach((value, index) => text(line.children[index], value));
    line.lastChild.firstChild.setAttribute("aria-label", `Close ${row.peer}`);
    return line;
  });
}

function makeConnectionRow(connection) {
  const line = element("tr");
  for (let index = 0; index < 9; index++) line.append(element("td", "", index > 2 ? { class: "number" } : {}));
  const cell = element("td");
  const button = element("button", "Close", { type: "button" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await connection().request({ profile: "close", properties: { connection: line.dataset.id } });
    } catch (error) {
      setState(error.message, false);
    }
    button.disabled = false;
  });
  cell.append(button);
  line.append(cell);
  return line;
}

function showMessages(messages) {
  $("no-messages").hidden = messages.length > 0;
  fill($("messages"), messages, (message, node) => {
    const line = node ?? element("li");
    if (!node) line.append(element("progress"), element("span"));
    const [bar, label] = line.children;
    if (message.size === null) {
      bar.removeAttribute("value");
    } else {
      bar.max = Math.max(1, message.size);
      bar.value = message.bytes;
    }
    const of = message.size === null ? "" : ` of ${bytes(message.size)}`;
    const way = message.incoming ? "from" : "to";
    bar.setAttribute("aria-label", `${message.kind} ${message.number}`);
    text(label, ` ${message.profile ? `${message.profile}: ` : ""}${message.kind} ${message.number} ${way} ${message.peer}, ${bytes(message.bytes)}${of}`);
    return line;
  });
}

function showErrors(errors) {
  $("no-errors").hidden = errors.length > 0;
  fill($("errors"), [...errors].reverse(), (entry, node) => {
    const line = node ?? element("li");
    text(line, `${new Date(entry.time * 1000).toLocaleTimeString()}  ${entry.peer}: ${entry.text}`);
    return line;
  });
}

function push(list, value) {
  list.push(value);
  if (list.length > HISTORY) list.shift();
}

function note(snapshot, at, trip) {
  push(series.trip, trip);
  if (last) {
    const seconds = Math.max(0.001, (at - last.at) / 1000);
    const rate = (name) => Math.max(0, snapshot.totals[name] - last.totals[name]) / seconds;
    push(series.messagesIn, rate("messagesReceived"));
    push(series.messagesOut, rate("messagesSent"));
    push(series.bytesIn, rate("bytesReceived"));
    push(series.bytesOut, rate("bytesSent"));
    draw("messages", series.messagesIn, series.messagesOut, (value) => count(Math.round(value)));
    draw("bytes", series.bytesIn, series.bytesOut, bytes);
  }
  draw("latency", series.trip, null, (value) => microseconds(value * 1000));
  last = { at, totals: snapshot.totals };
}

function draw(name, first, second, format) {
  const svg = $(`${name}-chart`);
  const highest = Math.max(1e-9, ...first, ...(second ?? []));
  const points = (list) =>
    list.map((value, index) => `${HISTORY - list.length + index},${(98 - (96 * value) / highest).toFixed(2)}`).join(" ");
  if (!svg.firstChild) {
    svg.setAttribute("viewBox", `0 0 ${HISTORY} 100`);
    svg.setAttribute("preserveAspectRatio", "none");
    const grid = document.createElementNS(svg.namespaceURI, "line");
    for (const [key, value] of [["x1", 0], ["x2", HISTORY], ["y1", 98], ["y2", 98], ["class", "grid"]]) grid.setAttribute(key, value);
    svg.append(grid);
    for (const style of ["line", "line second"]) {
      const line = document.createElementNS(svg.namespaceURI, "polyline");
      line.setAttribute("class", style);
      svg.append(line);
    }
  }
  svg.children[1].setAttribute("points", points(first));
  svg.children[2].setAttribute("points", second ? points(second) : "");
  const now = second ? `${format(first.at(-1))} in, ${format(second.at(-1))} out` : format(first.at(-1));
  text($(`${name}-now`), now);
  svg.setAttribute("aria-label", `now ${now}, at most ${format(highest)}`);
}

async function run() {
  let connection = null;
  for (let wait = 1000; ; wait = Math.min(wait * 2, 15000)) {
    try {
      connection = await connect(socketURL(document.documentElement.dataset.socket), { protocols: "BLIP_3+Dashboard" });
      wait = 500;
      setState("live", true);
      last = null;
      while (connection.isOpen) {
        const start = performance.now();
        const reply = await connection.request({ profile: "snapshot", timeout: 10000 });
        const end = performance.now();
        const snapshot = reply.json();
        const facts = snapshot.facts;
        showFacts(facts, snapshot);
        showConnections(snapshot, () => connection);
        showMessages(snapshot.messages);
        showErrors(facts.errors);
        showProtocols(facts);
        note(snapshot, end, end - start);
        await new Promise((resolve) => setTimeout(resolve, Math.max(50, INTERVAL - (end - start))));
      }
    } catch (error) {
      connection?.close();
      setState(error instanceof BlipError ? error.message : String(error), false);
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

function showProtocols(facts) {
  const select = $("subprotocol");
  if (hasConsole) return;
  hasConsole = true;
  const usable = facts.subprotocols.filter((name) => name === "BLIP_3" || name.startsWith("BLIP_3+"));
  for (const name of usable) select.append(element("option", name));
  if (facts.paths.length > 0) $("path").value = facts.paths[0];
}

function parseProperties(lines) {
  const properties = {};
  for (const line of lines.split("\n")) {
    if (line.trim() === "") continue;
    const colon = line.indexOf(":");
    if (colon < 0) throw new Error(`"${line}" is no property: write "Key: value".`);
    properties[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  return properties;
}

$("console").addEventListener("submit", async (event) => {
  event.preventDefault();
  const state = $("reply-state");
  state.textContent = "sending";
  state.className = "";
  let connection = null;
  const show = (words, isGood, message) => {
    state.textContent = words;
    state.className = isGood ? "good" : "bad";
    $("reply").hidden = !message;
    if (!message) return;
    const lines = [...message.properties].map(([key, value]) => `${key}: ${value}`);
    const body = message.body.length > 100000 ? `${message.text().slice(0, 100000)}\n… ${bytes(message.body.length)} in all` : message.text();
    $("reply").textContent = `${lines.join("\n")}${lines.length ? "\n\n" : ""}${body}`;
  };
  try {
    const properties = parseProperties($("properties").value);
    connection = await connect(socketURL($("path").value), { protocols: $("subprotocol").value });
    const start = performance.now();
    const reply = await connection.request({ profile: $("profile").value, properties, body: $("body").value, timeout: 30000 });
    show(`answered in ${microseconds((performance.now() - start) * 1000)}, ${bytes(reply.body.length)}`, true, reply);
  } catch (error) {
    const words = error instanceof BlipError && error.domain !== "local" ? `error ${error.domain} ${error.code}: ${error.message}` : error.message;
    show(words, false, error.response ?? null);
  }
  connection?.close();
});

run();
