// Against the real server: the path of the blip tool is in BLIP_TOOL.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { createHash } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { NodeWebSocket } from "../src/node-websocket.js";
import { BlipError, connect } from "../src/node.js";

const tool = process.env.BLIP_TOOL;
const needsTool = { skip: tool ? false : "BLIP_TOOL does not name the blip tool" };

/** Starts `blip serve`; resolves with its URL. */
function serve(...options) {
  const child = spawn(tool, ["serve", "ws://127.0.0.1:0/", ...options], { stdio: ["ignore", "pipe", "inherit"] });
  return new Promise((resolve, reject) => {
    let text = "";
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    child.stdout.on("data", (bytes) => {
      text += bytes;
      const url = /wss?:\/\/\S+/.exec(text)?.[0];
      if (url) resolve({ child, url });
    });
  });
}

test("a URL's user name and password log in, and are shown nowhere", needsTool, async () => {
  const { child, url } = await serve("--user", "anna:p@ss");
  const named = (user) => url.replace("//", `//${user}@`);
  try {
    const connection = await connect(named("anna:p%40ss"));
    assert.equal((await connection.request({ profile: "echo", body: "in" })).text(), "in");
    assert.equal(connection.url, url);
    await connection.close();
    const own = { Authorization: `Basic ${btoa("anna:p@ss")}` };
    await (await connect(named("anna:wrong"), { headers: own })).close();
    await assert.rejects(connect(named("anna:wrong")), {
      code: "connect",
      message: `Cannot connect to ${url}: the server answered 401 Unauthorized`,
    });
  } finally {
    child.kill();
  }
  await assert.rejects(connect("http://anna:secret@127.0.0.1/"), (error) => !error.message.includes("secret"));
  await assert.rejects(connect("ws:anna:secret@127.0.0.1:1"), (error) => !error.message.includes("secret"));
});

describe("against blip serve", needsTool, () => {
  let server;
  before(async () => {
    server = await serve();
  });
  after(() => server?.child.kill());

  test("echoes bodies of all sizes", async () => {
    const connection = await connect(server.url);
    assert.equal(connection.protocol, "BLIP_3");
    for (const size of [0, 1, 16_000, 16_384, 500_000]) {
      const body = Uint8Array.from({ length: size }, (_, index) => (index * 7) & 0xff);
      const reply = await connection.request({ profile: "echo", body, properties: { Size: String(size) } });
      assert.ok(Buffer.from(reply.body).equals(body), `${size}`);
      assert.equal(reply.properties.get("Size"), String(size));
    }
    await connection.close();
  });

  test("many requests at once, answered in any order", async () => {
    const connection = await connect(server.url);
    const replies = await Promise.all(
      Array.from({ length: 500 }, (_, index) =>
        connection.request({
          profile: index % 5 ? "echo" : "sleep",
          properties: { ms: String(index % 7) },
          body: `number ${index}`,
        }),
      ),
    );
    replies.forEach((reply, index) => {
      if (index % 5) assert.equal(reply.text(), `number ${index}`);
    });
    await connection.close();
  });

  test("a large response shows its progress while urgent requests overtake it", async () => {
    const connection = await connect(server.url);
    let progress = 0;
    let isDone = false;
    const bulk = connection
      .request({ profile: "source", properties: { size: "8000000" }, onProgress: (bytes) => (progress = bytes) })
      .finally(() => (isDone = true));
    const quick = await connection.request({ profile: "echo", body: "now", urgent: true });
    assert.equal(quick.text(), "now");
    assert.equal(isDone, false);
    assert.equal((await bulk).body.length, 8_000_000);
    assert.ok(progress > 1_000_000);
    await connection.close();
  });

  test("error responses carry domain, code and text", async () => {
    const connection = await connect(server.url);
    const failure = await connection
      .request({ profile: "error", properties: { domain: "HTTP", code: "409", text: "conflict" } })
      .then(assert.fail, (error) => error);
    assert.ok(failure instanceof BlipError);
    assert.deepEqual([failure.domain, failure.code, failure.message], ["HTTP", 409, "conflict"]);
    const missing = await connection.request({ profile: "nobody" }).then(assert.fail, (error) => error);
    assert.deepEqual([missing.domain, missing.code], ["BLIP", 404]);
    await connection.close();
  });

  test("timeouts, signals and closing end a request once", async () => {
    const connection = await connect(server.url);
    const slow = { profile: "sleep", properties: { ms: "60000" } };
    const late = await connection.request({ ...slow, timeout: 20 }).then(assert.fail, (error) => error);
    assert.deepEqual([late.domain, late.code], ["local", "timeout"]);
    const controller = new AbortController();
    const stopped = connection.request({ ...slow, signal: controller.signal }).then(assert.fail, (error) => error);
    controller.abort();
    assert.equal((await stopped).code, "aborted");
    const pending = connection.request(slow).then(assert.fail, (error) => error);
    const end = await connection.close(1000, "done");
    assert.equal((await pending).code, "closed");
    assert.equal(end.code, 1000);
    await assert.rejects(connection.request(slow), { code: "closed" });
    assert.throws(() => connection.send({ profile: "echo" }), { code: "closed" });
  });

  test("what cannot be sent is refused", async () => {
    const connection = await connect(server.url);
    await assert.rejects(connection.request({ profile: "a\0b" }), TypeError);
    await assert.rejects(connection.request({ profile: "echo", body: 7 }), TypeError);
    await assert.rejects(connection.request({ properties: { x: "y".repeat(200_000) } }), RangeError);
    assert.equal((await connection.request({ profile: "echo", body: "still here" })).text(), "still here");
    await connection.close();
  });

  test("a subprotocol that the server does not speak is told", async () => {
    await assert.rejects(connect(server.url, { protocols: "BLIP_3+Other" }), { code: "connect" });
  });
});

