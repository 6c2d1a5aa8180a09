import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateRawSync, constants, createDeflateRaw, crc32 as zlibCrc } from "node:zlib";
import { crc32 } from "../src/crc32.js";
import { Engine, outboxIndex, ProtocolError } from "../src/engine.js";
import { InflateError, Inflater } from "../src/inflater.js";
import { decodeProperties, encodeProperties } from "../src/properties.js";
import { readVarint, varintSize, writeVarint } from "../src/varint.js";
import { bodyOf, hex, load, unhex } from "./support/vectors.js";

const KINDS = { MSG: 0, RPY: 1, ERR: 2 };

/** An engine that waits for responses to the requests that a vector answers. */
function receiver(messages) {
  const engine = new Engine();
  const answered = messages.filter((message) => message.kind !== "MSG").map((message) => message.number);
  for (let number = 1; number <= Math.max(0, ...answered); number++) {
    engine.sendRequest(new Uint8Array(0), new Uint8Array(0), {}, number);
    engine.nextFrame();
  }
  return engine;
}

for (const vector of load("v3-frames")) {
  test(`receives: ${vector.name}`, () => {
    const engine = receiver(vector.messages);
    const got = [];
    for (const frame of vector.frames) {
      const event = engine.receive(unhex(frame));
      if (event?.message) got.push(event.message);
    }
    assert.equal(got.length, vector.messages.length);
    for (const expected of vector.messages) {
      const kind = KINDS[expected.kind];
      const message = got.find((entry) => entry.number === expected.number && (entry.kind === 0) === (kind === 0));
      assert.ok(message, `message ${expected.number}`);
      assert.equal(message.kind, kind);
      assert.deepEqual([...message.properties], expected.properties);
      assert.equal(hex(message.body), hex(bodyOf(expected.body)));
      assert.equal(message.urgent, expected.urgent);
      assert.equal(message.noReply, expected.noreply);
    }
  });
}

for (const vector of load("bad-frames").filter((entry) => entry.version === 3)) {
  test(`bad frames, ${vector.outcome}: ${vector.name}`, () => {
    const engine = new Engine();
    const events = [];
    let failure = null;
    for (const frame of vector.frames) {
      try {
        events.push(engine.receive(unhex(frame)));
      } catch (error) {
        assert.ok(error instanceof ProtocolError, String(error));
        failure = error;
        break;
      }
    }
    if (vector.outcome === "fatal") assert.ok(failure);
    else if (vector.outcome !== "ignored or fatal, never a crash") assert.equal(failure, null);
    if (vector.outcome === "ignored") assert.ok(events.some((event) => event === null));
    if (vector.outcome === "delivered") assert.equal(events[0].type, "request");
    if (/^(frame error|refused)/.test(vector.outcome)) assert.ok(events.some((event) => event?.type === "badRequest"));
  });
}

test("varints", () => {
  for (const vector of load("varint")) {
    const bytes = unhex(vector.hex ?? vector.bytes ?? vector.bad);
    const read = readVarint(bytes, 0);
    const value = vector.value === undefined ? null : Number(vector.value);
    if (value === null || value > Number.MAX_SAFE_INTEGER) {
      assert.equal(read, null, hex(bytes));
      continue;
    }
    assert.deepEqual(read, [value, bytes.length]);
    const written = new Uint8Array(varintSize(value));
    assert.equal(writeVarint(written, 0, value), written.length);
    assert.equal(readVarint(written, 0)[0], value);
  }
});

test("the outbox follows the rule", () => {
  for (const { queue, message, index } of load("outbox")) {
    const entries = queue.map(({ urgent, started }) => ({ isUrgent: urgent, isStarted: started }));
    assert.equal(outboxIndex(entries, { isUrgent: message.urgent, isStarted: !message.new }), index);
  }
});

test("properties", () => {
  const pairs = [
    ["Profile", "echo"],
    ["", "empty key"],
    ["Ünïcode", "🎈"],
    ["\x01", "one"],
  ];
  assert.deepEqual([...decodeProperties(encodeProperties(pairs))], pairs);
  assert.equal(decodeProperties(unhex("6100")), null);
  assert.equal(decodeProperties(unhex("61006200ff00")), null);
  assert.equal(decodeProperties(unhex("610062")), null);
  assert.equal(decodeProperties(unhex("6100ff00")), null);
  assert.deepEqual([...decodeProperties(unhex("610062006100630064006500"))], [["a", "b"], ["d", "e"]]);
  assert.throws(() => encodeProperties([["a", "b\0"]]), TypeError);
  assert.throws(() => encodeProperties([["a", 1]]), TypeError);
});

test("the checksum is that of zlib, in pieces too", () => {
  assert.equal(crc32(Buffer.from("123456789")), 0xcbf43926);
  const bytes = Uint8Array.from({ length: 1001 }, (_, index) => (index * index) & 0xff);
  for (const cut of [0, 1, 2, 3, 500, 1001]) {
    assert.equal(crc32(bytes.subarray(cut), crc32(bytes.subarray(0, cut))), crc32(bytes));
  }
  if (zlibCrc) assert.equal(crc32(bytes), zlibCrc(bytes));
});

