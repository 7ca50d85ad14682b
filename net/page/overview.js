// An agent at a glance, for the pane of details while nothing is chosen: what it spent and on what, how its turns ended, which tools
// it used, which children it has. Counted from the timeline, so of a log that is read in part it is that part.

import { h } from "./dom.js";
import { agentLink, facts } from "./texts.js";
import { counted, duration, full, plain, total } from "./words.js";

const MOST_CHILDREN = 50;

/** What is counted over a timeline. Pure. */
export function count(timeline) {
  const found = {
    turns: 0,
    ends: new Map(),
    took: 0,
    attempts: 0,
    failures: 0,
    models: new Map(),
    tools: new Map(),
    children: [],
  };
  const look = (nodes) => {
    for (const node of nodes) {
      COUNTS[node.kind]?.(found, node);
      look(node.nodes);
    }
  };
  look(timeline.top);
  return found;
}

const add = (map, key, by = 1) => map.set(key, (map.get(key) ?? 0) + by);

const COUNTS = {
  turn: (found, node) => {
    found.turns += 1;
    if (node.end === null) return;
    found.took += node.end - node.start;
    add(found.ends, node.reason?.kind ?? "unknown");
  },
  attempt: (found, node) => {
    found.attempts += 1;
    if (node.failure) found.failures += 1;
    if (node.model) add(found.models, node.model);
  },
  tool: (found, node) => {
    const name = node.name ?? node.asked ?? "a call";
    const tool = found.tools.get(name) ?? { calls: 0, done: 0, errors: 0, took: 0 };
    tool.calls += 1;
    if (node.error) tool.errors += 1;
    if (node.end !== null) {
      tool.done += 1;
      tool.took += node.end - node.start;
    }
    found.tools.set(name, tool);
  },
  child: (found, node) => found.children.push(node),
};

/** The overview as elements. */
export function overview(page, feed) {
  if (!feed) return h("div.empty", {}, h("p", {}, "Nothing is chosen."));
  const { usage } = feed.timeline,
    found = count(feed.timeline);
  return [
    h(
      "header.details-head",
      {},
      h("button.quiet.back", { type: "button", onclick: () => page.back() }, "‹ Back"),
      h("h2", { tabIndex: -1 }, "At a glance"),
      h("p.sub", {}, "Choose a row to see all that the log says of it."),
    ),
    facts([
      [
        "Turns",
        found.turns
          ? `${full(found.turns)}${found.took ? `, ${duration(found.took / Math.max(1, found.turns))} on average` : ""}`
          : "none yet",
      ],
      [
        "Model calls",
        found.attempts ? `${full(found.attempts)}${found.failures ? `, ${full(found.failures)} failed` : ""}` : null,
      ],
      ["Models", [...found.models.keys()].join(", ")],
    ]),
    bars(
      "Tokens",
      [
        ["Input", usage.input],
        ["From cache", usage.cache_read],
        ["To cache", usage.cache_write],
        ["Output", usage.output],
        ["Reasoning", usage.reasoning],
      ],
      total(usage),
    ),
    bars(
      "How turns ended",
      [...found.ends].sort((a, b) => b[1] - a[1]),
      found.turns,
    ),
    found.tools.size
      ? h(
          "section.part",
          {},
          h("h3", {}, "Tools"),
          h(
            "table.trace",
            {},
            h(
              "tbody",
              {},
              [...found.tools]
                .sort((a, b) => b[1].calls - a[1].calls)
                .map(([name, tool]) =>
                  h(
                    "tr",
                    {},
                    h("th", { scope: "row" }, plain(name)),
                    h(
                      "td",
                      {},
                      counted(tool.calls, "call"),
                      tool.errors ? h("span.bad", {}, `, ${counted(tool.errors, "error")}`) : null,
                    ),
                    h("td.number", {}, tool.done ? duration(tool.took / tool.done) : ""),
                  ),
                ),
            ),
          ),
        )
      : null,
    found.children.length
      ? h(
          "section.part",
          {},
          h("h3", {}, counted(found.children.length, "child", "children")),
          h(
            "ul",
            {},
            found.children
              .slice(-MOST_CHILDREN)
              .reverse()
              .map((child) =>
                h("li", {}, agentLink(child.child), h("span.aside", {}, ` ${child.reason ? child.reason.kind : "alive"}`)),
              ),
          ),
        )
      : null,
  ];
}

function bars(title, entries, whole) {
  const some = entries.filter(([, value]) => value);
  if (!some.length) return null;
  return h(
    "section.part",
    {},
    h("h3", {}, title),
    h(
      "dl.bars",
      {},
      some.map(([name, value]) => {
        const bar = h("span.fill", { "aria-hidden": "true" });
        bar.style.width = `${Math.max(0.5, (value / whole) * 100)}%`;
        return [h("dt", {}, name), h("dd", {}, h("span.track", {}, bar), h("span.value", {}, full(value)))];
      }),
    ),
  );
}
