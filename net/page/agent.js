// The pane of one agent: who it is and what it waits for, its views, what happens now, and the box to write in.

import { Composer } from "./actions.js";
import { attempt, words } from "./dialog.js";
import { atFrame, fill, h } from "./dom.js";
import { Feed } from "./feed.js";
import { Heading } from "./heading.js";
import { lookIn } from "./media.js";
import { NowPanel } from "./now.js";
import { inbox, into, outbox, RecordsList, reminders } from "./panels.js";
import { ident } from "./texts.js";
import { TimelineView } from "./timeline.js";
import { counted, full } from "./words.js";

const VIEWS = ["Timeline", "Inbox", "Outbox", "Reminders", "Records"];
const INFO_MS = 400;
const TOUCHES_INBOX = /^(inbox|turn|timer|approval|request\/sent|tool|child|outbox)/;

export class AgentPane {
  constructor(page, element) {
    Object.assign(this, { page, element, feed: null, id: null, view: 0, info: null, wanted: null });
    this.later = atFrame(() => this.draw());
    this.nowLater = atFrame(() => this.feed && this.now.draw());
    this.timeline = new TimelineView({ chosen: (node, how) => page.chosen(node, how) });
    this.records = new RecordsList({ chosen: (record, how) => page.chosenRecord(record, how) });
    this.now = new NowPanel(page);
    this.composer = new Composer(page);
    this.heading = new Heading(page);
    this.tabs = h(
      "div.tabs",
      { role: "tablist", "aria-label": "Views", onkeydown: (event) => this.turn(event) },
      VIEWS.map((name, at) => h("button", { type: "button", role: "tab", onclick: () => this.pick(at) }, name)),
    );
    this.note = h("div.notice", { hidden: true });
    this.body = h("div.view", { role: "tabpanel" });
    this.welcome();
  }

  welcome() {
    fill(
      this.element,
      h(
        "div.empty.welcome",
        {},
        h("p", {}, "Choose an agent."),
        h(
          "p.hint",
          {},
          "Its log is drawn as it is written: turns, model calls, tools, children, and the answer that is running. ",
          h("kbd", {}, "/"),
          " searches, ",
          h("kbd", {}, "?"),
          " shows all keys.",
        ),
      ),
    );
  }

  /** Show this agent; `at` is a record to begin with. */
  open(id, at = null) {
    if (id === this.id) return at === null ? undefined : this.goTo(at);
    this.close();
    Object.assign(this, { id, info: null, wanted: at });
    if (id === null) return this.welcome();
    this.feed = new Feed(this.page.link, id, (what) => this.changed(what), { wanted: at });
    lookIn(this.feed);
    this.timeline.begin();
    this.records.at = null;
    this.now.show(this.feed);
    this.composer.show(id);
    fill(this.element, this.heading.element, this.tabs, this.note, this.body, this.now.element, this.composer.element);
    this.pick(this.view);
    this.feed.open();
    this.refresh();
    this.draw();
  }

  close() {
    this.feed?.close();
    this.feed = null;
    lookIn(null);
    clearTimeout(this.asking);
    this.asking = null;
  }

  changed(what) {
    if (what === "caught-up" && this.wanted !== null) {
      this.goTo(this.wanted);
      this.wanted = null;
    }
    // While an answer is streamed nothing else changes.
    if (what === "live") return this.nowLater();
    this.later();
    const last = this.feed.records.at(-1);
    if (!last || TOUCHES_INBOX.test(last.type)) this.refreshSoon();
  }

  goTo(seq) {
    this.pick(0);
    const node = this.timeline.timeline
      ? this.timeline.find(seq)
      : (this.timeline.show(this.feed.timeline), this.timeline.find(seq));
    if (node) this.page.chosen(node, "move");
  }

  refreshSoon() {
    this.asking ??= setTimeout(() => {
      this.asking = null;
      this.refresh();
    }, INFO_MS);
  }

  /** What the service knows beyond the log: status and waits; and the view that is asked for, not folded. */
  async refresh() {
    const { id } = this;
    if (id === null || !this.feed || this.feed.error) return;
    try {
      const info = await this.page.link.call("info", { agent: id });
      if (id === this.id) this.info = info;
    } catch {
      return; // the stream says why, in the page's own words
    }
    this.drawHead();
    if (this.view === 1 || this.view === 3) this.drawView();
  }

