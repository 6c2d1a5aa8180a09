// Raw deflate (RFC 1951), decompressing. A connection has one stream for all its compressed frames, and each frame ends
// on a block's border. DecompressionStream cannot say where the output of one frame ends, hence this.

const WINDOW = 32768;
const LENGTH_BASE = [
  3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258,
];
const LENGTH_EXTRA = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCE_BASE = [
  1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145,
  8193, 12289, 16385, 24577,
];
const DISTANCE_EXTRA = [
  0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13,
];
const CODE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const MAX_BITS = 15;
/** Longer codes are rare, and a table for them would cost far more than the bytes that describe it. */
const TABLE_BITS = 9;

/** What is wrong with compressed bytes. */
export class InflateError extends Error {}

/**
 * A Huffman code (RFC 1951 §3.2.2): a table that gives for the next bits the symbol and its length, and for longer codes
 * the symbols in the order of their codes.
 */
class Code {
  constructor(lengths) {
    const counts = new Uint16Array(MAX_BITS + 1);
    for (const length of lengths) counts[length]++;
    counts[0] = 0;
    this.bits = MAX_BITS;
    while (this.bits > 1 && counts[this.bits] === 0) this.bits--;
    // By length: the first code, and the place of its symbol among all.
    const first = new Uint16Array(MAX_BITS + 2);
    const place = new Uint16Array(MAX_BITS + 2);
    let left = 1;
    for (let length = 1; length <= MAX_BITS; length++) {
      left = left * 2 - counts[length];
      if (left < 0) throw new InflateError("a Huffman code has too many symbols");
      first[length + 1] = (first[length] + counts[length]) << 1;
      place[length + 1] = place[length] + counts[length];
    }
    this.counts = counts;
    this.first = first;
    this.place = place;
    this.symbols = new Uint16Array(lengths.length);
    this.tableBits = Math.min(this.bits, TABLE_BITS);
    this.table = new Uint16Array(1 << this.tableBits);
    const next = first.slice();
    for (let symbol = 0; symbol < lengths.length; symbol++) {
      const length = lengths[symbol];
      if (length === 0) continue;
      let code = next[length]++;
      this.symbols[place[length] + code - first[length]] = symbol;
      if (length > this.tableBits) continue;
      let reversed = 0;
      for (let bit = 0; bit < length; bit++, code >>= 1) reversed = (reversed << 1) | (code & 1);
      for (let index = reversed; index < this.table.length; index += 1 << length) {
        this.table[index] = (symbol << 4) | length;
      }
    }
  }

  /** The symbol and its length, as in the table, of a code that is too long for it; 0: there is none. */
  find(bits) {
    let code = 0;
    for (let length = 1; length <= this.bits; length++) {
      code = (code << 1) | ((bits >>> (length - 1)) & 1);
      const index = code - this.first[length];
      if (index < this.counts[length]) return (this.symbols[this.place[length] + index] << 4) | length;
    }
    return 0;
  }
}

const FIXED_LITERALS = new Code(
  Uint8Array.from({ length: 288 }, (_, symbol) => (symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8)),
);
const FIXED_DISTANCES = new Code(new Uint8Array(30).fill(5));

export class Inflater {
  #output = new Uint8Array(2 * WINDOW);
  #end = 0;
  #input = new Uint8Array(0);
  #position = 0;
  #bits = 0;
  #bitCount = 0;
  #limit = 0;

  /**
   * Decompresses whole blocks, which may refer to what came before.
   *
   * @param {Uint8Array} input the bytes of one frame, with the four that a flush ends with
   * @param {number} maximum how many bytes may come out
   * @returns {Uint8Array} the bytes; yours
   */
  inflate(input, maximum) {
    if (this.#end > WINDOW) {
      this.#output.copyWithin(0, this.#end - WINDOW, this.#end);
      this.#end = WINDOW;
    }
    const start = this.#end;
    this.#limit = start + maximum;
    this.#input = input;
    this.#position = 0;
    this.#bits = 0;
    this.#bitCount = 0;
    while (this.#position < input.length) this.#block();
    const result = this.#output.slice(start, this.#end);
    if (this.#output.length > 16 * WINDOW) {
      const kept = this.#output.subarray(Math.max(0, this.#end - WINDOW), this.#end);
      this.#output = new Uint8Array(2 * WINDOW);
      this.#output.set(kept);
      this.#end = kept.length;
    }
    return result;
  }

  #block() {
    if (this.#take(1) === 1) throw new InflateError("the compressed stream ends");
    switch (this.#take(2)) {
      case 0:
        return this.#stored();
      case 1:
        return this.#compressed(FIXED_LITERALS, FIXED_DISTANCES);
      case 2:
        return this.#dynamic();
      default:
        throw new InflateError("unknown block type");
    }
  }

  #stored() {
    // The rest of the byte is skipped; whole bytes that were taken in advance are given back.
    this.#position -= this.#bitCount >> 3;
    this.#bits = 0;
    this.#bitCount = 0;
    const input = this.#input;
    const at = this.#position;
    if (at + 4 > input.length) throw new InflateError("a stored block is cut off");
    const size = input[at] | (input[at + 1] << 8);
    if ((size ^ 0xffff) !== (input[at + 2] | (input[at + 3] << 8))) throw new InflateError("invalid stored block lengths");
    if (at + 4 + size > input.length) throw new InflateError("a stored block is cut off");
    this.#reserve(size);
    this.#output.set(input.subarray(at + 4, at + 4 + size), this.#end);
    this.#end += size;
    this.#position = at + 4 + size;
  }

