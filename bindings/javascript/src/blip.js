// BLIP 3 over WebSocket, for browsers. Node imports node.js beside it, which brings a WebSocket.

import { DEFAULT_LIMITS, Engine, ERROR, ProtocolError } from "./engine.js";
import { BlipError, FAILURES } from "./errors.js";
import { encodeProperties } from "./properties.js";

export { BlipError, FAILURES };

const NONE = new Uint8Array(0);
/** The socket holds at most about so many bytes; the rest stays where urgent messages can overtake it. */
const SOCKET_BUFFER = 1 << 18;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A message that came: its properties, and its body as bytes, text or JSON. */
export class Message {
  constructor(message) {
    /** @type {Map<string, string>} */
    this.properties = message.properties;
    /** @type {Uint8Array} */
    this.body = message.body;
    this.number = message.number;
    this.urgent = message.urgent;
    this.compressed = message.compressed;
    this.noReply = message.noReply;
  }

  get profile() {
    return this.properties.get("Profile") ?? "";
  }

  get contentType() {
    return this.properties.get("Content-Type") ?? "";
  }

  text() {
    return decoder.decode(this.body);
  }

  json() {
    return JSON.parse(this.text());
  }
}

function isBody(value) {
  return typeof value === "string" || value instanceof ArrayBuffer || ArrayBuffer.isView(value);
}

/** The properties and the body of a message to be sent, from what the program gives. */
function encode(message) {
  if (typeof message !== "object" || message === null || isBody(message)) {
    throw new TypeError("A message is an object, such as {profile, properties, body}.");
  }
  const { profile, properties = {}, body = NONE, json, contentType } = message;
  const pairs = new Map(properties instanceof Map ? properties : Object.entries(properties));
  if (profile !== undefined) pairs.set("Profile", profile);
  let bytes = body;
  if (json !== undefined) {
    bytes = encoder.encode(JSON.stringify(json));
    pairs.set("Content-Type", contentType ?? "application/json");
  } else if (contentType !== undefined) {
    pairs.set("Content-Type", contentType);
  }
  if (typeof bytes === "string") bytes = encoder.encode(bytes);
  else if (bytes instanceof ArrayBuffer) bytes = new Uint8Array(bytes);
  else if (ArrayBuffer.isView(bytes)) bytes = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  else throw new TypeError("A body is a string, an ArrayBuffer or a view of one; give other values as json.");
  return { properties: encodeProperties(pairs), body: bytes };
}

/**
 * One BLIP connection. Made by {@link connect}; both sides may send requests at any time.
 */
export class Connection {
  #socket;
  #engine;
  #handlers = new Map();
  /** What belongs to requests of this side that have not ended. */
  #queued = new Set();
  #isClosed = false;
  #isClosing = false;
  #isFlushing = false;
  #timer = null;
  #resolveClosed;

  constructor(socket, limits) {
    this.#socket = socket;
    this.#engine = new Engine(limits);
    /** Resolves with {code, reason, error} when the connection has ended; never rejects. */
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = (event) => this.#end(event.code, event.reason, null);
    socket.onerror = () => {};
  }

  get isOpen() {
    return !this.#isClosed && !this.#isClosing;
  }

  /** The subprotocol that was agreed on. */
  get protocol() {
    return this.#socket.protocol;
  }

