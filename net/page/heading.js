// The head of an agent's pane: who it is, what it spent, what it waits for and how long already, and the buttons that act on it.

import { resume, stop } from "./actions.js";
import { fill, h } from "./dom.js";
import { sum } from "./fold.js";
import { agentLink, ident } from "./texts.js";
import { counted, plain, short, spent, total, waits } from "./words.js";

export class Heading {
  constructor(page) {
    this.page = page;
    this.waiting = [];
    this.waits = h("p.waits");
    this.element = h("header.agent-head");
    setInterval(() => document.hidden || this.drawWaits(), 1000);
  }

  /** Draw what is known of an agent: `info` as the service told it last, and the feed of its log. */
  draw(id, info, feed) {
    const { page } = this,
      { timeline } = feed,
      status = info?.status ?? (timeline.open ? "running" : "idle"),
      usage = sum(info?.usage ?? timeline.usage, timeline.open ? timeline.turn.tokens : null);
    const folded = [timeline.identity?.source, timeline.open, timeline.family, total(usage)];
    const stamp = JSON.stringify([id, info, status, folded, page.may("send")]);
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    this.waiting = (info?.waits ?? []).filter((wait) => status === "running" || wait.kind !== "commit");
    fill(
      this.element,
      h("button.quiet.back", { type: "button", onclick: () => page.back() }, "‹ Agents"),
      h("div.title", {}, h("h2", { tabIndex: -1 }, this.dot(status), ident(id))),
      this.buttons(id, info, status, timeline),
      this.facts(info, usage, timeline),
      this.waits,
    );
    this.drawWaits();
  }

  dot(status) {
    const asked = status === "running" && this.waiting.some((wait) => wait.kind === "approval");
    return h("span.dot", { class: asked ? "waiting" : status, role: "img", "aria-label": status });
  }

  buttons(id, info, status, timeline) {
    const { page } = this,
      may = page.may("send"),
      running = status === "running",
      still = timeline.identity?.source && timeline.open && running && !info?.waits?.length;
    const button = (name, act, disabled, key = null) =>
      h("button", { type: "button", disabled, onclick: act, "aria-keyshortcuts": key }, name);
    return h(
      "div.buttons",
      {},
      button("Stop", () => stop(page, id), !may || !running, "x"),
      still && button("Take up", () => resume(page, id), !may),
      button("Fork", () => page.fork(), !may, "f"),
    );
  }

  facts(info, usage, timeline) {
    const kin = timeline.identity?.source;
    const parts = [
      info?.definition && plain(info.definition),
      info?.turn ? `turn ${info.turn}` : "no turn yet",
      h("span", { title: spent(usage) }, `${short(total(usage))} tokens${timeline.family ? " with its children" : ""}`),
      info?.pending && counted(info.pending, "message waits", "messages wait"),
      info?.parent && ["child of ", agentLink(info.parent)],
      kin && ["fork of ", agentLink(kin)],
    ];
    const labels = Object.entries(info?.labels ?? {});
    return h(
      "p.sub",
      {},
      parts.filter(Boolean).map((part, n) => [n ? " · " : "", part]),
      labels.map(([name, value]) => [" ", h("span.label-tag", {}, plain(`${name}=${value}`))]),
    );
  }

  drawWaits() {
    this.waits.hidden = !this.waiting.length;
    const line = (wait) => h("span", { class: wait.kind === "approval" ? "asked" : "" }, plain(waits(wait, Date.now())));
    fill(this.waits, this.waiting.map(line));
  }
}