describe("against blip serve with compression", needsTool, () => {
  test("compressed responses are inflated", async () => {
    const { child, url } = await serve();
    try {
      const connection = await connect(url);
      // The server compresses what is a text.
      const reply = await connection.request({ profile: "source", properties: { size: "300000", compressed: "1" } });
      assert.equal(reply.body.length, 300_000);
      await connection.close();
    } finally {
      child.kill();
    }
  });
});

/** A server that only shakes hands, then does with the socket what a test wants. */
function rawServer(act) {
  const server = createServer();
  const sockets = [];
  server.on("upgrade", (request, socket) => {
    sockets.push(socket);
    socket.on("error", () => {});
    const accept = createHash("sha1")
      .update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
      .digest("base64");
    const head =
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
      `Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: BLIP_3\r\n\r\n`;
    act(socket, head);
  });
  return new Promise((resolve) => {
    const stop = () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    };
    server.listen(0, "127.0.0.1", () => resolve({ stop, url: `ws://127.0.0.1:${server.address().port}/` }));
  });
}

const binary = (...bytes) => Buffer.from([0x82, bytes.length, ...bytes]);

test("requests of the peer are answered, also when they come with the upgrade", async () => {
  let received = Buffer.alloc(0);
  const { stop, url } = await rawServer((socket, head) => {
    // An empty request, number 1.
    socket.write(Buffer.concat([Buffer.from(head), binary(0x01, 0x00, 0x00, 0xd2, 0x02, 0xef, 0x8d)]));
    socket.on("data", (bytes) => (received = Buffer.concat([received, bytes])));
  });
  let seen;
  const called = new Promise((resolve) => (seen = resolve));
  const connection = await connect(url, { handlers: { "": (request) => seen(request) } });
  assert.equal((await called).number, 1);
  while (received.length < 13) await new Promise((resolve) => setTimeout(resolve, 5));
  const mask = received.subarray(2, 6);
  const frame = received.subarray(6, 13).map((byte, index) => byte ^ mask[index & 3]);
  assert.deepEqual([...frame], [0x01, 0x01, 0x00, 0xd2, 0x02, 0xef, 0x8d]);
  connection.close();
  stop();
});

