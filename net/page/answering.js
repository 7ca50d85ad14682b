// A running answer as elements that grow: each block keeps its element and each text its node, so that a reader may mark and copy a
// part of it while the rest still comes.

import { fill, h } from "./dom.js";
import { duration, plain } from "./words.js";

const TAIL = 6000;
const NEAR_END = 24;

export class AnswerView {
  constructor() {
    this.meta = document.createTextNode("");
    this.head = h("p.meta", {}, h("span.pulse", { "aria-hidden": "true" }), this.meta);
    this.element = h("div.answer-live", { "aria-live": "off" });
    this.parts = [];
    this.request = null;
  }

  /** Whether there is anything to see. */
  get empty() {
    return this.request === null;
  }

  /** Draw a live answer as far as it has come; null for none. */
  draw(live) {
    const request = live?.request ?? null;
    if (request?.seq !== this.request?.seq) {
      this.parts = [];
      fill(this.element, request && this.head);
    }
    this.request = request;
    if (!request) return;
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    const stuck = scrollTop + clientHeight >= scrollHeight - NEAR_END;
    const doing = live.chunks ? "Answering" : "Waiting for the model";
    set(this.meta, `${doing}${request.attempt > 1 ? `, try ${request.attempt}` : ""} · ${duration(Date.now() - request.time)}`);
    live.content.forEach((block, at) => this.block(block, at));
    if (stuck) this.element.scrollTop = this.element.scrollHeight;
  }

  block(block, at) {
    if (this.parts[at]?.type !== block.type) {
      const part = make(block.type);
      if (this.parts[at]) this.parts[at].element.replaceWith(part.element);
      else this.element.append(part.element);
      this.parts[at] = part;
    }
    const part = this.parts[at];
    if (part.name) set(part.name, plain(block.name));
    // Of a long answer the end is enough to see it run; the whole of it is in the log as soon as it is done.
    const text = block.type === "tool-call" ? block.arguments : block.text;
    set(part.text, plain(text.length > TAIL ? `…${text.slice(-TAIL)}` : text));
  }
}

function set(node, text) {
  if (node.data === text) return;
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
}

function make(type) {
  const text = document.createTextNode(""),
    name = type === "tool-call" ? document.createTextNode("") : null;
  const element =
    type === "tool-call"
      ? h("div.call", {}, h("span.tag", {}, "Call"), " ", h("code", {}, name), h("pre.code", {}, text))
      : type === "reasoning"
        ? h("div.reasoning", {}, h("span.tag", {}, "Reasoning"), h("div.prose.quiet", { dir: "auto" }, text))
        : h("div.prose", { dir: "auto" }, text);
  return { type, element, text, name };
}
