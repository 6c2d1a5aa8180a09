// Properties: texts, each ended by a NUL, key and value in turn.

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Encodes [key, value] pairs; throws a TypeError if a text cannot be sent. */
export function encodeProperties(pairs) {
  let text = "";
  for (const [key, value] of pairs) {
    for (const part of [key, value]) {
      if (typeof part !== "string") throw new TypeError(`The property ${JSON.stringify(String(key))} is not a string.`);
      if (part.includes("\0")) throw new TypeError(`The property ${JSON.stringify(key)} contains a NUL.`);
      text += part + "\0";
    }
  }
  return encoder.encode(text);
}

/** Decodes a block of properties into a Map, in which the first of two like keys counts; null if it is malformed. */
export function decodeProperties(bytes) {
  if (bytes.length === 0) return new Map();
  if (bytes[bytes.length - 1] !== 0) return null;
  let texts;
  try {
    texts = decoder.decode(bytes.subarray(0, bytes.length - 1)).split("\0");
  } catch {
    return null;
  }
  if (texts.length % 2 !== 0) return null;
  const result = new Map();
  for (let index = 0; index < texts.length; index += 2) {
    if (!result.has(texts[index])) result.set(texts[index], texts[index + 1]);
  }
  return result;
}