  /** Without user name and password. */
  get url() {
    return withoutUser(this.#socket.url);
  }

  /**
   * Answers requests of a profile; null as `profile` for all that have no handler of their own.
   *
   * @param {string | null} profile
   * @param {((request: Message, connection: Connection) => any) | null} handler returns, or promises, what to answer:
   *   nothing for an empty response, a body, or {properties, body, json, contentType}; what it throws becomes an error
   *   response, a {@link BlipError} with its domain and code. null takes the handler away.
   */
  handle(profile, handler) {
    if (handler === null) this.#handlers.delete(profile);
    else this.#handlers.set(profile, handler);
    return this;
  }

  /**
   * Sends a request and waits for its response.
   *
   * @param {{profile?: string, properties?: object | Map<string, string>, body?: any, json?: any, contentType?: string,
   *   urgent?: boolean, timeout?: number, signal?: AbortSignal, onProgress?: (bytes: number) => void}} request
   *   timeout in milliseconds
   * @returns {Promise<Message>} rejects with a {@link BlipError}
   */
  request(request) {
    return new Promise((resolve, reject) => {
      const { properties, body } = encode(request);
      const { urgent = false, timeout, signal, onProgress } = request;
      if (!this.isOpen) throw new BlipError("local", FAILURES.closed, "The connection is closed.");
      if (signal?.aborted) throw aborted(signal);
      let timer = null;
      const tag = {
        progress: (received) => {
          try {
            onProgress?.(received);
          } catch (error) {
            giveUp(error);
          }
        },
        settle: (action) => {
          tag.settle = () => {};
          clearTimeout(timer);
          signal?.removeEventListener("abort", onAbort);
          action();
        },
        resolve: (response) => tag.settle(() => resolve(response)),
        reject: (error) => tag.settle(() => reject(error)),
      };
      const message = this.#engine.sendRequest(properties, body, { urgent }, tag);
      const giveUp = (error) => {
        this.#engine.withdraw(message);
        this.#queued.delete(tag);
        tag.reject(error);
      };
      const onAbort = () => giveUp(aborted(signal));
      signal?.addEventListener("abort", onAbort);
      if (timeout !== undefined && timeout >= 0) {
        const text = `No response came within ${timeout} ms.`;
        timer = setTimeout(() => giveUp(new BlipError("local", FAILURES.timeout, text)), timeout);
      }
      this.#queued.add(tag);
      this.#flush();
    });
  }

  /** Sends a message that is not answered. */
  send(message) {
    const { properties, body } = encode(message);
    if (!this.isOpen) throw new BlipError("local", FAILURES.closed, "The connection is closed.");
    this.#engine.sendRequest(properties, body, { urgent: message.urgent ?? false, noReply: true });
    this.#flush();
  }

  /** Closes; what waits for a response is rejected. Resolves when the connection has ended. */
  close(code = 1000, reason = "") {
    if (this.isOpen) {
      this.#isClosing = true;
      this.#rejectAll(new BlipError("local", FAILURES.closed, "The connection was closed by this side."));
      this.#socket.close(code, reason);
    }
    return this.closed;
  }

  #receive(data) {
    if (!this.isOpen) return;
    try {
      if (!(data instanceof ArrayBuffer)) throw new ProtocolError("A text message came; BLIP is binary.", 1003);
      const event = this.#engine.receive(new Uint8Array(data));
      if (event !== null) this.#act(event);
    } catch (error) {
      return this.#fail(error);
    }
    this.#flush();
  }