/** One compressed stream, flushed after each part as a peer does, in all the ways that zlib has. */
async function compressed(parts, options) {
  const deflate = createDeflateRaw(options);
  const result = [];
  let chunks = [];
  deflate.on("data", (chunk) => chunks.push(chunk));
  for (const part of parts) {
    deflate.write(part);
    await new Promise((done) => deflate.flush(constants.Z_SYNC_FLUSH, done));
    result.push(Buffer.concat(chunks));
    chunks = [];
  }
  return result;
}

test("inflates what zlib deflates, over many frames of one stream", async () => {
  let seed = 12345;
  const random = (limit) => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % limit;
  };
  const parts = [];
  for (let index = 0; index < 60; index++) {
    const size = [0, 1, 100, 5000, 40000, 100000][random(6)] + random(50) + 1;
    const alphabet = [1, 4, 60, 256][random(4)];
    parts.push(Buffer.from(Array.from({ length: size }, () => random(alphabet))));
  }
  for (const options of [{ level: 1 }, { level: 6 }, { level: 9, memLevel: 9 }, { level: 6, strategy: constants.Z_FIXED },
    { level: 0 }, { level: 6, strategy: constants.Z_HUFFMAN_ONLY }]) {
    const inflater = new Inflater();
    for (const [index, frame] of (await compressed(parts, options)).entries()) {
      const output = inflater.inflate(new Uint8Array(frame), 1 << 20);
      assert.ok(Buffer.from(output).equals(parts[index]), `${JSON.stringify(options)}, part ${index}`);
    }
  }
});

test("inflating garbage fails and never hangs", () => {
  const good = deflateRawSync(Buffer.from("some text, some text, some more text, ".repeat(50)), {
    finishFlush: constants.Z_SYNC_FLUSH,
  });
  let failures = 0;
  for (let index = 0; index < good.length; index++) {
    for (const bit of [1, 8, 128]) {
      const bytes = new Uint8Array(good);
      bytes[index] ^= bit;
      try {
        new Inflater().inflate(bytes, 1 << 16);
      } catch (error) {
        assert.ok(error instanceof InflateError, String(error));
        failures++;
      }
    }
    assert.throws(() => new Inflater().inflate(new Uint8Array(good.subarray(0, index + 1)).subarray(0, Math.max(1, index - 4)), 1 << 16), InflateError);
  }
  assert.ok(failures > good.length);
});

test("a bomb is stopped at the limit", () => {
  const bomb = deflateRawSync(Buffer.alloc(10 << 20), { finishFlush: constants.Z_SYNC_FLUSH });
  assert.throws(() => new Inflater().inflate(new Uint8Array(bomb), 1 << 20), /more comes out/);
});

/** Blocks of one symbol, whose codes have the longest length: 23 bytes each, which say nothing. */
function dearBlocks(size) {
  const bytes = [];
  let [byte, filled] = [0, 0];
  const bits = (value, count) => {
    for (let index = 0; index < count; index++) {
      byte |= ((value >> index) & 1) << filled++;
      if (filled < 8) continue;
      bytes.push(byte);
      [byte, filled] = [0, 0];
    }
  };
  while (bytes.length < size) {
    bits(0b100, 3);
    bits(0, 5);
    bits(0, 5);
    bits(15, 4);
    for (const symbol of [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]) {
      bits([0, 1, 15, 18].includes(symbol) ? 2 : 0, 3);
    }
    // Lengths: 15, 255 times 0, 1; and 15. The codes are sent with their first bit first.
    bits(0b01, 2);
    for (const zeros of [138, 117]) {
      bits(0b11, 2);
      bits(zeros - 11, 7);
    }
    bits(0b10, 2);
    bits(0b01, 2);
    bits(0, 1);
  }
  bits(0, 3);
  if (filled > 0) bits(0, 8 - filled);
  return Uint8Array.from(bytes.concat(0, 0, 0xff, 0xff));
}

test("blocks that are dear to read cost little", () => {
  const input = dearBlocks(3_000_000);
  const before = process.cpuUsage();
  assert.equal(new Inflater().inflate(input, 1 << 20).length, 0);
  const { user, system } = process.cpuUsage(before);
  assert.ok(user + system < 2_500_000, `${user + system} microseconds`);
});

/** A frame of version 3 whose checksum runs on from `before`. */
function frameOf(number, flags, payload, before = 0) {
  const frame = new Uint8Array(varintSize(number) + 1 + payload.length + 4);
  const start = writeVarint(frame, 0, number);
  frame[start] = flags;
  frame.set(payload, start + 1);
  const checksum = crc32(payload, before);
  new DataView(frame.buffer).setUint32(frame.length - 4, checksum);
  return [frame, checksum];
}

