// The timeline: records folded into turns, steps, attempts, tools and children, one record at a time. Pure, and total: whatever the log
// holds, each record finds a place or is left to the list of records. Records of a log whose beginning was not read fold, too.
//
// A node is {kind, key, seq, start, end, nodes, ...what its kind has}. `end` is null as long as it is open. `stamp` of a node grows
// with every change in it or below it, so that what is drawn can be kept until then.

const MARKS = {
  "turn/cancel": (r) => `Stop was asked for${r.keep_inbox ? "; the inbox is kept" : ""}`,
  "turn/suspend": () => "The service closed while the turn was open",
  "turn/resume": () => "Taken up again after a restart",
  "surface/replace": (r) =>
    `${r.message ? "A summary stands for" : "Out of view:"} seqs ${r.start} to ${r.end}${r.cause ? ` (${r.cause})` : ""}`,
  "command/run": (r) => `${r.name}${r.args ? ` ${r.args}` : ""}`,
  "command/result": (r) => r.text,
  "mail/sent": (r) => `${r.kind} to ${r.to}${r.dead ? ", which was deleted" : ""}`,
  "timer/set": (r) => "A reminder was set",
  "timer/fired": (r) => `A reminder fired${r.late ? ", late" : ""}`,
  "timer/cancelled": () => "A reminder was taken back",
  "outbox/put": (r) => `Reply to ${[r.route?.channel, r.route?.chat].filter(Boolean).join(":") || "its route"}${said(r.content)}`,
  "outbox/failed": (r) => `The reply could not be delivered: ${r.failure?.message || (r.failure?.code ?? "")}`,
  "log/forked": (r) => `Forked from ${r.source} at seq ${r.at}`,
  note: (r) =>
    r.kind === "callboard/delivery"
      ? `A reply that an earlier process left is sent again; processes that ended meanwhile: ${r.data?.ends ?? 0}`
      : `Note: ${r.kind}`,
};

/** The beginning of a reply's text, behind a colon. */
function said(content) {
  const text = (Array.isArray(content) ? content : []).map((block) => block?.text ?? "").join("");
  return text ? `: ${text.slice(0, 200)}` : "";
}

export class Timeline {
  constructor() {
    this.top = [];
    this.turns = new Map();
    this.turn = null;
    this.step = null;
    this.attempt = null;
    this.tools = new Map();
    this.children = new Map();
    this.questions = new Map();
    this.outbox = new Map();
    this.context = null;
    this.identity = null;
    this.usage = {};
    this.family = 0;
    this.last = -1;
    this.stamp = 0;
  }

  /** Take in one record. */
  apply(record) {
    if (record.seq <= this.last) return;
    this.last = record.seq;
    this.stamp += 1;
    const handle = HANDLERS[record.type];
    if (handle) handle(this, record);
    else if (MARKS[record.type]) this.mark(record);
    if (this.turn) this.turn.stamp = this.stamp;
  }

  /** How many replies no channel has taken yet. */
  get unsent() {
    let count = 0;
    for (const reply of this.outbox.values()) if (reply.state === "waiting") count += 1;
    return count;
  }

  /** Whether a turn is open. */
  get open() {
    return this.turn !== null && this.turn.end === null;
  }

  add(parent, kind, record, rest) {
    const node = {
      kind,
      key: `${kind}${record.seq}`,
      seq: record.seq,
      start: record.time,
      end: null,
      nodes: [],
      stamp: this.stamp,
      parent,
      ...rest,
    };
    (parent ? parent.nodes : this.top).push(node);
    this.touch(node);
    return node;
  }

  touch(node) {
    for (let at = node; at; at = at.parent) at.stamp = this.stamp;
  }

  finish(node, record, rest) {
    Object.assign(node, { end: record.time, last: record.seq }, rest);
    this.touch(node);
  }

  mark(record, text = MARKS[record.type](record)) {
    const parent = this.step ?? (this.open ? this.turn : null);
    this.add(parent, "mark", record, { end: record.time, text, type: record.type });
  }

  /** The step of a record; one whose start was not read is made up. */
  stepOf(record) {
    if (this.step && this.step.step === record.step && this.turn?.turn === record.turn) return this.step;
    const turn = this.turnOf(record);
    this.step = this.add(turn, "step", record, { turn: record.turn, step: record.step });
    return this.step;
  }

  turnOf(record) {
    let turn = this.turns.get(record.turn);
    if (!turn) {
      turn = this.add(null, "turn", record, { turn: record.turn, reason: null, resumes: 0, tokens: null });
      this.turns.set(record.turn, turn);
      this.turn = turn;
    }
    return turn;
  }

  /** What an attempt cost counts for its turn at once; the turn's end says it again, with all that plugins spent. */
  spend(record) {
    const turn = this.turnOf(record);
    turn.tokens = sum(turn.tokens, record.usage);
  }

  close(record) {
    for (const tool of this.tools.values()) if (tool.end === null) this.finish(tool, record, { unanswered: true });
    this.tools.clear();
    if (this.attempt) this.finish(this.attempt, record, { cut: true });
    this.attempt = null;
  }
}

/** Two usages as one. */
export function sum(one, two) {
  const found = { ...one };
  for (const [kind, count] of Object.entries(two ?? {})) found[kind] = (found[kind] ?? 0) + count;
  return found;
}

