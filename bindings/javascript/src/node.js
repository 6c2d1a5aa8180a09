// BLIP 3 for Node: blip.js with a WebSocket of its own, since Node has none before version 22 and its own takes no
// headers and no certificates.

import { connect as connectWith, BlipError, Connection, FAILURES, Message } from "./blip.js";
import { NodeWebSocket } from "./node-websocket.js";

export { BlipError, Connection, FAILURES, Message };

/**
 * As `connect` of blip.js, with two more options: `headers` of the HTTP request, and `tls`, options of node:tls such as
 * `ca`, `cert`, `key` and `rejectUnauthorized`.
 */
export function connect(url, options = {}) {
  const { headers, tls, ...rest } = options;
  class Socket extends NodeWebSocket {
    constructor(url, protocols) {
      super(url, protocols, { headers, tls });
    }
  }
  return connectWith(url, { WebSocket: Socket, ...rest });
}