test("a first frame as large as the window is acknowledged, for its sender waits", () => {
  const engine = new Engine();
  assert.equal(engine.receive(frameOf(1, 0x40, new Uint8Array(127_000))[0]), null);
  assert.equal(engine.nextFrame(), null);
  const other = new Engine();
  const [frame] = frameOf(1, 0x40, new Uint8Array(130_000));
  other.receive(frame);
  const ack = other.nextFrame();
  assert.equal(ack?.[1], 0x34);
  assert.deepEqual(readVarint(ack, 2)[0], 130_004);
});

test("a request that cannot be understood is answered when it has ended", () => {
  const engine = new Engine({ message: 100, properties: 10 });
  for (const payload of [Uint8Array.of(0x80), Uint8Array.of(11), new Uint8Array(200)]) {
    const engine = new Engine({ message: 100, properties: 10 });
    const [first, checksum] = frameOf(1, 0x40, payload);
    assert.equal(engine.receive(first), null);
    const [second, next] = frameOf(1, 0x40, payload, checksum);
    assert.equal(engine.receive(second), null);
    assert.equal(engine.receive(frameOf(1, 0x00, payload, next)[0]).type, "badRequest");
  }
  engine.sendRequest(new Uint8Array(0), new Uint8Array(0), {}, "tag");
  engine.nextFrame();
  const [first, checksum] = frameOf(1, 0x41, Uint8Array.of(11));
  assert.deepEqual([engine.receive(first).type, engine.isIdle], ["failed", true]);
  assert.equal(engine.receive(frameOf(1, 0x01, Uint8Array.of(11), checksum)[0]), null);
});

test("messages in the smallest frames are joined", () => {
  const engine = new Engine();
  const body = Uint8Array.from({ length: 3000 }, (_, index) => index & 0xff);
  let checksum = 0;
  let event = null;
  for (const [index, byte] of [0, ...body].entries()) {
    let frame;
    [frame, checksum] = frameOf(1, index === body.length ? 0 : 0x40, Uint8Array.of(byte), checksum);
    event = engine.receive(frame);
  }
  assert.deepEqual(event.message.body, body);
});

/** Lets two engines talk until nothing is left. */
function drive(a, b, events) {
  for (let turns = 0; a.hasOutput || b.hasOutput; turns++) {
    assert.ok(turns < 100000, "live-lock");
    for (const [from, to, name] of [[a, b, "b"], [b, a, "a"]]) {
      const frame = from.nextFrame();
      if (frame === null) continue;
      assert.ok(frame.length <= 16384);
      const event = to.receive(frame);
      if (event) events.push({ at: name, ...event });
    }
  }
}

test("two engines exchange large messages both ways, with acknowledgements", () => {
  const [a, b] = [new Engine(), new Engine()];
  const events = [];
  const body = Uint8Array.from({ length: 1_000_000 }, (_, index) => (index * 31) & 0xff);
  a.sendRequest(encodeProperties([["Profile", "up"]]), body, {}, "tag");
  b.sendRequest(encodeProperties([["Profile", "down"]]), body.subarray(0, 300_000), {}, "other");
  drive(a, b, events);
  const requests = events.filter((event) => event.type === "request");
  assert.equal(requests.length, 2);
  assert.ok(Buffer.from(requests.find(({ at }) => at === "b").message.body).equals(body));
  b.sendResponse(1, new Uint8Array(0), body);
  drive(a, b, events);
  const response = events.find((event) => event.type === "response");
  assert.equal(response.tag, "tag");
  assert.ok(Buffer.from(response.message.body).equals(body));
  assert.ok(events.some((event) => event.type === "progress" && event.tag === "tag"));
  assert.ok(!a.hasOutput && !b.hasOutput);
});

test("a message waits for acknowledgements, and an urgent one passes", () => {
  const engine = new Engine();
  engine.sendRequest(new Uint8Array(0), new Uint8Array(1_000_000), {}, "bulk");
  let sent = 0;
  while (engine.hasOutput) sent += engine.nextFrame().length;
  assert.ok(sent >= 128000 && sent < 128000 + 16384, `${sent}`);
  engine.sendRequest(encodeProperties([["Profile", "now"]]), new Uint8Array(4), { urgent: true }, "urgent");
  assert.equal(engine.nextFrame()[0], 2);
  assert.equal(engine.nextFrame(), null);
  const ack = new Uint8Array(8);
  let offset = writeVarint(ack, 0, 1);
  ack[offset++] = 0x34;
  offset = writeVarint(ack, offset, 50000);
  engine.receive(ack.subarray(0, offset));
  assert.ok(engine.hasOutput);
});

test("a request that was not begun can be taken back, and leaves no gap", () => {
  const [a, b] = [new Engine(), new Engine()];
  const first = a.sendRequest(new Uint8Array(0), new Uint8Array(0));
  a.sendRequest(new Uint8Array(0), Uint8Array.of(7));
  assert.equal(a.withdraw(first), true);
  assert.equal(a.withdraw(first), false);
  const events = [];
  drive(a, b, events);
  assert.deepEqual(events.map((event) => [event.message.number, event.message.body[0]]), [[1, 7]]);
});
