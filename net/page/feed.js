// One agent's log as it comes: all records but chunks on one stream, the chunks of a running answer on another. Of a long log the end
// is read first; what is before it comes when it is asked for.

import { Timeline } from "./fold.js";
import { LiveAnswer } from "./live.js";
import { blobsIn } from "./media.js";
import { CHUNK, TYPES } from "./vocabulary.js";

export const AT_ONCE = 50_000;
const AROUND = 1000;

export class Feed {
  /** At least from a little before the record `wanted` on, if there is one. `changed(what)` hears of "records", "live", "caught-up" and "ended". */
  constructor(link, id, changed, { atOnce = AT_ONCE, wanted = null } = {}) {
    Object.assign(this, {
      link,
      id,
      changed,
      atOnce,
      wanted,
      records: [],
      blobs: new Map(),
      timeline: new Timeline(),
      live: new LiveAnswer(),
      begin: 0,
      head: -1,
      upto: -1,
      caughtUp: false,
      error: null,
      closed: false,
    });
  }

  async open() {
    try {
      const { agents } = await this.link.call("agents", { prefix: this.id, limit: 1 });
      const found = agents[0]?.id === this.id ? agents[0] : await this.link.call("get", { agent: this.id });
      this.head = found.head ?? -1;
    } catch (error) {
      return this.end(error);
    }
    if (this.closed) return;
    this.begin = Math.max(0, this.head + 1 - this.atOnce);
    if (this.wanted !== null) this.begin = Math.max(0, Math.min(this.begin, this.wanted - AROUND));
    this.stream = this.link.follow(
      { agent: this.id, after: this.begin - 1, types: TYPES },
      { records: (records, place) => this.take(records, place), ended: (error) => this.end(error) },
    );
  }

  close() {
    this.closed = true;
    this.stream?.close();
    this.chunks?.close();
  }

  end(error) {
    if (this.closed) return;
    this.error = error;
    this.changed("ended");
  }

  take(records, { upto, head }) {
    Object.assign(this, { upto, head });
    for (const record of records) this.apply(record);
    if (!this.caughtUp && upto >= head) {
      this.caughtUp = true;
      const after = this.live.request ? this.live.request.seq : upto;
      this.chunks = this.link.follow({ agent: this.id, after, types: [CHUNK] }, { records: (chunks) => this.takeChunks(chunks) });
      this.changed("caught-up");
    } else this.changed("records");
  }

  apply(record) {
    this.records.push(record);
    this.note(record);
    this.timeline.apply(record);
    this.live.apply(record);
  }

  /** A record that tells of a blob is what that is asked for by. */
  note(record) {
    for (const digest of blobsIn(record)) this.blobs.set(digest, record.seq);
  }

  takeChunks(records) {
    for (const record of records) this.live.chunk(record);
    this.changed("live");
  }

  /** Read what is before the part that is known, as much again. */
  async earlier() {
    const from = Math.max(0, this.begin - this.atOnce),
      upto = this.begin - 1,
      found = [];
    for (let after = from - 1; after < upto;) {
      const page = await this.link.call("read", { agent: this.id, after, upto, types: TYPES });
      found.push(...page.records);
      after = page.more ? page.upto : upto;
    }
    for (const record of found) this.note(record);
    this.begin = from;
    this.records = [...found, ...this.records];
    this.timeline = new Timeline();
    for (const record of this.records) this.timeline.apply(record);
    this.changed("records");
  }
}