  #act(event) {
    switch (event.type) {
      case "request":
        this.#respond(new Message(event.message));
        break;
      case "badRequest":
        if (!event.noReply) this.#sendError(event.number, false, new BlipError("BLIP", 400, `Bad request: ${event.text}`));
        break;
      case "progress":
        event.tag?.progress(event.received);
        break;
      case "failed":
        this.#finish(event.tag)?.reject(new BlipError("local", FAILURES.protocol, `A bad response: ${event.text}`));
        break;
      case "response":
        this.#complete(event);
        break;
    }
  }

  #finish(tag) {
    this.#queued.delete(tag);
    return tag;
  }

  #complete({ message, tag }) {
    const response = new Message(message);
    if (message.kind !== ERROR) return this.#finish(tag)?.resolve(response);
    const domain = response.properties.get("Error-Domain") ?? "BLIP";
    const code = Number.parseInt(response.properties.get("Error-Code") ?? "", 10);
    this.#finish(tag)?.reject(new BlipError(domain, Number.isNaN(code) ? 599 : code, response.text(), response));
  }

  async #respond(request) {
    const handler = this.#handlers.get(request.profile) ?? this.#handlers.get(null);
    let error = null;
    let answer;
    try {
      if (!handler) throw new BlipError("BLIP", 404, "No handler for BLIP request");
      const result = (await handler(request, this)) ?? {};
      answer = encode(isBody(result) ? { body: result } : result);
    } catch (thrown) {
      error = thrown instanceof BlipError ? thrown : new BlipError("BLIP", 501, String(thrown?.message ?? thrown));
    }
    if (request.noReply || !this.isOpen) return;
    try {
      if (error) this.#sendError(request.number, request.urgent, error);
      else this.#engine.sendResponse(request.number, answer.properties, answer.body, { urgent: request.urgent });
    } catch (thrown) {
      this.#sendError(request.number, request.urgent, new BlipError("BLIP", 501, thrown.message));
    }
    this.#flush();
  }

  #sendError(number, urgent, error) {
    const [domain, code] = error.domain === "local" ? ["BLIP", 501] : [error.domain, error.code];
    const properties = encodeProperties([
      ["Error-Domain", String(domain).replaceAll("\0", "")],
      ["Error-Code", String(code)],
    ]);
    this.#engine.sendResponse(number, properties, encoder.encode(error.message), { urgent, isError: true });
  }

  /** Hands frames to the socket as long as it takes them; goes on when what it holds is sent. */
  #flush() {
    if (this.#isFlushing || !this.isOpen) return;
    this.#isFlushing = true;
    try {
      while (this.#engine.hasOutput && this.#socket.bufferedAmount < SOCKET_BUFFER) {
        const frame = this.#engine.nextFrame();
        if (frame === null) break;
        this.#socket.send(frame);
      }
    } finally {
      this.#isFlushing = false;
    }
    // There is no event for this.
    if (this.#engine.hasOutput && this.#timer === null) {
      this.#timer = setTimeout(() => {
        this.#timer = null;
        this.#flush();
      }, 4);
    }
  }

  #fail(error) {
    const isProtocol = error instanceof ProtocolError;
    const failure = new BlipError("local", FAILURES.protocol, error.message);
    this.#isClosing = true;
    this.#rejectAll(failure);
    this.failure = failure;
    // A page may only close with 1000 or 3000 to 4999: what the protocol says is kept in the lower digits.
    const code = isProtocol ? 4000 + (error.closeCode % 1000) : 4011;
    const reason = encoder.encode(error.message).length <= 123 ? error.message : "protocol error";
    try {
      this.#socket.close(this.#socket.closesWithAnyCode && isProtocol ? error.closeCode : code, reason);
    } catch {
      this.#socket.close();
    }
  }

  #end(code, reason) {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const said = reason ? `: ${reason}` : "";
    this.#rejectAll(new BlipError("local", FAILURES.closed, `The connection ended with code ${code}${said}`));
    this.#resolveClosed({ code, reason, error: this.failure ?? null });
  }

  #rejectAll(error) {
    const all = [...this.#queued];
    this.#queued.clear();
    for (const tag of all) tag.reject(error);
  }
}

function aborted(signal) {
  return new BlipError("local", FAILURES.aborted, String(signal.reason?.message ?? "The request was aborted."));
}

/** A URL as it may be shown. */
function withoutUser(url) {
  return String(url).replace(/^([^:/?#]*:[/\\]*)[^/\\?#]*@/, "$1");
}

/**
 * Connects.
 *
 * @param {string} url ws: or wss:; a user name and password in it are shown in no message
 * @param {{protocols?: string | string[], limits?: Partial<typeof DEFAULT_LIMITS>, timeout?: number,
 *   WebSocket?: any, handlers?: Record<string, Function>}} options protocols: "BLIP_3", or "BLIP_3+" and the
 *   application's; timeout in milliseconds; handlers: by profile, in place before the first message comes
 * @returns {Promise<Connection>} rejects with a {@link BlipError}
 */
export function connect(url, options = {}) {
  const { protocols = "BLIP_3", limits, timeout = 15000, handlers = {} } = options;
  const WebSocket = options.WebSocket ?? globalThis.WebSocket;
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, protocols);
    const failed = (text) => {
      clearTimeout(timer);
      socket.onopen = socket.onclose = socket.onerror = null;
      reject(new BlipError("local", FAILURES.connect, text));
    };
    const timer = setTimeout(() => {
      failed(`${withoutUser(url)} did not answer within ${timeout} ms.`);
      socket.close();
    }, timeout);
    let detail = "";
    socket.onerror = (event) => (detail = event?.message ? `: ${event.message}` : "");
    socket.onclose = (event) => {
      const reason = detail || (event.reason ? `: ${event.reason}` : "");
      failed(`Cannot connect to ${withoutUser(url)}${reason}`);
    };
    socket.onopen = () => {
      clearTimeout(timer);
      const connection = new Connection(socket, limits);
      for (const [profile, handler] of Object.entries(handlers)) connection.handle(profile, handler);
      resolve(connection);
    };
  });
}
