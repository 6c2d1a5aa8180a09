// BLIP 3 without I/O: frames in, events out; messages in, frames out. It has no clock and no socket.

import { crc32 } from "./crc32.js";
import { GrowingBytes } from "./growing-bytes.js";
import { InflateError, Inflater } from "./inflater.js";
import { decodeProperties } from "./properties.js";
import { readVarint, varintSize, writeVarint } from "./varint.js";

export const REQUEST = 0;
export const RESPONSE = 1;
export const ERROR = 2;
const ACK_REQUEST = 4;
const ACK_RESPONSE = 5;
const TYPE_MASK = 0x07;
const COMPRESSED = 0x08;
const URGENT = 0x10;
const NO_REPLY = 0x20;
const MORE_COMING = 0x40;

const BIG_FRAME = 16384;
const SMALL_FRAME = 4096;
const CHECKSUM = 4;
/** An acknowledgement is due each time that the bytes of a message pass a multiple of this. */
const ACK_INTERVAL = 50000;
/** A message waits when so many of its bytes are not acknowledged. */
const WINDOW = 128000;
const FLUSH = Uint8Array.of(0, 0, 0xff, 0xff);

/** Limits of what comes in; see {@link Engine}. */
export const DEFAULT_LIMITS = Object.freeze({
  frame: 1 << 20,
  properties: 102400,
  message: 64 << 20,
  unfinishedMessages: 4096,
  unfinishedBytes: 256 << 20,
});

/** The peer broke the protocol: the connection has to be closed with `closeCode`. */
export class ProtocolError extends Error {
  constructor(text, closeCode = 1002) {
    super(text);
    this.name = "ProtocolError";
    this.closeCode = closeCode;
  }
}

/**
 * Where a message goes in the queue: a normal one to the end; an urgent one behind the last urgent one with one other in
 * between, without an urgent one behind the first; but while nothing of it is sent, behind all of which nothing is sent.
 */
export function outboxIndex(queue, message) {
  if (!message.isUrgent || queue.length <= 1) return queue.length;
  const lastUrgent = queue.findLastIndex((entry) => entry.isUrgent);
  let anchor = lastUrgent < 0 ? 0 : Math.min(lastUrgent + 1, queue.length - 1);
  if (!message.isStarted) anchor = Math.max(anchor, queue.findLastIndex((entry) => !entry.isStarted));
  return anchor + 1;
}

/** A message on its way out. */
class Outgoing {
  constructor(kind, number, flags, content, tag) {
    this.kind = kind;
    this.number = number;
    this.flags = flags;
    this.content = content;
    this.tag = tag;
    this.offset = 0;
    this.sent = 0;
    this.acknowledged = 0;
    this.isStarted = false;
    this.isPaused = false;
  }

  get isUrgent() {
    return (this.flags & URGENT) !== 0;
  }
}

/** A message on its way in. */
class Incoming {
  constructor(kind, number, flags) {
    this.kind = kind;
    this.number = number;
    this.flags = flags;
    this.content = new GrowingBytes();
    this.wireBytes = 0;
    this.propertiesSize = -1;
    this.prefix = 0;
    /** Why nothing more of it is kept, or null. */
    this.failure = null;
  }
}

/**
 * One side of a BLIP 3 connection.
 *
 * `receive` gives what one frame led to: null, or an object with `type` "request" or "response" and the message,
 * "progress" for a part of a response, "failed" for a response that cannot be understood, or "badRequest". It throws a
 * {@link ProtocolError} if the connection cannot go on.
 */
export class Engine {
  #limits;
  #lastSent = 0;
  #lastReceived = 0;
  #sendChecksum = 0;
  #receiveChecksum = 0;
  #inflater = null;
  #outbox = [];
  #paused = [];
  #acks = [];
  #requests = new Map();
  #responses = new Map();
  #waiting = new Map();
  #unfinishedBytes = 0;

  constructor(limits = {}) {
    this.#limits = { ...DEFAULT_LIMITS, ...limits };
  }

