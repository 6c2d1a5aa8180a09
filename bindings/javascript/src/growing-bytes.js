/** Bytes that come in pieces, in one place: many small pieces take no more memory than one large one. */
export class GrowingBytes {
  #memory = new Uint8Array(0);
  size = 0;

  append(piece) {
    const size = this.size + piece.length;
    if (size > this.#memory.length) {
      const larger = new Uint8Array(this.size === 0 ? size : Math.max(size, 2 * this.size));
      larger.set(this.#memory.subarray(0, this.size));
      this.#memory = larger;
    }
    this.#memory.set(piece, this.size);
    this.size = size;
  }

  /** Gives all away. */
  take() {
    const memory = this.#memory;
    const bytes = memory.length === this.size ? memory : memory.slice(0, this.size);
    this.#memory = new Uint8Array(0);
    this.size = 0;
    return bytes;
  }
}
