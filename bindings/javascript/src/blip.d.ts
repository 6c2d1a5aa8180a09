export type Body = string | ArrayBuffer | ArrayBufferView;

export interface Outgoing {
  profile?: string;
  properties?: Record<string, string> | Map<string, string>;
  body?: Body;
  json?: unknown;
  contentType?: string;
  urgent?: boolean;
}

export interface Request extends Outgoing {
  /** Milliseconds. */
  timeout?: number;
  signal?: AbortSignal;
  onProgress?: (bytes: number) => void;
}

export class Message {
  readonly properties: Map<string, string>;
  readonly body: Uint8Array;
  readonly number: number;
  readonly urgent: boolean;
  readonly compressed: boolean;
  readonly noReply: boolean;
  readonly profile: string;
  readonly contentType: string;
  text(): string;
  json(): any;
}

export class BlipError extends Error {
  constructor(domain: string, code: number | string, message: string, response?: Message | null);
  readonly domain: string;
  readonly code: number | string;
  readonly response: Message | null;
}

export const FAILURES: Readonly<Record<"closed" | "timeout" | "aborted" | "protocol" | "limit" | "connect", string>>;

export type Answer = Outgoing | Body | void;
export type Handler = (request: Message, connection: Connection) => Answer | Promise<Answer>;

export class Connection {
  readonly isOpen: boolean;
  readonly protocol: string;
  readonly url: string;
  readonly closed: Promise<{ code: number; reason: string; error: BlipError | null }>;
  handle(profile: string | null, handler: Handler | null): this;
  request(request: Request): Promise<Message>;
  send(message: Outgoing): void;
  close(code?: number, reason?: string): Promise<{ code: number; reason: string; error: BlipError | null }>;
}

export interface ConnectOptions {
  /** "BLIP_3", or "BLIP_3+" and the application's name. */
  protocols?: string | string[];
  limits?: Partial<Record<"frame" | "properties" | "message" | "unfinishedMessages" | "unfinishedBytes", number>>;
  /** Milliseconds. */
  timeout?: number;
  handlers?: Record<string, Handler>;
  /** In place of the platform's. */
  WebSocket?: unknown;
  /** Node only. */
  headers?: Record<string, string>;
  /** Node only: options of node:tls. */
  tls?: Record<string, unknown>;
}

export function connect(url: string, options?: ConnectOptions): Promise<Connection>;