  /** Requests whose response has not come. */
  get waiting() {
    return [...this.#waiting.values()];
  }

  /** Whether there is a frame to send now. */
  get hasOutput() {
    return this.#acks.length > 0 || this.#outbox.length > 0;
  }

  /** Nothing is under way in either direction. */
  get isIdle() {
    return !this.hasOutput && this.#paused.length === 0 && this.#waiting.size === 0 && this.#requests.size === 0;
  }

  // Sending

  /**
   * Queues a request. `tag` comes back with its response.
   *
   * @param {Uint8Array} properties encoded
   * @param {Uint8Array} body
   */
  sendRequest(properties, body, { urgent = false, noReply = false } = {}, tag = null) {
    this.#checkProperties(properties);
    const flags = (urgent ? URGENT : 0) | (noReply ? NO_REPLY : 0);
    const message = new Outgoing(REQUEST, 0, flags, content(properties, body), tag);
    this.#enqueue(message);
    return message;
  }

  /** Queues the response to request `number`. */
  sendResponse(number, properties, body, { urgent = false, isError = false } = {}) {
    this.#checkProperties(properties);
    const message = new Outgoing(
      isError ? ERROR : RESPONSE,
      number,
      urgent ? URGENT : 0,
      content(properties, body),
      null,
    );
    this.#enqueue(message);
    return message;
  }

  /** Takes back a request of which nothing was sent; false if it is too late. */
  withdraw(message) {
    const index = this.#outbox.indexOf(message);
    if (index < 0 || message.isStarted) return false;
    this.#outbox.splice(index, 1);
    return true;
  }

  #checkProperties(properties) {
    if (properties.length > this.#limits.properties) {
      throw new RangeError(`The properties take ${properties.length} bytes; ${this.#limits.properties} are allowed.`);
    }
  }

