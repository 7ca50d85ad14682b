// The connection: JSON-RPC over one WebSocket (docs/protocol.md), which comes back by itself. A stream goes on behind the last seq it
// gave out; a call that may be repeated is sent again; one that might happen twice says so instead.

const SUBPROTOCOL = "callboard.v1";
const WINDOW = 4;
const FIRST_MS = 250;
const LONGEST_MS = 8000;
const ONCE = new Set(["withdraw", "replace", "cancel", "cancel_timer", "fork", "answer", "dispose", "delete"]);

/** An error that the service answered with, or that the connection caused. `kinds` are the classes it belongs to. */
export class CallError extends Error {
  constructor(message, data = {}) {
    super(message);
    this.kinds = [data.error ?? "Disconnected", ...(data.kinds ?? [])];
    this.data = data;
  }
}

/** A stream of one agent's records; `after` is the last seq that was dealt with. */
class Stream {
  constructor(link, number, params, heard) {
    Object.assign(this, { link, number, params, heard, after: params.after, frames: 0 });
  }

  open() {
    this.frames = 0;
    this.link.send(
      "follow",
      { ...this.params, after: this.after, stream: this.number, window: WINDOW },
      {
        done: () => {},
        failed: (error) => this.end(error),
      },
    );
  }

  take({ records, upto, head }) {
    this.after = upto;
    this.frames += 1;
    this.heard.records(records, { upto, head });
    this.link.note("ack", { stream: this.number, frames: this.frames });
  }

  end(error) {
    this.link.streams.delete(this.number);
    this.heard.ended?.(error);
  }

  close() {
    if (this.link.streams.delete(this.number))
      this.link.send("unfollow", { stream: this.number }, { done: () => {}, failed: () => {} });
  }
}

export class Link {
  /** `told(state, detail)` hears "open" (with the service's hello), "lost" and "refused". */
  constructor(url, told) {
    Object.assign(this, {
      url,
      told,
      socket: null,
      hello: null,
      waiting: new Map(),
      streams: new Map(),
      numbers: 0,
      opens: 0,
      delay: FIRST_MS,
      timer: 0,
    });
  }

  connect() {
    clearTimeout(this.timer);
    const socket = (this.socket = new WebSocket(this.url, [SUBPROTOCOL]));
    socket.onmessage = (event) => this.receive(JSON.parse(event.data));
    socket.onclose = (event) => socket === this.socket && this.lost(event);
  }

  /** Ask, and wait for the answer; while the connection is away, that of a repeatable call waits with it. */
  call(method, params = {}) {
    return new Promise((done, failed) => this.send(method, params, { done, failed }));
  }

  /** Follow an agent: `heard.records(records, {upto, head})`, and `heard.ended(error)` when there will be no more. */
  follow(params, heard) {
    const stream = new Stream(this, ++this.numbers, params, heard);
    this.streams.set(stream.number, stream);
    if (this.hello) stream.open();
    return stream;
  }

  send(method, params, waiter) {
    const id = ++this.numbers;
    this.waiting.set(id, { method, params, ...waiter });
    if (this.hello) this.transmit({ id, method, params });
  }

  note(method, params) {
    if (this.hello) this.transmit({ method, params });
  }

  transmit(message) {
    this.socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  }

  receive({ id, method, params, result, error }) {
    if (method === "hello") this.opened(params);
    else if (method === "records") this.streams.get(params.stream)?.take(params);
    else if (method === "ended") this.streams.get(params.stream)?.end(new CallError(params.error.message, params.error.data));
    else if (error) this.settle(id, (waiter) => waiter.failed(new CallError(error.message, error.data)));
    else this.settle(id, (waiter) => waiter.done(result));
  }

  settle(id, with_) {
    const waiter = this.waiting.get(id);
    this.waiting.delete(id);
    if (waiter) with_(waiter);
  }

  opened(hello) {
    this.hello = hello;
    this.opens += 1;
    this.delay = FIRST_MS;
    for (const [id, { method, params }] of this.waiting) this.transmit({ id, method, params });
    for (const stream of this.streams.values()) stream.open();
    this.told("open", hello);
  }

  lost(event) {
    const was = this.hello;
    this.hello = null;
    for (const [id, { method, failed }] of this.waiting) {
      if (method === "follow" || method === "unfollow")
        this.waiting.delete(id); // opened anew
      else if (was && ONCE.has(method)) {
        this.waiting.delete(id);
        failed(
          new CallError(
            `The connection broke before the answer to ${method} came. Look whether it happened before you do it again.`,
          ),
        );
      }
    }
    this.told(was ? "lost" : "refused", event);
    this.timer = setTimeout(() => this.connect(), this.delay * (0.5 + Math.random() / 2));
    this.delay = Math.min(this.delay * 2, LONGEST_MS);
  }

  /** Measures what calls cost: gives the milliseconds since now, or 0 if the connection was away meanwhile. */
  stopwatch() {
    const { opens } = this,
      began = performance.now();
    return () => (opens === this.opens ? performance.now() - began : 0);
  }

  /** Try now instead of when the wait is over. */
  hurry() {
    if (!this.hello && this.socket?.readyState !== WebSocket.CONNECTING) this.connect();
  }
}