test("a handler may return its body alone", async () => {
  for (const answer of ["hi", Uint8Array.of(0x68, 0x69), Promise.resolve({ body: "hi" })]) {
    let received = Buffer.alloc(0);
    const { stop, url } = await rawServer((socket, head) => {
      socket.write(Buffer.concat([Buffer.from(head), binary(0x01, 0x00, 0x00, 0xd2, 0x02, 0xef, 0x8d)]));
      socket.on("data", (bytes) => (received = Buffer.concat([received, bytes])));
    });
    const connection = await connect(url, { handlers: { "": () => answer } });
    while (received.length < 15) await new Promise((resolve) => setTimeout(resolve, 5));
    const mask = received.subarray(2, 6);
    const frame = received.subarray(6, 11).map((byte, index) => byte ^ mask[index & 3]);
    assert.deepEqual([...frame], [0x01, 0x01, 0x00, 0x68, 0x69]);
    connection.close();
    stop();
  }
});

test("what is no message is refused", async () => {
  const { stop, url } = await rawServer((socket, head) => socket.write(head));
  const connection = await connect(url);
  for (const wrong of ["echo", null, undefined, Uint8Array.of(1)]) {
    await assert.rejects(connection.request(wrong), TypeError);
    assert.throws(() => connection.send(wrong), TypeError);
  }
  await assert.rejects(connection.request({ profile: "echo", body: { a: 1 } }), /give other values as json/);
  connection.close();
  stop();
});

const violations = {
  "a wrong checksum": binary(0x01, 0x00, 0x00, 1, 2, 3, 4),
  "a text message": Buffer.from([0x81, 1, 0x61]),
  "a masked frame": Buffer.from([0x82, 0x80, 1, 2, 3, 4]),
  "a reserved bit": Buffer.from([0xc2, 0]),
  "an unknown opcode": Buffer.from([0x83, 0]),
  "a fragmented ping": Buffer.from([0x09, 0]),
  "a continuation of nothing": Buffer.from([0x80, 0]),
  "a frame of four gigabytes": Buffer.from([0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0]),
};
for (const [name, bytes] of Object.entries(violations)) {
  test(`${name} ends the connection and what waits`, { timeout: 20000 }, async () => {
    const { stop, url } = await rawServer((socket, head) => {
      socket.write(head);
      socket.once("data", () => socket.write(bytes));
    });
    const connection = await connect(url);
    const failure = await connection.request({ profile: "x" }).then(assert.fail, (error) => error);
    assert.equal(failure.domain, "local");
    stop();
    await connection.closed;
  });
}

test("fragments are put together, with a ping between them answered", async () => {
  let answer = Buffer.alloc(0);
  const { stop, url } = await rawServer((socket, head) => {
    socket.write(head);
    socket.write(Buffer.from([0x02, 3, 0x01, 0x00, 0x00]));
    socket.write(Buffer.from([0x89, 2, 0x68, 0x69]));
    socket.write(Buffer.from([0x80, 4, 0xd2, 0x02, 0xef, 0x8d]));
    socket.on("data", (bytes) => (answer = Buffer.concat([answer, bytes])));
  });
  let seen;
  const called = new Promise((resolve) => (seen = resolve));
  const connection = await connect(url, { handlers: { "": seen } });
  assert.equal((await called).number, 1);
  while (answer.length < 8) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(answer[0], 0x8a);
  connection.close();
  stop();
});

/** What a client sent: [opcode, payload] of each frame. */
function frames(bytes) {
  const result = [];
  while (bytes.length >= 6) {
    const size = bytes[1] & 0x7f;
    const mask = bytes.subarray(2, 6);
    result.push([bytes[0] & 0x0f, bytes.subarray(6, 6 + size).map((byte, index) => byte ^ mask[index & 3])]);
    bytes = bytes.subarray(6 + size);
  }
  return result;
}

