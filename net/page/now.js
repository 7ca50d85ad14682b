// What happens now in an open turn: the answer as it streams, the tools that run, the question that waits.

import { AnswerView } from "./answering.js";
import { card } from "./approvals.js";
import { fill, h } from "./dom.js";
import { agentLink } from "./texts.js";
import { duration, line, plain } from "./words.js";

export class NowPanel {
  constructor(page) {
    this.page = page;
    this.questions = new Map();
    this.answer = new AnswerView();
    this.busy = h("ul.busy");
    this.asked = h("div.asked");
    this.element = h("section.now", { "aria-label": "Now" }, this.asked, this.answer.element, this.busy);
    this.ticking = setInterval(() => this.tick(), 500);
  }

  close() {
    clearInterval(this.ticking);
  }

  tick() {
    if (!this.feed || document.hidden) return;
    this.stream();
    this.running();
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
    this.element.hidden = !this.feed.timeline.open || !(!this.answer.empty || this.busy.firstChild || this.asked.firstChild);
  }

  stream() {
    this.answer.draw(this.feed.timeline.open ? this.feed.live : null);
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