  #enqueue(message) {
    this.#outbox.splice(outboxIndex(this.#outbox, message), 0, message);
  }

  /** The next frame to send, or null. */
  nextFrame() {
    if (this.#acks.length > 0) return this.#acks.shift();
    const message = this.#outbox.shift();
    if (message === undefined) return null;
    if (!message.isStarted) {
      message.isStarted = true;
      if (message.kind === REQUEST) {
        message.number = ++this.#lastSent;
        if ((message.flags & NO_REPLY) === 0) this.#waiting.set(message.number, message);
      }
    }
    const next = this.#outbox[0];
    const limit = !message.isUrgent && next !== undefined && next.isUrgent ? SMALL_FRAME : BIG_FRAME;
    const room = limit - varintSize(message.number) - 1 - CHECKSUM;
    const payload = message.content.subarray(message.offset, message.offset + room);
    message.offset += payload.length;
    const hasMore = message.offset < message.content.length;
    const frame = new Uint8Array(varintSize(message.number) + 1 + payload.length + CHECKSUM);
    let offset = writeVarint(frame, 0, message.number);
    frame[offset++] = message.kind | message.flags | (hasMore ? MORE_COMING : 0);
    frame.set(payload, offset);
    offset += payload.length;
    this.#sendChecksum = crc32(payload, this.#sendChecksum);
    new DataView(frame.buffer).setUint32(offset, this.#sendChecksum);
    message.sent += payload.length + CHECKSUM;
    if (hasMore) {
      if (message.sent - message.acknowledged >= WINDOW) {
        message.isPaused = true;
        this.#paused.push(message);
      } else {
        this.#enqueue(message);
      }
    }
    return frame;
  }

  // Receiving

  receive(frame) {
    if (frame.length > this.#limits.frame) {
      throw new ProtocolError(`A frame of ${frame.length} bytes came; ${this.#limits.frame} are allowed.`, 1009);
    }
    const first = readVarint(frame, 0);
    const second = first && readVarint(frame, first[1]);
    if (!second) throw new ProtocolError("A frame's header is cut off or malformed.");
    const number = first[0];
    const flags = second[0] & 0xff;
    const rest = frame.subarray(second[1]);
    const type = flags & TYPE_MASK;
    switch (type) {
      case ACK_REQUEST:
      case ACK_RESPONSE:
        this.#acknowledged(number, type === ACK_REQUEST, rest);
        return null;
      case REQUEST:
      case RESPONSE:
      case ERROR:
        return this.#message(number, flags, type, rest);
      default:
        return null;
    }
  }

  #acknowledged(number, isRequest, rest) {
    const count = readVarint(rest, 0);
    if (!count) return;
    const matches = (message) => message.number === number && (message.kind === REQUEST) === isRequest;
    const message = this.#paused.find(matches) ?? this.#outbox.find((entry) => entry.isStarted && matches(entry));
    if (!message || count[0] <= message.acknowledged || count[0] > message.sent) return;
    message.acknowledged = count[0];
    if (message.isPaused && message.sent - message.acknowledged < WINDOW) {
      message.isPaused = false;
      this.#paused.splice(this.#paused.indexOf(message), 1);
      this.#enqueue(message);
    }
  }

  #message(number, flags, type, rest) {
    if (rest.length < CHECKSUM) throw new ProtocolError("A frame has no checksum.");
    const incoming = this.#place(number, flags, type);
    const payload = this.#decode(flags, rest);
    if (incoming === null) return null;
    incoming.wireBytes += rest.length;
    const hasMore = (flags & MORE_COMING) !== 0;
    if (hasMore) this.#acknowledge(incoming, rest.length);
    const table = type === REQUEST ? this.#requests : this.#responses;
    if (hasMore) table.set(number, incoming);
    else table.delete(number);
    const wasGood = incoming.failure === null;
    if (wasGood) this.#add(incoming, payload);
    if (incoming.failure !== null) {
      // A request is answered when it has ended: deployed peers cannot take an answer before.
      const isDue = type === REQUEST ? !hasMore : wasGood;
      return isDue ? this.#fail(incoming, incoming.failure) : null;
    }
    if (hasMore) {
      if (type === REQUEST) return null;
      return { type: "progress", tag: this.#waiting.get(number)?.tag, received: incoming.content.size };
    }
    return this.#finish(incoming);
  }

  /** The message that a frame belongs to; null if nobody waits for it. */
  #place(number, flags, type) {
    if (type === REQUEST) {
      const known = this.#requests.get(number);
      if (known) return known;
      if (number !== this.#lastReceived + 1) {
        throw new ProtocolError(`Request ${number} came where ${this.#lastReceived + 1} was due.`);
      }
      this.#lastReceived = number;
      if (this.#requests.size >= this.#limits.unfinishedMessages) {
        throw new ProtocolError(`More than ${this.#limits.unfinishedMessages} requests are unfinished.`, 1008);
      }
      return new Incoming(type, number, flags);
    }
    if (number > this.#lastSent || number === 0) {
      throw new ProtocolError(`A response to request ${number} came, which was never sent.`);
    }
    const known = this.#responses.get(number);
    if (known) return known;
    return this.#waiting.has(number) ? new Incoming(type, number, flags) : null;
  }

  /** Undoes compression and compares the checksum. */
  #decode(flags, rest) {
    const body = rest.subarray(0, rest.length - CHECKSUM);
    let payload = body;
    if ((flags & COMPRESSED) !== 0 && body.length > 0) {
      const input = new Uint8Array(body.length + FLUSH.length);
      input.set(body);
      input.set(FLUSH, body.length);
      this.#inflater ??= new Inflater();
      try {
        payload = this.#inflater.inflate(input, this.#limits.message);
      } catch (error) {
        if (!(error instanceof InflateError)) throw error;
        throw new ProtocolError(`A frame cannot be decompressed: ${error.message}.`);
      }
    }
    this.#receiveChecksum = crc32(payload, this.#receiveChecksum);
    const sent = new DataView(rest.buffer, rest.byteOffset + body.length, CHECKSUM).getUint32(0);
    if (sent !== this.#receiveChecksum) throw new ProtocolError("A frame's checksum is wrong.");
    return payload;
  }

  #acknowledge(incoming, size) {
    const before = incoming.wireBytes - size;
    // Not for a first frame, unless it is so large that the sender must be waiting already.
    if (before === 0 && size < WINDOW) return;
    if (Math.floor(before / ACK_INTERVAL) === Math.floor(incoming.wireBytes / ACK_INTERVAL)) return;
    const frame = new Uint8Array(24);
    let offset = writeVarint(frame, 0, incoming.number);
    frame[offset++] = (incoming.kind === REQUEST ? ACK_REQUEST : ACK_RESPONSE) | URGENT | NO_REPLY;
    offset = writeVarint(frame, offset, incoming.wireBytes);
    this.#acks.push(frame.slice(0, offset));
  }

  #add(incoming, payload) {
    // A first frame may be empty; one that is not holds the length whole.
    if (payload.length === 0) return;
    if (incoming.propertiesSize < 0) {
      const length = readVarint(payload, 0);
      if (!length) return this.#drop(incoming, "Its properties' length is missing or malformed.");
      if (length[0] > this.#limits.properties) {
        return this.#drop(incoming, `Its properties take ${length[0]} bytes; ${this.#limits.properties} are allowed.`);
      }
      [incoming.propertiesSize, incoming.prefix] = length;
    }
    if (incoming.content.size + payload.length > this.#limits.message + this.#limits.properties) {
      return this.#drop(incoming, `It is larger than the ${this.#limits.message} bytes that are allowed.`);
    }
    if (this.#unfinishedBytes + payload.length > this.#limits.unfinishedBytes) {
      throw new ProtocolError(`Unfinished messages take more than ${this.#limits.unfinishedBytes} bytes.`, 1009);
    }
    incoming.content.append(payload);
    this.#unfinishedBytes += payload.length;
  }

  #drop(incoming, text) {
    incoming.failure = text;
    this.#take(incoming);
  }

  #take(incoming) {
    this.#unfinishedBytes -= incoming.content.size;
    return incoming.content.take();
  }

  #finish(incoming) {
    if (incoming.propertiesSize < 0) return this.#fail(incoming, "It is empty.");
    const whole = this.#take(incoming);
    const start = incoming.prefix;
    const end = start + incoming.propertiesSize;
    if (end > whole.length) return this.#fail(incoming, "Its properties are cut off.");
    const properties = decodeProperties(whole.subarray(start, end));
    if (properties === null) return this.#fail(incoming, "Its properties are malformed.");
    const message = {
      kind: incoming.kind,
      number: incoming.number,
      urgent: (incoming.flags & URGENT) !== 0,
      noReply: (incoming.flags & NO_REPLY) !== 0,
      compressed: (incoming.flags & COMPRESSED) !== 0,
      properties,
      body: whole.subarray(end),
    };
    if (incoming.kind === REQUEST) return { type: "request", message };
    const tag = this.#waiting.get(incoming.number)?.tag;
    this.#waiting.delete(incoming.number);
    return { type: "response", message, tag };
  }

  /** A message is no good, the connection is: a response fails, a request is answered. */
  #fail(incoming, text) {
    if (incoming.kind !== REQUEST) {
      const tag = this.#waiting.get(incoming.number)?.tag;
      this.#waiting.delete(incoming.number);
      return { type: "failed", tag, text };
    }
    return { type: "badRequest", number: incoming.number, noReply: (incoming.flags & NO_REPLY) !== 0, text };
  }
}

function content(properties, body) {
  const prefix = varintSize(properties.length);
  const bytes = new Uint8Array(prefix + properties.length + body.length);
  writeVarint(bytes, 0, properties.length);
  bytes.set(properties, prefix);
  bytes.set(body, prefix + properties.length);
  return bytes;
}