/** A socket to a server that sends `bytes` and takes what comes; resolves when it has ended. */
async function exchange(bytes, act = () => {}) {
  let sent = Buffer.alloc(0);
  let ended;
  const hasEnded = new Promise((resolve) => (ended = resolve));
  const { stop, url } = await rawServer((socket, head) => {
    socket.write(head);
    socket.write(bytes);
    socket.on("close", ended);
    socket.on("data", (part) => (sent = Buffer.concat([sent, part])));
    socket.on("end", () => socket.end());
  });
  const socket = new NodeWebSocket(url, "BLIP_3");
  const messages = [];
  socket.onmessage = ({ data }) => messages.push(data);
  socket.onopen = () => act(socket);
  const { code } = await new Promise((resolve) => (socket.onclose = resolve));
  await hasEnded;
  stop();
  return { messages, code, sent: frames(sent) };
}

for (const [name, payload] of Object.entries({
  "code 1005": [0x03, 0xed], "code 999": [0x03, 0xe7], "one byte": [0x03], "a reason that is no text": [0x03, 0xe8, 0xff],
})) {
  test(`a close frame with ${name} is a violation, and not sent back`, { timeout: 20000 }, async () => {
    const { sent, code } = await exchange(Buffer.from([0x88, payload.length, ...payload]));
    const expected = payload.length > 2 ? 1007 : 1002;
    assert.equal(code, expected);
    assert.deepEqual(sent.map(([opcode, bytes]) => [opcode, bytes.readUInt16BE(0)]), [[8, expected]]);
  });
}

test("nothing counts that comes behind a close frame or a violation", { timeout: 20000 }, async () => {
  for (const [first, expected] of [[[0x88, 2, 0x03, 0xe8], 1000], [[0x83, 0], 1002]]) {
    const { messages, code, sent } = await exchange(Buffer.from([...first, 0x82, 1, 7, 0x88, 2, 0x03, 0xe9]));
    assert.deepEqual([messages, code, sent.length], [[], expected, 1]);
  }
});

test("a reason that is too long is cut between characters", { timeout: 20000 }, async () => {
  const { sent } = await exchange(Buffer.from([]), (socket) => socket.close(1000, "ü".repeat(100)));
  assert.equal(sent[0][1].toString("utf8", 2), "ü".repeat(61));
});

test("a large frame takes time by its size, and empty fragments nothing", { timeout: 60000 }, async () => {
  const size = 48 << 20;
  const head = Buffer.alloc(10);
  head.writeUInt16BE(0x827f, 0);
  head.writeBigUInt64BE(BigInt(size), 2);
  const empty = Buffer.concat([Buffer.from([0x02, 0]), Buffer.alloc(200_000).fill(Buffer.from([0x00, 0])), Buffer.from([0x80, 1, 7])]);
  const before = process.cpuUsage();
  const { messages } = await exchange(
    Buffer.concat([head, Buffer.alloc(size, 1), empty, Buffer.from([0x88, 2, 0x03, 0xe8])]),
  );
  const { user, system } = process.cpuUsage(before);
  assert.deepEqual(messages.map((data) => data.byteLength), [size, 1]);
  assert.ok(user + system < 2_500_000, `${user + system} microseconds`);
});

test("a callback that throws ends its request, not the connection", { timeout: 20000 }, async () => {
  const { stop, url } = await rawServer((socket, head) => {
    socket.write(head);
    socket.once("data", () => {
      // The begin of a response, then a response to the second request: both empty but for the properties' length.
      socket.write(binary(0x01, 0x41, 0x00, 0xd2, 0x02, 0xef, 0x8d));
      socket.once("data", () => socket.write(binary(0x02, 0x01, 0x00, 0x41, 0xd9, 0x12, 0xff)));
    });
  });
  const connection = await connect(url);
  const onProgress = () => {
    throw new Error("from the callback");
  };
  await assert.rejects(connection.request({ profile: "a", onProgress }), /from the callback/);
  assert.equal((await connection.request({ profile: "b" })).body.length, 0);
  connection.close();
  stop();
});

test("nobody listens", async () => {
  await assert.rejects(connect("ws://127.0.0.1:9/"), { code: "connect" });
});
