// The pane of details: all that the log says of what is chosen in the timeline, and what can be done from there.

import { fill, h } from "./dom.js";
import { overview } from "./overview.js";
import { agentLink, blocks, code, facts, fold, json, prose, results } from "./texts.js";
import { sourceText } from "./timeline.js";
import { clock, duration, ended, failure, full, plain, spent, total } from "./words.js";

export class DetailsPane {
  constructor(page, element) {
    Object.assign(this, { page, element, node: null, record: null, drawn: null });
    this.show(null);
  }

  /** Show a node of the timeline; null for nothing. */
  show(node, feed = null) {
    Object.assign(this, { node, feed, record: null });
    this.draw(true);
  }

  /** Show a record as it is. */
  showRecord(record, feed) {
    Object.assign(this, { node: null, feed, record });
    this.draw(true);
  }

  /** Draw anew if what is shown has changed; a part that the reader opened would close, so nothing else is reason enough. */
  draw(anew = false) {
    const timeline = this.page.agent?.feed?.timeline;
    const stamp = this.node
      ? `${this.node.key} ${this.node.stamp}`
      : this.record
        ? this.record.seq
        : `${timeline?.open} ${timeline?.top.length} ${this.page.agent?.feed?.caughtUp}`;
    if (!anew && stamp === this.drawn) return;
    this.drawn = stamp;
    const { element } = this,
      top = element.scrollTop;
    fill(element, this.record ? this.ofRecord() : this.node ? this.ofNode() : overview(this.page, this.page.agent?.feed));
    element.scrollTop = anew ? 0 : top;
  }

  ofRecord() {
    return [
      this.head(`seq ${this.record.seq}`, this.record.type),
      this.actions({ at: this.record.seq }),
      json(this.record, 20_000),
    ];
  }

  ofNode() {
    const { node } = this;
    const part = PARTS[node.kind];
    return [this.head(...part.title(node)), this.actions(part.acts(node)), part.draw(node, this), this.raw(node)];
  }

  head(title, sub) {
    return h(
      "header.details-head",
      {},
      h("button.quiet.back", { type: "button", onclick: () => this.page.back() }, "‹ Back"),
      h("h2", { tabIndex: -1 }, title),
      sub && h("p.sub", { dir: "auto" }, sub),
    );
  }

  actions({ request = null, at = null, turn = null }) {
    const { page } = this,
      may = page.may("send");
    const forks = turn !== null ? { turn } : { at };
    return h(
      "div.buttons",
      {},
      request !== null && h("button", { type: "button", onclick: () => page.request(request) }, "What the model was sent"),
      (at !== null || turn !== null) &&
        h(
          "button",
          { type: "button", disabled: !may, onclick: () => page.fork(forks) },
          turn !== null ? "Fork before it" : "Fork from here",
        ),
    );
  }

  raw(node) {
    const from = node.seq,
      to = node.last ?? node.seq;
    const own =
      this.feed?.records.filter((record) => record.seq === from || record.seq === to || record.seq === node.answered) ?? [];
    return fold(`As recorded: ${own.map((record) => `seq ${record.seq}`).join(", ")}`, () => own.map((record) => json(record)));
  }
}

const times = (node) => [
  ["Began", clock(node.start)],
  ["Took", node.end === null ? "still open" : duration(node.end - node.start)],
];
const tokens = (usage) => (usage ? (total(usage) ? `${full(total(usage))} (${spent(usage)})` : spent(usage)) : null);
const section = (title, ...content) => h("section.part", {}, h("h3", {}, title), content);

