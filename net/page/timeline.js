// The timeline of an agent: a row for each turn, step, attempt, tool, child and question, with its bar on the turn's own time.

import { h } from "./dom.js";
import { root, rows, scale } from "./rows.js";
import { clock, duration, ended, failure, gist, line, plain, short, spent, total } from "./words.js";
import { VirtualList } from "./virtual.js";

const ROW = 30;
const TICK_MS = 500;
const OPEN_AT_FIRST = 20;

const KINDS = {
  turn: "Turn",
  step: "Step",
  input: "Input",
  attempt: "Model",
  tool: "Tool",
  child: "Child",
  question: "Asked",
  mark: "",
};

export class TimelineView {
  constructor({ chosen }) {
    Object.assign(this, {
      timeline: null,
      chosen,
      flipped: new Map(),
      scales: new WeakMap(),
      from: 0,
      settled: false,
      now: Date.now(),
    });
    this.list = new VirtualList({
      height: ROW,
      label: "Timeline",
      role: "tree",
      draw: (row) => this.draw(row),
      key: (row) => row.node.key,
      stamp: (row) => `${row.node.stamp} ${row.node.end === null ? this.now : ""} ${this.isOpen(row.node)}`,
      level: (row) => row.depth,
      expanded: (row) => (row.node.nodes.length ? this.isOpen(row.node) : null),
      chosen: (row, how) => this.choose(row, how),
      keys: (key, row) => this.keys(key, row),
    });
    this.element = this.list.element;
    this.element.id = "timeline";
    this.ticking = setInterval(() => this.tick(), TICK_MS);
  }

  close() {
    clearInterval(this.ticking);
  }

  /** Begin anew, with another agent. */
  begin() {
    this.timeline = null;
    this.settled = false;
    this.flipped.clear();
    this.list.at = null;
    this.list.toEnd();
  }

  /**
   * Show a timeline as it is now; a reader at its end stays there. Until it is `settled`, its beginning is still being read, and only its
   * newest turns are open; what comes after that stays open, so that nothing closes above what somebody reads.
   */
  show(timeline, { settled = this.settled } = {}) {
    this.timeline = timeline;
    if (!this.settled) this.from = timeline.top.at(-OPEN_AT_FIRST)?.seq ?? 0;
    this.settled = settled;
    this.list.show(rows(timeline, { isOpen: (node) => this.isOpen(node) }));
  }

  /** Whether a node is open: as the reader wants it; else turns that run or are among the newest, and all that is in a turn. */
  isOpen(node) {
    return this.flipped.get(node.key) ?? (node.kind !== "turn" || node.end === null || node.seq >= this.from);
  }

  tick() {
    if (!this.timeline?.open || document.hidden) return;
    this.now = Date.now();
    this.list.later();
  }

  choose(row, how) {
    if (how === "enter" && row.node.kind === "turn" && this.list.at === row.node.key && this.told === row.node.key)
      this.toggle(row.node);
    this.told = row.node.key;
    this.chosen(row.node, how);
  }

  /** Choose the node that stands for a record, and open what it is in. */
  find(seq) {
    let best = null;
    const look = (nodes) => {
      for (const node of nodes) {
        if (node.seq <= seq && (!best || node.seq >= best.seq)) best = node;
        look(node.nodes);
      }
    };
    look(this.timeline?.top ?? []);
    if (!best) return null;
    for (let at = best.parent; at; at = at.parent) this.flipped.set(at.key, true);
    this.list.show(rows(this.timeline, { isOpen: (node) => this.isOpen(node) }));
    this.list.choose(best.key);
    this.told = best.key;
    return best;
  }

  toggle(node) {
    this.flipped.set(node.key, !this.isOpen(node));
    this.show(this.timeline);
  }

  /** Open or close all turns. */
  all(open) {
    for (const node of this.timeline?.top ?? []) this.flipped.set(node.key, open);
    if (this.timeline) this.show(this.timeline);
  }

  keys(key, row) {
    const open = { ArrowLeft: false, h: false, ArrowRight: true, l: true }[key];
    if (open === undefined) return false;
    if (row.node.nodes.length && this.isOpen(row.node) !== open) this.toggle(row.node);
    else if (!open && row.node.parent) {
      this.list.choose(row.node.parent.key);
      this.chosen(row.node.parent, "move");
    }
    return true;
  }

  draw({ node, depth }) {
    const open = node.end === null,
      state = stateOf(node);
    const element = h("div.row", { class: `${node.kind} ${state}` });
    element.style.setProperty("--depth", depth);
    const twisty = node.nodes.length
      ? h(
          "span.twisty",
          { "aria-hidden": "true", onclick: (event) => (event.preventDefault(), this.toggle(node)) },
          this.isOpen(node) ? "▾" : "▸",
        )
      : h("span.twisty");
    const took =
      node.kind === "input" || node.kind === "mark" ? "" : duration((node.end ?? Math.max(this.now, node.start)) - node.start);
    element.append(
      h("span.label", {}, twisty, h("span.kind", {}, kind(node)), h("span.what", { dir: "auto" }, what(node))),
      this.lane(node, open),
      h("span.took", {}, took),
      h("span.tokens", { title: node.tokens ? spent(node.tokens) : null }, total(node.tokens) ? short(total(node.tokens)) : ""),
    );
    return element;
  }

