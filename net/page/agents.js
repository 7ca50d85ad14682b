// The pane of agents: search, filters, the tree. What is in view is asked for again and again, as seldom as its cost demands; pages
// come as the reader scrolls, so a hundred thousand agents cost what is looked at.

import { words } from "./dialog.js";
import { fill, h } from "./dom.js";
import { byId, query, Roster } from "./roster.js";
import { ident } from "./texts.js";
import { ago, full, plain, short, total, waitKind } from "./words.js";
import { VirtualList } from "./virtual.js";

const PAGE = 200;
const ROW = 46;
const REST_MS = 2000;
const COST = 20;
const SEARCHED = 20_000;
const FILTERS = [
  ["", "All"],
  ["is:running", "Running"],
  ["is:person", "Waiting for a person"],
  ["is:child", "Waiting for a child"],
  ["is:failed", "Failed"],
];

export class AgentsPane {
  constructor(page, element) {
    Object.assign(this, {
      page,
      roster: new Roster(),
      closed: new Set(),
      asked: {},
      busy: false,
      turn: 0,
      timer: 0,
      view: [0, 40],
      failed: null,
    });
    this.search = h("input", {
      type: "search",
      placeholder: "Search agents",
      "aria-label": "Search agents by a part of the id, a label (team=desk) or a state (is:running)",
      "aria-keyshortcuts": "/",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.typed(),
      onkeydown: (event) => this.keyed(event),
    });
    this.filter = h(
      "select",
      { "aria-label": "Which agents", onchange: () => this.filtered() },
      FILTERS.map(([value, label]) => h("option", { value }, label)),
    );
    this.count = h("p.count", { role: "status" });
    this.list = new VirtualList({
      height: ROW,
      label: "Agents",
      role: "tree",
      draw: (row) => this.draw(row),
      key: (row) => row.agent.id,
      stamp: (row) => `${row.agent.stamp} ${row.depth} ${row.children} ${row.closed} ${this.turn}`,
      level: (row) => row.depth,
      expanded: (row) => (row.children ? !row.closed : null),
      chosen: (row, how) => page.open(row.agent.id, { focus: how === "enter" }),
      keys: (key, row) => this.keys(key, row),
      seen: (from, to) => this.seen(from, to),
    });
    this.sofar = h("span");
    this.far = h("p.far", { hidden: true, role: "status" }, this.sofar, this.onward());
    this.empty = h("div.empty");
    fill(element, h("div.pane-head", {}, this.search, this.filter, this.count, this.far), this.list.element, this.empty);
    // Times ("3 min ago") are drawn anew now and then, whatever else happens.
    setInterval(() => ((this.turn += 1), this.list.later()), 30_000);
  }

