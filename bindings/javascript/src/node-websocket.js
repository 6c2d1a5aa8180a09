// A WebSocket client (RFC 6455) for Node with the interface of the browsers', as far as blip.js uses it.

import { createHash, randomBytes } from "node:crypto";
import * as http from "node:http";
import * as https from "node:https";
import { GrowingBytes } from "./growing-bytes.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const MAX_MESSAGE = 64 << 20;
const CLOSE_TIMEOUT = 5000;
const CONTINUATION = 0;
const TEXT = 1;
const BINARY = 2;
const CLOSE = 8;
const PING = 9;
const PONG = 10;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Whether a close frame may carry this code (RFC 6455 §7.4). */
function isCloseCode(code) {
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

function credentialsOf({ username, password }) {
  return `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
}

export class NodeWebSocket {
  binaryType = "arraybuffer";
  protocol = "";
  /** Unlike a page, it may close with the protocol's own codes. */
  closesWithAnyCode = true;
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  #socket = null;
  #request;
  /** What came and is not read: joined when the frame that begins it can be whole. */
  #chunks = [];
  #held = 0;
  #needed = 2;
  #buffer = Buffer.alloc(0);
  #fragments = new GrowingBytes();
  #opcode = 0;
  /** Nothing that still comes counts. */
  #isDeaf = false;
  #hasSentClose = false;
  #closeCode = 1006;
  #closeReason = "";
  #isEnded = false;
  #timer = null;

  constructor(url, protocols, { headers = {}, tls = {} } = {}) {
    this.url = String(url);
    const target = new URL(this.url);
    if (target.protocol !== "ws:" && target.protocol !== "wss:") {
      throw new SyntaxError(`A WebSocket URL begins with ws: or wss:, not ${target.protocol}`);
    }
    const isSecure = target.protocol === "wss:";
    const offered = [protocols].flat();
    const key = randomBytes(16).toString("base64");
    this.#request = (isSecure ? https : http).request({
      ...(isSecure ? tls : {}),
      host: target.hostname.replace(/^\[|\]$/g, ""),
      port: target.port || (isSecure ? 443 : 80),
      path: (target.pathname || "/") + target.search,
      // Of the URL, unless the headers have an authorization of their own.
      auth: target.username || target.password ? credentialsOf(target) : undefined,
      headers: {
        ...headers,
        Host: target.host,
        Connection: "Upgrade",
        Upgrade: "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Protocol": offered.join(", "),
      },
    });
    this.#request.on("upgrade", (response, socket, head) => this.#upgraded(response, socket, head, key, offered));
    this.#request.on("response", (response) => {
      response.resume();
      this.#failed(`the server answered ${response.statusCode} ${response.statusMessage}`);
    });
    this.#request.on("error", (error) => this.#failed(error.message));
    this.#request.end();
  }

  get bufferedAmount() {
    return this.#socket?.writableLength ?? 0;
  }

  send(bytes) {
    if (!this.#hasSentClose) this.#write(BINARY, bytes);
  }

  close(code = 1000, reason = "") {
    if (this.#socket === null) return this.#failed("it was closed");
    if (!this.#hasSentClose) this.#sendClose(code, reason);
  }

  #upgraded(response, socket, head, key, offered) {
    const accept = createHash("sha1")
      .update(key + GUID)
      .digest("base64");
    const agreed = response.headers["sec-websocket-protocol"];
    const text =
      response.headers["sec-websocket-accept"] !== accept
        ? "the server's answer does not fit the request"
        : !offered.includes(agreed)
          ? `the server agreed on ${agreed ?? "no subprotocol"}`
          : response.headers["sec-websocket-extensions"]
            ? "the server uses an extension that was not offered"
            : null;
    if (text) {
      socket.destroy();
      return this.#failed(text);
    }
    this.#socket = socket;
    this.protocol = agreed;
    socket.setNoDelay(true);
    socket.on("data", (bytes) => this.#received(bytes));
    socket.on("error", () => {});
    socket.on("close", () => this.#ended());
    this.onopen?.({});
    if (head.length > 0) this.#received(head);
  }

  #failed(message) {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#request.destroy();
    queueMicrotask(() => {
      this.onerror?.({ message });
      this.onclose?.({ code: 1006, reason: message });
    });
  }

  #ended() {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearTimeout(this.#timer);
    this.onclose?.({ code: this.#closeCode, reason: this.#closeReason });
  }

  #write(opcode, bytes) {
    const size = bytes.length;
    const prefix = size < 126 ? 2 : size < 65536 ? 4 : 10;
    const frame = Buffer.allocUnsafe(prefix + 4 + size);
    frame[0] = 0x80 | opcode;
    if (prefix === 2) {
      frame[1] = 0x80 | size;
    } else if (prefix === 4) {
      frame[1] = 0x80 | 126;
      frame.writeUInt16BE(size, 2);
    } else {
      frame[1] = 0x80 | 127;
      frame.writeBigUInt64BE(BigInt(size), 2);
    }
    const mask = randomBytes(4);
    mask.copy(frame, prefix);
    for (let index = 0, at = prefix + 4; index < size; index++, at++) frame[at] = bytes[index] ^ mask[index & 3];
    this.#socket.write(frame);
  }

  #sendClose(code, reason) {
    const whole = Buffer.from(reason);
    let size = Math.min(whole.length, 123);
    while (size < whole.length && (whole[size] & 0xc0) === 0x80) size--;
    const text = whole.subarray(0, size);
    const payload = Buffer.alloc(2 + text.length);
    payload.writeUInt16BE(code, 0);
    text.copy(payload, 2);
    this.#write(CLOSE, payload);
    this.#hasSentClose = true;
    this.#timer = setTimeout(() => this.#socket.destroy(), CLOSE_TIMEOUT);
  }

  #received(bytes) {
    if (this.#isDeaf) return;
    this.#chunks.push(bytes);
    this.#held += bytes.length;
    if (this.#held < this.#needed) return;
    this.#buffer = this.#chunks.length === 1 ? bytes : Buffer.concat(this.#chunks);
    while (!this.#isDeaf && this.#frame());
    this.#held = this.#isDeaf ? 0 : this.#buffer.length;
    this.#chunks = this.#held > 0 ? [this.#buffer] : [];
    this.#buffer = Buffer.alloc(0);
  }

  /** Whether so many bytes are here. */
  #has(size) {
    this.#needed = size;
    return this.#buffer.length >= size;
  }

  /** Takes one frame; false if it is not here as a whole. */
  #frame() {
    const buffer = this.#buffer;
    if (!this.#has(2)) return false;
    const opcode = buffer[0] & 0x0f;
    let size = buffer[1] & 0x7f;
    let start = 2;
    if (buffer[0] & 0x70 || buffer[1] & 0x80) return this.#violated("A frame has bits that it must not have.");
    if (size === 126) {
      if (!this.#has(4)) return false;
      size = buffer.readUInt16BE(2);
      start = 4;
    } else if (size === 127) {
      if (!this.#has(10)) return false;
      const large = buffer.readBigUInt64BE(2);
      if (large > BigInt(MAX_MESSAGE)) return this.#violated("A frame is too large.", 1009);
      size = Number(large);
      start = 10;
    }
    if (opcode >= CLOSE && (size > 125 || !(buffer[0] & 0x80))) return this.#violated("A control frame is malformed.");
    if (!this.#has(start + size)) return false;
    const payload = buffer.subarray(start, start + size);
    this.#buffer = buffer.subarray(start + size);
    return this.#act(opcode, (buffer[0] & 0x80) !== 0, payload);
  }

  #act(opcode, isFinal, payload) {
    switch (opcode) {
      case PING:
        if (!this.#hasSentClose) this.#write(PONG, payload);
        return true;
      case PONG:
        return true;
      case CLOSE:
        return this.#closed(payload);
      case TEXT:
      case BINARY:
      case CONTINUATION:
        return this.#data(opcode, isFinal, payload);
      default:
        return this.#violated("A frame has an unknown opcode.");
    }
  }

  #closed(payload) {
    let [code, reason] = [1005, ""];
    if (payload.length > 0) {
      code = payload.length > 1 ? payload.readUInt16BE(0) : 0;
      if (!isCloseCode(code)) return this.#violated("A close frame has a code that may not be sent.");
      try {
        reason = decoder.decode(payload.subarray(2));
      } catch {
        return this.#violated("A close frame has a reason that is no text.", 1007);
      }
    }
    this.#isDeaf = true;
    [this.#closeCode, this.#closeReason] = [code, reason];
    if (!this.#hasSentClose) this.#sendClose(code === 1005 ? 1000 : code, "");
    this.#socket.end();
    return false;
  }

  #data(opcode, isFinal, payload) {
    const isContinued = this.#opcode !== 0;
    if ((opcode === CONTINUATION) !== isContinued) return this.#violated("Fragments are out of order.");
    if (!isContinued) this.#opcode = opcode;
    if (this.#fragments.size + payload.length > MAX_MESSAGE) return this.#violated("A message is too large.", 1009);
    this.#fragments.append(payload);
    if (!isFinal) return true;
    const { buffer } = this.#fragments.take();
    const kind = this.#opcode;
    this.#opcode = 0;
    this.onmessage?.({ data: kind === TEXT ? Buffer.from(buffer).toString("utf8") : buffer });
    return true;
  }

  #violated(text, code = 1002) {
    this.#isDeaf = true;
    this.#closeCode = code;
    this.#closeReason = text;
    if (!this.#hasSentClose) this.#sendClose(code, text);
    // There is nothing to wait for: what comes cannot be read any more.
    this.#socket.end(() => this.#socket.destroy());
    return false;
  }
}
