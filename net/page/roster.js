// What is known of the agents of a service: pages of the index, merged as they come. Pure.
//
// The index gives agents in order of their ids, a page behind an id. A page covers all ids from there to the one that it says, so
// whatever was known between the two and is not in it is gone; so a page that is asked for again also tells what was deleted and what
// is new. A page of a search may have few agents or none, and not be the last: the service looks at some thousands for each.

/** Order of ids as the index has it: by code points. (JavaScript compares code units, which differ beyond the basic plane.) */
export function byId(a, b) {
  const one = [...a],
    two = [...b];
  for (let at = 0; at < one.length && at < two.length; at += 1) {
    const off = one[at].codePointAt(0) - two[at].codePointAt(0);
    if (off) return off;
  }
  return one.length - two.length;
}

export class Roster {
  constructor() {
    this.known = [];
    this.whole = false;
    this.frontier = null; // the id behind which nothing was asked for yet; null at the beginning
    this.stamp = 0;
  }

  /** Take in a page: the agents behind `after` (null: from the first) and up to the id `upto`; `more`: there are others behind that. */
  merge(after, { agents, more, upto }) {
    const from = after === null ? 0 : this.find(after, true);
    const to = more ? this.find(upto, true) : this.known.length;
    const old = new Map(this.known.slice(from, to).map((agent) => [agent.id, agent]));
    this.stamp += 1;
    const merged = agents.map((agent) => (same(old.get(agent.id), agent) ? old.get(agent.id) : { ...agent, stamp: this.stamp }));
    if (!more || this.frontier === null || byId(upto, this.frontier) > 0) {
      this.whole = !more;
      this.frontier = upto ?? after;
    }
    this.known.splice(from, to - from, ...merged);
  }

  /** The place of the first id that is not before this one (`beyond`: that is behind it). */
  find(id, beyond = false) {
    let low = 0,
      high = this.known.length;
    while (low < high) {
      const middle = (low + high) >> 1,
        off = byId(this.known[middle].id, id);
      if (off < 0 || (beyond && off === 0)) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The agent of this id, as far as it is known. */
  get(id) {
    const agent = this.known[this.find(id)];
    return agent?.id === id ? agent : null;
  }

  /** Agents as a tree: `[{agent, depth, children, closed}]`; one whose parent is not known stands at the top. */
  tree(closed) {
    const ids = new Set(this.known.map((agent) => agent.id)),
      children = new Map(),
      tops = [];
    for (const agent of this.known) {
      if (!agent.parent || !ids.has(agent.parent)) tops.push(agent);
      else if (children.has(agent.parent)) children.get(agent.parent).push(agent);
      else children.set(agent.parent, [agent]);
    }
    const found = [];
    const stack = tops.reverse().map((agent) => ({ agent, depth: 0 }));
    while (stack.length) {
      const { agent, depth } = stack.pop(),
        below = children.get(agent.id) ?? [],
        shut = closed.has(agent.id);
      found.push({ agent, depth, children: below.length, closed: shut });
      if (!shut) for (let at = below.length - 1; at >= 0; at -= 1) stack.push({ agent: below[at], depth: depth + 1 });
    }
    return found;
  }

  /** Agents one under the other. */
  flat() {
    return this.known.map((agent) => ({ agent, depth: 0, children: 0, closed: false }));
  }
}

function same(one, two) {
  return (
    one !== undefined &&
    one.head === two.head &&
    one.status === two.status &&
    String(one.waits) === String(two.waits ?? []) &&
    one.updated === two.updated
  );
}

const WORDS = {
  running: { status: "running" },
  idle: { status: "idle" },
  failed: { status: "failed" },
  person: { waiting: "approval" },
  child: { waiting: "child" },
};

/** What the words in the search box ask for: `is:running`, `is:person`, `team=desk` (a label), and the rest is a part of the id. */
export function query(text) {
  const asked = {},
    rest = [];
  for (const word of text.trim().split(/\s+/).filter(Boolean)) {
    const is = word.startsWith("is:") ? WORDS[word.slice(3)] : null;
    const equals = word.indexOf("=");
    if (is) Object.assign(asked, is);
    else if (equals > 0) asked.labels = { ...asked.labels, [word.slice(0, equals)]: word.slice(equals + 1) };
    else rest.push(word);
  }
  if (rest.length) asked.text = rest.join(" ");
  return asked;
}
