/** The names under which local failures are reported; `code` of a {@link BlipError} whose domain is "local". */
export const FAILURES = Object.freeze({
  closed: "closed",
  timeout: "timeout",
  aborted: "aborted",
  protocol: "protocol",
  limit: "limit",
  connect: "connect",
});

/**
 * An error: the answer of the peer to a request (`domain` "BLIP", "HTTP" or the program's own, `code` a number), or a
 * failure on this side (`domain` "local", `code` one of {@link FAILURES}).
 */
export class BlipError extends Error {
  constructor(domain, code, message, response = null) {
    super(message || `${domain} error ${code}`);
    this.name = "BlipError";
    this.domain = domain;
    this.code = code;
    /** The error response as it came, or null. */
    this.response = response;
  }
}
