// What happens now in an open turn: the answer as it streams, the tools that run, the question that waits.

import { card } from "./approvals.js";
import { fill, h } from "./dom.js";
import { agentLink } from "./texts.js";
import { duration, line, plain } from "./words.js";

const TAIL = 6000;

export class NowPanel {
  constructor(page) {
    this.page = page;
    this.questions = new Map();
    this.answer = h("div.answer-live", { "aria-live": "off" });
    this.busy = h("ul.busy");
    this.asked = h("div.asked");
    this.element = h("section.now", { "aria-label": "Now" }, this.asked, this.answer, this.busy);
    this.ticking = setInterval(() => this.feed && this.running(), 500);
  }

  close() {
    clearInterval(this.ticking);
  }

  /** Show the agent that is fed from here on. */
  show(feed) {
    this.feed = feed;
    this.questions.clear();
    fill(this.asked);
    this.draw();
  }

  draw() {
    if (!this.feed) return;
    this.stream();
    this.running();
    this.ask();
    this.element.hidden = !this.feed.timeline.open || !(this.answer.firstChild || this.busy.firstChild || this.asked.firstChild);
  }

  stream() {
    const { live, timeline } = this.feed;
    if (!timeline.open || !live.request) return fill(this.answer);
    const stuck = this.answer.scrollTop + this.answer.clientHeight >= this.answer.scrollHeight - 24;
    const parts = live.content.map((block) => this.part(block));
    const took = duration(Date.now() - live.request.time);
    fill(
      this.answer,
      h(
        "p.meta",
        {},
        h("span.pulse", { "aria-hidden": "true" }),
        live.chunks ? "Answering" : "Waiting for the model",
        live.request.attempt > 1 ? `, try ${live.request.attempt}` : "",
        ` · ${took}`,
      ),
      parts,
    );
    if (stuck) this.answer.scrollTop = this.answer.scrollHeight;
  }

  // Of a long answer the end is enough to see it run; the whole of it is in the log as soon as it is done.
  part(block) {
    const tail = (text) => plain(text.length > TAIL ? `…${text.slice(-TAIL)}` : text);
    if (block.type === "tool-call")
      return h(
        "div.call",
        {},
        h("span.tag", {}, "Call"),
        " ",
        h("code", {}, plain(block.name)),
        h("pre.code", {}, tail(block.arguments)),
      );
    if (block.type === "reasoning")
      return h("div.reasoning", {}, h("span.tag", {}, "Reasoning"), h("div.prose.quiet", { dir: "auto" }, tail(block.text)));
    return h("div.prose", { dir: "auto" }, tail(block.text));
  }

  running() {
    const found = [];
    const look = (nodes) => {
      for (const node of nodes) {
        if (
          node.end === null &&
          (node.kind === "child" ||
            (node.kind === "tool" && node.name !== null && !node.nodes.some((below) => below.kind === "child")))
        )
          found.push(this.item(node));
        if (node.end === null) look(node.nodes);
      }
    };
    if (this.feed.timeline.open && this.feed.timeline.turn) look([this.feed.timeline.turn]);
    fill(this.busy, found);
  }

  item(node) {
    const what =
      node.kind === "child"
        ? [h("span.tag", {}, "Child"), " ", agentLink(node.child)]
        : [
            h("span.tag", {}, "Tool"),
            " ",
            h("code", {}, plain(node.name)),
            h("span.aside", {}, line(node.effective ?? node.arguments, 90)),
          ];
    return h(
      "li",
      {},
      h("span.pulse", { "aria-hidden": "true" }),
      what,
      h("span.took", {}, duration(Math.max(0, Date.now() - node.start))),
    );
  }

  // Cards hold what a person is typing, so one that is there already stays.
  ask() {
    const open = this.feed.timeline.questions;
    for (const [id, element] of this.questions) if (!open.has(id)) (element.remove(), this.questions.delete(id));
    for (const [id, node] of open) {
      if (this.questions.has(id)) continue;
      const { tool } = node;
      const question = {
        id,
        agent: this.feed.id,
        tool: tool.name ?? tool.asked ?? "",
        arguments: tool.effective ?? tool.arguments ?? "",
        question: node.question,
        asked: new Date(node.start).toISOString(),
        expires: node.expires ? new Date(node.expires).toISOString() : null,
      };
      const element = card(question, { link: this.page.link, may: this.page.may("admin"), named: false });
      this.questions.set(id, element);
      this.asked.append(element);
    }
  }
}
