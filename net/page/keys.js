// Single keys, wherever the focus is, but not where a person types. They can be switched off, for those whose tools type by themselves.

import { kept } from "./dom.js";

const TYPING = "input, textarea, select, [contenteditable]";

export class Keys {
  constructor(page) {
    this.page = page;
    this.on = kept.get("keys", "on") === "on";
    addEventListener("keydown", (event) => this.press(event));
  }

  set(on) {
    this.on = on;
    kept.set("keys", on ? "on" : "off");
  }

  press(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") return this.escape(event);
    if (!this.on || event.target.closest?.(TYPING)) return;
    const act = this.acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  escape(event) {
    if (event.target.closest?.(TYPING)) event.target.blur();
    else this.page.back();
  }

  get acts() {
    const { page } = this,
      { agents, agent } = page;
    const list = () =>
      document.activeElement?.closest(".agents") || agent.id === null
        ? agents.list
        : agent.view === 4
          ? agent.records
          : agent.timeline.list;
    const move = (by) => () => (list().element.focus(), list().move(by));
    const along = (key) => () => {
      const it = list(),
        item = it.items[it.place(it.at)];
      if (item) it.keys?.(key, item);
    };
    const view = (at) => () => agent.id !== null && agent.pick(at);
    return {
      "/": () => (page.look("agents"), agents.search.focus(), agents.search.select()),
      j: move(1),
      k: move(-1),
      h: along("h"),
      l: along("l"),
      Enter: () => list().enter(),
      g: () => (page.look("agents"), agents.list.element.focus()),
      t: () => (page.look("agent"), agent.pick(0), agent.timeline.element.focus()),
      d: () => (page.look("details"), document.querySelector("#details h2")?.focus()),
      1: view(0),
      2: view(1),
      3: view(2),
      4: view(3),
      5: view(4),
      o: () => agent.timeline.all(true),
      O: () => agent.timeline.all(false),
      r: () => page.request(),
      m: () => agent.id !== null && agent.composer.text.focus(),
      x: () => agent.id !== null && agent.heading.element.querySelector("button[aria-keyshortcuts=x]:not([disabled])")?.click(),
      f: () => agent.id !== null && page.fork(),
      a: () => page.questions.show(),
      c: () => page.turnTheme(),
      "?": () => page.help(),
    };
  }
}