  lane(node, open) {
    const turn = root(node),
      lane = h("span.lane", { "aria-hidden": "true" });
    if (turn.kind !== "turn" || node.kind === "step") return lane;
    const at = this.scale(turn),
      from = at(node.start),
      to = open ? 1 : at(node.end);
    const bar = h("span.bar");
    bar.style.left = `${(from * 100).toFixed(3)}%`;
    bar.style.width = `${(Math.max(to - from, 0) * 100).toFixed(3)}%`;
    lane.append(bar);
    return lane;
  }

  scale(turn) {
    const known = this.scales.get(turn),
      stamp = `${turn.stamp} ${turn.end === null ? this.now : ""}`;
    if (known?.stamp === stamp) return known.at;
    const at = scale(turn, Math.max(this.now, turn.start));
    this.scales.set(turn, { stamp, at });
    return at;
  }
}

/** What a node is, at a glance: its class in the style sheet. */
export function stateOf(node) {
  if (node.kind === "question")
    return node.end === null ? "waiting" : node.verdict === "allow" || node.verdict === "reply" ? "good" : "bad";
  if (node.end === null)
    return node.nodes.some((below) => below.kind === "question" && below.end === null) ? "waiting" : "running";
  if (node.failure || node.error || node.type === "outbox/failed") return "bad";
  const reason = node.reason?.kind;
  return reason === undefined || reason === "completed" ? "good" : reason === "aborted" ? "cut" : "bad";
}

function kind(node) {
  if (node.kind === "turn") return `Turn ${node.turn}`;
  if (node.kind === "step") return `Step ${node.step}`;
  if (node.kind === "attempt" && node.attempt > 1) return `Model, try ${node.attempt}`;
  return KINDS[node.kind];
}

/** What a row says, beside its kind. */
export function what(node) {
  switch (node.kind) {
    case "turn":
      return turnText(node);
    case "step":
      return "";
    case "input":
      return [
        h("span.text", {}, gist(node.message.content)),
        node.message.source?.kind && node.message.source.kind !== "user"
          ? h("span.aside", {}, sourceText(node.message.source))
          : null,
      ];
    case "attempt":
      return attemptText(node);
    case "tool":
      return [
        h("code", {}, plain(node.name ?? node.asked ?? "a call")),
        " ",
        h("span.aside", {}, node.error ? `${node.error} ` : "", line(node.effective ?? node.arguments, 120)),
      ];
    case "child":
      return [
        h("bdi", {}, plain(node.child)),
        h("span.aside", {}, node.reason && node.reason.kind !== "completed" ? ended(node.reason) : plain(node.name)),
      ];
    case "question":
      return [
        h("span.text", {}, line(node.question)),
        node.verdict ? h("span.aside", {}, `${node.verdict}${node.by ? ` by ${plain(node.by)}` : ""}`) : null,
      ];
    default:
      return h("span.aside", {}, line(node.text));
  }
}

function turnText(node) {
  const first = firstInput(node);
  const end = node.reason && node.reason.kind !== "completed" ? h("span.verdict", {}, line(ended(node.reason), 90)) : null;
  return [end, h("span.text", {}, first ? gist(first.message.content) : ""), h("span.aside", {}, clock(node.start))];
}

function firstInput(node) {
  for (const below of node.nodes) {
    const found = below.kind === "input" ? below : firstInput(below);
    if (found) return found;
  }
  return null;
}

function attemptText(node) {
  if (node.failure)
    return [
      h("span.verdict", {}, line(failure(node.failure), 120)),
      node.action === "retry"
        ? h("span.aside", {}, node.delay ? `tries again after ${duration(node.delay * 1000)}` : "tries again")
        : null,
    ];
  if (node.message)
    return [
      node.interrupted ? h("span.verdict", {}, "cut") : null,
      h("span.text", {}, gist(node.message.content) || "(empty)"),
      node.finish !== "stop" && node.finish !== "tool-calls" ? h("span.aside", {}, node.finish) : null,
    ];
  return h("span.aside", {}, node.end === null ? "answering…" : "no answer");
}

/** Who wrote a message. */
export function sourceText(source) {
  const by = {
    plugin: (s) => `plugin ${s.name}`,
    agent: (s) => `agent ${s.id}`,
    model: (s) => `${s.provider}:${s.model}`,
    tool: () => "a tool",
  };
  return plain(by[source?.kind]?.(source) ?? "a person");
}
