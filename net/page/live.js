// A running answer, assembled from its chunks: text, reasoning and calls as far as they have come. Pure.
//
// Chunks arrive on a stream of their own, beside that of all other records, so either may be ahead: chunks behind a request that is
// not known yet are kept for it, and those of an attempt that is over are dropped.

export class LiveAnswer {
  constructor() {
    this.request = null;
    this.early = [];
    this.over = -1;
    this.clear();
  }

  clear() {
    this.blocks = new Map();
    this.chunks = 0;
    this.first = null;
  }

  /** Hear of a record that is no chunk. */
  apply(record) {
    if (record.type === "request/sent") {
      this.request = record;
      this.clear();
      const early = this.early.filter((chunk) => chunk.seq > record.seq);
      this.early = [];
      for (const chunk of early) this.chunk(chunk);
    } else if (
      record.type === "request/failed" ||
      record.type === "assistant/message" ||
      record.type === "step/end" ||
      record.type === "turn/end"
    ) {
      this.request = null;
      this.over = record.seq;
      this.early = this.early.filter((chunk) => chunk.seq > record.seq);
      this.clear();
    }
  }

  /** Take in a chunk. */
  chunk(record) {
    if (record.seq < this.over) return;
    if (
      !this.request ||
      record.seq < this.request.seq ||
      record.step !== this.request.step ||
      record.turn !== this.request.turn
    ) {
      this.early.push(record);
      return;
    }
    this.chunks += 1;
    this.first ??= record.time;
    const { chunk } = record;
    if (chunk.kind === "block-start") this.block(chunk.index, chunk.block);
    else if (chunk.kind === "text-delta") this.block(chunk.index, { type: "text" }).text += chunk.text;
    else if (chunk.kind === "reasoning-delta") this.block(chunk.index, { type: "reasoning" }).text += chunk.text;
    else if (chunk.kind === "tool-call-delta") {
      const call = this.block(chunk.index, { type: "tool-call" });
      call.name ||= chunk.name ?? "";
      call.arguments += chunk.arguments ?? "";
    }
  }

  block(index, shape) {
    if (!this.blocks.has(index))
      this.blocks.set(index, {
        type: shape.type,
        text: shape.text ?? "",
        name: shape.name ?? "",
        arguments: shape.arguments ?? "",
      });
    return this.blocks.get(index);
  }

  /** The blocks in order. */
  get content() {
    return [...this.blocks].sort((a, b) => a[0] - b[0]).map(([, block]) => block);
  }
}