  pick(view) {
    this.view = view;
    this.body.setAttribute("aria-label", VIEWS[view]);
    [...this.tabs.children].forEach((tab, at) => {
      tab.setAttribute("aria-selected", at === view);
      tab.tabIndex = at === view ? 0 : -1;
    });
    if (this.feed) this.drawView(true);
  }

  turn(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    this.pick((this.view + by + VIEWS.length) % VIEWS.length);
    this.tabs.children[this.view].focus();
    event.preventDefault();
  }

  draw() {
    if (!this.feed) return;
    if (this.feed.error && !this.feed.records.length) return this.missing();
    this.drawHead();
    this.drawNote();
    this.now.draw();
    if (this.view === 0 || this.view === 2 || this.view === 4) this.drawView();
    this.page.details.draw();
  }

  /** There is nothing to draw: the agent is not there, or cannot be read. */
  missing() {
    const again = h("button", { type: "button", onclick: () => this.again() }, "Try again");
    fill(
      this.element,
      h(
        "div.empty",
        { role: "alert" },
        h("h2", {}, ident(this.id)),
        h("p.bad", {}, words(this.feed.error)),
        h("div.buttons", {}, h("button", { type: "button", onclick: () => (location.hash = "#/") }, "All agents"), again),
      ),
    );
  }

  drawView(anew = false) {
    const { feed, page, id } = this;
    if (this.view === 0 || this.view === 4) {
      const list = this.view === 0 ? this.timeline : this.records;
      if (anew || this.body.firstChild !== list.element) fill(this.body, list.element);
      if (this.view === 0) this.timeline.show(feed.timeline, { settled: feed.caughtUp });
      else {
        this.records.show(feed.records.slice());
        if (anew && this.records.at === null) this.records.toEnd();
      }
    } else if (this.view === 2) fill(this.body, h("div.scroll", {}, outbox(feed.timeline)));
    else {
      if (anew) fill(this.body, h("div.scroll", {}, h("p.loading", {}, "Reading…")));
      const view = this.view,
        scroll = this.body.firstChild;
      into(scroll, () => (view === 1 ? inbox(page, id) : reminders(page, id)), words);
    }
  }

  drawNote() {
    const { feed } = this,
      { head, upto, begin } = feed;
    let said = null;
    if (feed.error)
      said = [
        h("span", { class: "bad" }, words(feed.error)),
        h("button", { type: "button", onclick: () => this.again() }, "Try again"),
      ];
    else if (!feed.caughtUp)
      said = [
        h(
          "span.loading",
          {},
          head > 0 ? `Reading the log: ${full(Math.max(0, upto + 1))} of ${counted(head + 1, "record")}` : "Reading the log…",
        ),
      ];
    else if (begin > 0)
      said = [
        `The newest ${full(head + 1 - begin)} of ${counted(head + 1, "record")}.`,
        h("button", { type: "button", onclick: (event) => this.earlier(event.target) }, "Read earlier ones"),
      ];
    const text = said ? said.map((part) => part.textContent ?? part).join(" ") : "";
    if (text === this.noted) return;
    this.noted = text;
    this.note.hidden = !said;
    fill(this.note, said);
  }

  async earlier(button) {
    button.disabled = true;
    const { list } = this.timeline,
      rows = list.items.length;
    await attempt(() => this.feed.earlier());
    // What the reader saw stays where it was; the rest is above it now.
    this.timeline.show(this.feed.timeline);
    list.shift(list.items.length - rows);
    button.disabled = false;
  }

  again() {
    const { id } = this;
    this.id = null;
    this.open(id);
  }

  badge(view, count) {
    const tab = this.tabs.children[view],
      text = count ? String(count) : "";
    if ((tab.querySelector(".badge")?.textContent ?? "") === text) return;
    fill(tab, VIEWS[view], text && " ", text && h("span.badge", {}, text));
  }

  drawHead() {
    this.badge(1, this.info?.pending ?? 0);
    this.badge(2, this.feed.timeline.unsent);
    this.heading.draw(this.id, this.info, this.feed);
  }
}
