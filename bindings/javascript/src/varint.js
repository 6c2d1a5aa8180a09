// Unsigned LEB128 as BLIP uses it. Numbers stay below 2^53, which no count of bytes or messages reaches.

/** The longest varint that is accepted, in bytes. */
export const MAX_VARINT = 10;

/** Reads a varint at `offset`; returns [value, next offset], or null if it is cut off or too large. */
export function readVarint(bytes, offset) {
  let value = 0;
  let factor = 1;
  for (let index = 0; index < MAX_VARINT; index++) {
    const byte = bytes[offset + index];
    if (byte === undefined) return null;
    value += (byte & 0x7f) * factor;
    if (value > Number.MAX_SAFE_INTEGER) return null;
    if (byte < 0x80) return [value, offset + index + 1];
    factor *= 128;
  }
  return null;
}

/** How many bytes `value` takes. */
export function varintSize(value) {
  let size = 1;
  while (value >= 128) {
    value = Math.floor(value / 128);
    size++;
  }
  return size;
}

/** Writes a varint at `offset`; returns the next offset. */
export function writeVarint(bytes, offset, value) {
  while (value >= 128) {
    bytes[offset++] = (value % 128) | 0x80;
    value = Math.floor(value / 128);
  }
  bytes[offset++] = value;
  return offset;
}
