// Which nodes of a timeline are shown, in order, and where their bars stand. Pure.

const QUIET_MS = 10_000;

/** The rows of a timeline: `[{node, depth}]`, below those nodes that `isOpen` says are open. */
export function rows(timeline, { isOpen }) {
  const found = [];
  const walk = (nodes, depth) => {
    const alone = nodes.filter((node) => node.kind === "step").length === 1;
    for (const node of nodes) {
      // A turn of one step says nothing by a row for it.
      if (alone && node.kind === "step") walk(node.nodes, depth);
      else {
        found.push({ node, depth });
        if (node.nodes.length && isOpen(node)) walk(node.nodes, depth + 1);
      }
    }
  };
  walk(timeline.top, 0);
  return found;
}

/** The turn (or lone node) at the top of a node. */
export function root(node) {
  let at = node;
  while (at.parent) at = at.parent;
  return at;
}

/**
 * A turn's time laid out on 0 to 1. Where nothing happens for longer than ten seconds (a person thinks, a reader sleeps) the time is
 * drawn short, by its logarithm, so that one long wait does not squeeze all else to a hair; order and neighbourhood stay true.
 */
export function scale(turn, now) {
  const times = [turn.start, turn.end ?? now];
  const gather = (nodes) => {
    for (const node of nodes) {
      times.push(node.start, node.end ?? now);
      gather(node.nodes);
    }
  };
  gather(turn.nodes);
  const sorted = [...new Set(times)].sort((a, b) => a - b);
  const places = [0];
  for (let n = 1; n < sorted.length; n += 1) places.push(places[n - 1] + drawn(sorted[n] - sorted[n - 1]));
  const whole = places.at(-1) || 1;
  return (time) => place(sorted, places, time) / whole;
}

const drawn = (gap) => (gap <= QUIET_MS ? gap : QUIET_MS * (1 + Math.log2(gap / QUIET_MS)));

function place(sorted, places, time) {
  let low = 0,
    high = sorted.length - 1;
  if (time <= sorted[0]) return places[0];
  if (time >= sorted[high]) return places[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= time) low = middle;
    else high = middle;
  }
  const span = sorted[high] - sorted[low] || 1;
  return places[low] + ((time - sorted[low]) / span) * (places[high] - places[low]);
}