  #dynamic() {
    const literals = this.#take(5) + 257;
    const distances = this.#take(5) + 1;
    const codes = this.#take(4) + 4;
    if (literals > 286 || distances > 30) throw new InflateError("too many symbols");
    const lengths = new Uint8Array(19);
    for (let index = 0; index < codes; index++) lengths[CODE_ORDER[index]] = this.#take(3);
    const code = new Code(lengths);
    const all = new Uint8Array(literals + distances);
    for (let index = 0; index < all.length; ) {
      const symbol = this.#symbol(code);
      if (symbol < 16) {
        all[index++] = symbol;
        continue;
      }
      const [value, count] =
        symbol === 16
          ? [index > 0 ? all[index - 1] : -1, 3 + this.#take(2)]
          : symbol === 17
            ? [0, 3 + this.#take(3)]
            : [0, 11 + this.#take(7)];
      if (value < 0 || index + count > all.length) throw new InflateError("invalid code lengths");
      all.fill(value, index, index + count);
      index += count;
    }
    if (all[256] === 0) throw new InflateError("a block without an end");
    this.#compressed(new Code(all.subarray(0, literals)), new Code(all.subarray(literals)));
  }

  #compressed(literals, distances) {
    for (;;) {
      const symbol = this.#symbol(literals);
      if (symbol < 256) {
        if (this.#end >= this.#output.length || this.#end >= this.#limit) this.#reserve(1);
        this.#output[this.#end++] = symbol;
        continue;
      }
      if (symbol === 256) return;
      if (symbol > 285) throw new InflateError("invalid length");
      const size = LENGTH_BASE[symbol - 257] + this.#take(LENGTH_EXTRA[symbol - 257]);
      const code = this.#symbol(distances);
      if (code > 29) throw new InflateError("invalid distance");
      const distance = DISTANCE_BASE[code] + this.#take(DISTANCE_EXTRA[code]);
      if (distance > this.#end) throw new InflateError("a distance reaches before the beginning");
      this.#reserve(size);
      const output = this.#output;
      let to = this.#end;
      if (distance >= size) {
        output.copyWithin(to, to - distance, to - distance + size);
      } else {
        for (const end = to + size; to < end; to++) output[to] = output[to - distance];
      }
      this.#end += size;
    }
  }

  #symbol(code) {
    const input = this.#input;
    while (this.#bitCount < code.bits && this.#position < input.length) {
      this.#bits |= input[this.#position++] << this.#bitCount;
      this.#bitCount += 8;
    }
    const entry = code.table[this.#bits & ((1 << code.tableBits) - 1)] || code.find(this.#bits);
    const length = entry & 15;
    if (length === 0) throw new InflateError("invalid Huffman code");
    if (length > this.#bitCount) throw new InflateError("the compressed bytes are cut off");
    this.#bits >>>= length;
    this.#bitCount -= length;
    return entry >> 4;
  }

  #take(count) {
    while (this.#bitCount < count) {
      if (this.#position >= this.#input.length) throw new InflateError("the compressed bytes are cut off");
      this.#bits |= this.#input[this.#position++] << this.#bitCount;
      this.#bitCount += 8;
    }
    const value = this.#bits & ((1 << count) - 1);
    this.#bits >>>= count;
    this.#bitCount -= count;
    return value;
  }

  #reserve(size) {
    if (this.#end + size > this.#limit) throw new InflateError("more comes out than is allowed");
    if (this.#end + size <= this.#output.length) return;
    const larger = new Uint8Array(Math.max(2 * this.#output.length, this.#end + size));
    larger.set(this.#output.subarray(0, this.#end));
    this.#output = larger;
  }
}