  typed() {
    this.filter.value = FILTERS.find(([value]) => value && this.search.value.split(/\s+/).includes(value))?.[0] ?? "";
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.restart(), 180);
  }

  filtered() {
    const rest = this.search.value.split(/\s+/).filter((word) => word && !word.startsWith("is:"));
    this.search.value = [this.filter.value, ...rest].filter(Boolean).join(" ");
    this.restart();
  }

  keyed(event) {
    if (event.key === "Escape" && this.search.value) {
      this.search.value = "";
      this.typed();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      this.list.element.focus();
      if (this.list.place(this.list.at) < 0) this.list.move(1);
    } else return;
    event.preventDefault();
  }

  /** Begin anew, with what the search box says. */
  restart() {
    this.asked = query(this.search.value);
    this.failed = null;
    this.epoch = {};
    this.begun = false;
    this.searched = 0;
    this.swept = null;
    this.rest = SEARCHED;
    this.refresh(null);
  }

  /** The page behind `after` again, and then what is in view, after a rest. */
  async refresh(after) {
    clearTimeout(this.timer);
    const epoch = this.epoch,
      cost = this.page.link.stopwatch();
    this.busy = true;
    try {
      const answer = await this.page.link.call("agents", { ...this.asked, ...(after === null ? {} : { after }), limit: PAGE });
      if (epoch !== this.epoch) return;
      this.failed = null;
      // What was there stays until there is something else: no flicker, and the focus is not lost.
      if (!this.begun) {
        this.roster = new Roster();
        this.list.element.scrollTop = 0;
      }
      this.begun = true;
      const { agents, more = false, upto = agents.at(-1)?.id ?? null, looked = agents.length } = answer;
      if (after === this.roster.frontier) this.searched += looked;
      this.roster.merge(after, { agents, more, upto });
      this.swept = more ? upto : null;
    } catch (error) {
      if (epoch !== this.epoch) return;
      this.failed = words(error);
    }
    this.busy = false;
    this.show();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.again(), Math.max(REST_MS, cost() * COST));
    this.more();
  }

  /** What is in view, anew; a page that nobody sees is left alone. */
  again() {
    if (document.hidden) this.timer = setTimeout(() => this.again(), REST_MS);
    else this.refresh(this.sweeps() ? this.swept : this.before(this.view[0]));
  }

  /** Whether what is in view of a search goes on behind the page that was asked for last: then that part is next. */
  sweeps() {
    const last = this.list.items[Math.min(this.view[1], this.list.items.length) - 1];
    return Object.keys(this.asked).length > 0 && this.swept !== null && last !== undefined && byId(this.swept, last.agent.id) < 0;
  }

  /** The id behind which the page begins that holds the row at this place. */
  before(at) {
    const id = this.list.items[at]?.agent.id;
    const place = id === undefined ? 0 : this.roster.find(id);
    return place > 0 ? this.roster.known[place - 1].id : null;
  }

  seen(from, to) {
    this.view = [from, to];
    this.more();
  }

  more() {
    const { roster } = this;
    if (!this.busy && !roster.whole && roster.frontier !== null && this.view[1] > this.list.items.length - PAGE / 4 && !this.rests())
      this.refresh(roster.frontier);
  }

  /** A search for what is rare: so many agents were looked at that the reader is asked before it goes on. */
  rests() {
    return this.begun && !this.roster.whole && this.searched - this.roster.known.length >= this.rest;
  }

  onward() {
    return h("button", { type: "button", onclick: () => this.goOn() }, "Search on");
  }

  goOn() {
    this.rest = this.searched - this.roster.known.length + SEARCHED;
    this.show();
    this.more();
  }

  show() {
    const searching = Object.keys(this.asked).length > 0;
    this.list.show(searching ? this.roster.flat() : this.roster.tree(this.closed));
    const count = this.roster.known.length;
    this.count.textContent = `${full(count)}${this.roster.whole ? "" : "+"} ${count === 1 ? "agent" : "agents"}`;
    this.sofar.textContent = `Among the first ${full(this.searched)}.`;
    this.far.hidden = count === 0 || !this.rests();
    this.list.element.hidden = count === 0;
    fill(this.empty, count ? null : this.why(searching));
    this.empty.hidden = count > 0;
    this.page.heard(this.roster);
  }

  why(searching) {
    if (this.failed)
      return [h("p", { class: "bad" }, this.failed), h("button", { type: "button", onclick: () => this.restart() }, "Try again")];
    if (this.rests()) return [h("p", {}, `No agent fits among the first ${full(this.searched)}.`), this.onward()];
    if (!this.roster.whole) return h("p.loading", {}, searching ? `Searching… ${full(this.searched)} so far` : "Reading the index…");
    if (searching)
      return [
        h("p", {}, "No agent fits."),
        h("p.hint", {}, "Search by a part of the id or of the definition's name, by a label as team=desk, or by is:running."),
      ];
    return [
      h("p", {}, "No agents yet."),
      h("p.hint", {}, "An agent is here from its first message on: spawn one with a client, or with callboard run."),
    ];
  }

  keys(key, row) {
    const shut = { ArrowLeft: true, h: true, ArrowRight: false, l: false }[key];
    if (shut === undefined) return false;
    if (row.children && row.closed !== shut) this.toggle(row.agent.id);
    else if (shut && row.agent.parent) this.list.choose(row.agent.parent);
    return true;
  }

  toggle(id) {
    if (!this.closed.delete(id)) this.closed.add(id);
    this.show();
  }

  draw(row) {
    const { agent, depth } = row,
      waits = agent.waits ?? [];
    const element = h("div.agent-row", { title: plain(agent.id) });
    element.style.setProperty("--depth", Math.min(depth, 6));
    const twisty =
      row.children > 0 &&
      h(
        "span.twisty",
        { "aria-hidden": "true", onclick: (event) => (event.preventDefault(), this.toggle(agent.id)) },
        row.closed ? "▸" : "▾",
      );
    const state = agent.status === "running" && waits.length ? "waiting" : agent.status;
    const said = waits.length ? `waits for ${waits.map(waitKind).join(", ")}` : `turn ${agent.turn ?? 0}`;
    element.append(
      h("span.dot", { class: state, role: "img", "aria-label": state }),
      h("span.main", {}, twisty, ident(agent.id, depth > 0 ? agent.parent : null)),
      h("span.side", {}, short(total(agent.usage)), h("span.unit", {}, " tok")),
      h(
        "span.sub",
        {},
        agent.name === agent.id ? null : [plain(agent.name), " · "],
        said,
        row.closed ? ` · ${row.children} below` : "",
      ),
      h("span.when", {}, agent.updated ? ago(Date.parse(agent.updated)) : ""),
    );
    return element;
  }
}