const PARTS = {
  turn: {
    title: (node) => [`Turn ${node.turn}`, node.reason ? ended(node.reason) : "open"],
    acts: (node) => ({ turn: node.turn, request: lastRequest(node) }),
    draw: (node) => [
      facts([
        ...times(node),
        ["Spent", tokens(node.tokens)],
        ["Latency", node.latency ? duration(node.latency) : null],
        ["Route", routeText(node.route)],
        ["Reply", deliveryText(node)],
        ["Inbox", node.park ? "parked by this end" : null],
        ["Restarts", node.resumes || null],
      ]),
      node.trace?.length ? section("How it walked", trace(node.trace)) : null,
    ],
  },
  step: {
    title: (node) => [`Step ${node.step} of turn ${node.turn}`, "one model call and its tools"],
    acts: (node) => ({ at: node.last ?? null, request: lastRequest(node) }),
    draw: (node) => [
      facts(times(node)),
      node.nodes
        .filter((below) => below.kind === "attempt" && below.message)
        .map((below) => section("Answer", blocks(below.message.content))),
    ],
  },
  input: {
    title: (node) => ["Input", `from ${sourceText(node.message.source)}`],
    acts: (node) => ({ at: node.seq, request: node.parent ? firstRequest(node.parent, node.seq) : null }),
    draw: (node) => [
      facts([
        ["Recorded", clock(node.start)],
        ["Message", node.message.id],
      ]),
      section("Text", blocks(node.message.content)),
    ],
  },
  attempt: {
    title: (node) => [node.attempt > 1 ? `Model call, try ${node.attempt}` : "Model call", node.model],
    acts: (node) => ({ request: node.seq, at: node.answered ?? null }),
    draw: (node) => [
      facts([
        ...times(node),
        ["Spent", tokens(node.tokens)],
        ["Finish", node.finish],
        ["Failure", node.failure ? failure(node.failure) : null],
        [
          "Then",
          node.failure
            ? node.action === "retry"
              ? `another try${node.delay ? ` after ${duration(node.delay * 1000)}` : ""}`
              : "the turn ends"
            : null,
        ],
        ["Answer", node.interrupted ? "cut; this much was seen" : node.cut ? "none: it was cut" : null],
        ["Status", node.failure?.status ?? null],
        ["Request id", node.failure?.request_id ?? null],
      ]),
      node.message
        ? section("Answer", node.message.content?.length ? blocks(node.message.content) : h("p.hint", {}, "An empty message."))
        : null,
    ],
  },
  tool: {
    title: (node) => [
      node.name ?? node.asked ?? "Tool",
      node.error ? `error ${node.error}` : node.end === null ? "running" : node.unanswered ? "no result" : "result",
    ],
    acts: (node) => ({ request: node.seq, at: node.last ?? null }),
    draw: (node) => [
      facts([
        ...times(node),
        ["Call", node.call],
        ["Runs again", node.replay === "never" ? null : node.replay],
        ["Concludes", node.concludes ? "the turn" : null],
      ]),
      node.arguments ? section(node.effective ? "Arguments, as the model wrote them" : "Arguments", code(node.arguments)) : null,
      node.effective ? section("Arguments, as they ran", code(node.effective)) : null,
      node.nodes
        .filter((below) => below.kind === "question")
        .map((below) => section("A person was asked", PARTS.question.draw(below))),
      node.content
        ? section(
            node.error ? "Error, as the model reads it" : "Result",
            node.content.length ? results(node.content) : h("p.hint", {}, "An empty result."),
          )
        : null,
    ],
  },
  child: {
    title: (node) => [agentLink(node.child), `${node.background ? "in the background, " : ""}${node.name}`],
    acts: () => ({}),
    draw: (node) => [
      facts([...times(node), ["End", node.reason ? ended(node.reason) : "alive"], ["Spent", tokens(node.tokens)]]),
      h("p", {}, "Its own timeline: ", agentLink(node.child)),
    ],
  },
  question: {
    title: (node) => ["Question", node.verdict ?? "waits for a person"],
    acts: () => ({}),
    draw: (node) => [
      prose(node.question),
      facts([
        ["Asked", clock(node.start)],
        ["Expires", node.end === null && node.expires ? clock(node.expires) : null],
        ["Verdict", node.verdict],
        ["By", node.by],
        ["Waited", node.end === null ? null : duration(node.end - node.start)],
      ]),
      node.text ? section("Said", prose(node.text)) : null,
    ],
  },
  mark: {
    title: (node) => [node.type, clock(node.start)],
    acts: (node) => ({ at: node.seq }),
    draw: (node) => prose(node.text),
  },
};

function lastRequest(node) {
  let found = null;
  for (const below of node.nodes) found = below.kind === "attempt" ? below.seq : (lastRequest(below) ?? found);
  return found;
}

/** The first request below a node that was sent after a record: the one that an input went into. */
function firstRequest(node, after) {
  for (const below of node.nodes) {
    const found = below.kind === "attempt" && below.seq > after ? below.seq : firstRequest(below, after);
    if (found !== null) return found;
  }
  return null;
}

/** The seq by which the request behind a node is asked for; null if it has none. */
export const requestOf = (node) => (node ? (PARTS[node.kind].acts(node).request ?? null) : null);

/** Where a fork from a node begins. */
export function forkOf(node) {
  const { at = null, turn = null } = node ? PARTS[node.kind].acts(node) : {};
  return turn !== null ? { turn } : { at };
}

const DELIVERIES = { put: "in the outbox", answered: "a tool answered", suppressed: "suppressed", none: null };
const deliveryText = (node) => DELIVERIES[node.delivery] ?? null;
const routeText = (route) =>
  route
    ? plain(
        ["channel", "chat", "thread", "message"]
          .map((key) => route[key])
          .filter(Boolean)
          .join(" · "),
      )
    : null;

function trace(entries) {
  return h(
    "table.trace",
    {},
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ["State", "Event", "Took"].map((name) => h("th", { scope: "col" }, name)),
      ),
    ),
    h(
      "tbody",
      {},
      entries.map((entry) =>
        h(
          "tr",
          { class: entry.error ? "bad" : "" },
          h("th", { scope: "row" }, entry.state),
          h("td", {}, plain(entry.error ? `${entry.error}${entry.text ? `: ${entry.text}` : ""}` : (entry.event ?? ""))),
          h("td.number", {}, micro(entry.us)),
        ),
      ),
    ),
  );
}

const micro = (us) => (us < 1000 ? `${us} µs` : duration(us / 1000));
