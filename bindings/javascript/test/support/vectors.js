import { readFileSync } from "node:fs";

const folder = new URL("../../../../Tests/Vectors/", import.meta.url);

export const load = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8")).cases;
export const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"));
export const hex = (bytes) => Buffer.from(bytes).toString("hex");

/** The bytes that a vector's body stands for. */
export function bodyOf(body) {
  switch (body.kind) {
    case "hex":
      return unhex(body.hex);
    case "pattern":
      return Uint8Array.from({ length: body.size }, (_, index) => (index * body.step) & 0xff);
    case "text": {
      const unit = Buffer.from(body.text);
      return Uint8Array.from({ length: body.size }, (_, index) => unit[index % unit.length]);
    }
    default:
      throw new Error(`unknown body ${body.kind}`);
  }
}