const HANDLERS = {
  "log/created": (t, r) => (t.identity = r),
  "log/forked": (t, r) => {
    t.identity = { ...t.identity, ...r };
    t.usage = {};
    t.questions.clear();
    t.outbox.clear();
    t.mark(r);
  },
  "turn/start": (t, r) => {
    t.step = null;
    t.turnOf(r).route = r.route ?? null;
    t.turn = t.turns.get(r.turn);
  },
  "turn/resume": (t, r) => {
    const turn = t.turnOf(r);
    turn.resumes += 1;
    t.mark(r);
  },
  "turn/end": (t, r) => {
    const turn = t.turnOf(r);
    t.close(r);
    if (t.step) t.finish(t.step, r);
    t.step = null;
    t.finish(turn, r, {
      reason: r.reason,
      tokens: r.usage ?? {},
      latency: r.latency_ms ?? 0,
      park: r.park ?? false,
      delivery: r.delivery ?? "none",
      trace: r.trace ?? [],
    });
    t.usage = sum(t.usage, r.usage);
  },
  "step/start": (t, r) => {
    t.step = t.add(t.turnOf(r), "step", r, { turn: r.turn, step: r.step });
  },
  "step/end": (t, r) => {
    const step = t.stepOf(r);
    t.close(r);
    t.finish(step, r);
    t.step = null;
  },
  "user/message": (t, r) => {
    const parent = t.step ?? (t.open ? t.turn : null);
    t.add(parent, "input", r, { end: r.time, message: r.message });
  },
  "request/context": (t, r) => (t.context = r),
  "request/sent": (t, r) => {
    t.attempt = t.add(t.stepOf(r), "attempt", r, {
      turn: r.turn,
      step: r.step,
      attempt: r.attempt,
      digest: r.digest,
      upto: r.upto,
      model: t.context ? `${t.context.provider}:${t.context.model}` : "",
    });
  },
  "request/failed": (t, r) => {
    const attempt = t.attempt ?? t.add(t.stepOf(r), "attempt", r, { turn: r.turn, step: r.step, attempt: r.attempt, model: "" });
    t.finish(attempt, r, { failure: r.failure, action: r.action, delay: r.delay_s ?? null, tokens: r.usage ?? null });
    t.spend(r);
    t.attempt = null;
  },
  "assistant/message": (t, r) => {
    const attempt = t.attempt ?? t.add(t.stepOf(r), "attempt", r, { turn: r.turn, step: r.step, attempt: 1, model: "" });
    t.finish(attempt, r, {
      message: r.message,
      finish: r.finish ?? "stop",
      tokens: r.usage ?? null,
      interrupted: r.interrupted ?? false,
      answered: r.seq,
    });
    t.spend(r);
    t.attempt = null;
  },
  "tool/call": (t, r) => {
    const asked = t.tools.get(r.call_id);
    const rest = {
      turn: r.turn,
      step: r.step,
      call: r.call_id,
      name: r.name,
      arguments: r.arguments,
      effective: r.effective ?? null,
      replay: r.replay ?? "never",
      started: r.time,
    };
    if (asked && asked.name === null) return (Object.assign(asked, rest), t.touch(asked));
    t.tools.set(r.call_id, t.add(t.stepOf(r), "tool", r, rest));
  },
  "tool/result": (t, r) => {
    const tool =
      t.tools.get(r.call_id) ??
      t.add(t.stepOf(r), "tool", r, { turn: r.turn, step: r.step, call: r.call_id, name: null, arguments: "" });
    t.finish(tool, r, { content: r.content ?? [], error: r.error ?? null, concludes: r.concludes ?? false });
    t.tools.delete(r.call_id);
  },
  "approval/asked": (t, r) => {
    const call = calledIn(t, r.call_id);
    let tool = t.tools.get(r.call_id);
    if (!tool) {
      tool = t.add(t.step ?? t.turn, "tool", r, {
        turn: t.turn?.turn,
        step: t.step?.step,
        call: r.call_id,
        name: null,
        asked: call?.name ?? null,
        arguments: call?.arguments ?? "",
        effective: r.effective ?? null,
      });
      t.tools.set(r.call_id, tool);
    }
    const question = t.add(tool, "question", r, {
      id: r.id,
      call: r.call_id,
      question: r.question,
      expires: r.expires ?? null,
      tool,
    });
    t.questions.set(r.id, question);
  },
  "approval/answered": (t, r) => {
    const question = t.questions.get(r.id);
    t.questions.delete(r.id);
    if (question) t.finish(question, r, { verdict: r.verdict, by: r.by ?? "", text: r.text ?? null });
  },
  "child/spawned": (t, r) => {
    const parent = (r.call_id && t.tools.get(r.call_id)) || t.step || (t.open ? t.turn : null);
    t.children.set(r.child, t.add(parent, "child", r, { child: r.child, name: r.name, background: r.background ?? false }));
  },
  "child/ended": (t, r) => {
    const child = t.children.get(r.child);
    t.children.delete(r.child);
    t.family += 1;
    if (child) t.finish(child, r, { reason: r.reason, tokens: r.usage ?? {} });
  },
  "outbox/put": (t, r) => {
    t.outbox.set(r.delivery, { ...r, state: "waiting", done: null });
    t.mark(r);
  },
  "outbox/sent": (t, r) => delivered(t, r, "delivered"),
  "outbox/failed": (t, r) => {
    delivered(t, r, "failed");
    t.mark(r);
  },
};

function delivered(timeline, record, state) {
  const reply = timeline.outbox.get(record.delivery);
  if (reply) Object.assign(reply, { state, done: record.time, failure: record.failure ?? null });
}

/** The block of a call in the step's answer: its name and arguments, before a `tool/call` says so. */
function calledIn(timeline, call) {
  for (const node of timeline.step?.nodes ?? []) {
    const found = node.message?.content?.find((block) => block.type === "tool-call" && block.id === call);
    if (found) return found;
  }
  return null;
}
