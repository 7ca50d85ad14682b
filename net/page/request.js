// What the model was sent: a request rebuilt by the service from the log before it, with the verdict whether it is exactly that, and
// what differs from the request before it.

import { dialog, words } from "./dialog.js";
import { cut, lines, requests } from "./diff.js";
import { fill, h } from "./dom.js";
import { blocks, facts, fold, json, prose } from "./texts.js";
import { sourceText } from "./timeline.js";
import { counted, full, plain } from "./words.js";

const SHOWN = 30;
const MOST_MESSAGES = 5000;

/** A request with its messages from `from` on; long ones come in pieces. */
async function load(link, agent, seq, from = () => 0) {
  const first = await link.call("request", { agent, seq, first: Number.MAX_SAFE_INTEGER });
  const begin = Math.max(0, Math.min(from(first), first.count), first.count - MOST_MESSAGES);
  const messages = [];
  while (begin + messages.length < first.count) {
    const piece = await link.call("request", { agent, seq: first.seq, first: begin + messages.length });
    if (!piece.messages.length) break;
    messages.push(...piece.messages);
  }
  return {
    ...first,
    tools: first.tools ?? [],
    system: first.system ?? "",
    kept: first.kept ?? 0,
    before: first.before ?? null,
    first: begin,
    messages,
  };
}

/** Open the sheet for the newest request at or before `seq`. */
export function showRequest(link, agent, seq) {
  let shown = null;
  const body = h("div.request-body", {}, h("p.loading", {}, "Rebuilding it from the log…"));
  const tabs = h("div.tabs", { role: "tablist" });
  const views = [
    ["Request", () => whole(shown)],
    ["Difference", () => difference(link, agent, shown)],
    ["JSON", () => json(shown, 50_000)],
  ];
  const pick = async (at) => {
    [...tabs.children].forEach((tab, n) => (tab.setAttribute("aria-selected", n === at), (tab.tabIndex = n === at ? 0 : -1)));
    fill(body, h("p.loading", {}, "Reading…"));
    try {
      fill(body, await views[at][1]());
    } catch (error) {
      fill(body, h("p", { class: "bad", role: "alert" }, words(error)));
    }
  };
  tabs.append(
    ...views.map(([name], at) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          autofocus: at === 0,
          onclick: () => shown && pick(at),
          onkeydown: (event) => turn(event, tabs),
        },
        name,
      ),
    ),
  );
  dialog("What the model was sent", () => [tabs, body], { name: "dialog.box.sheet" });
  load(link, agent, seq).then(
    (loaded) => ((shown = loaded), pick(0)),
    (error) => fill(body, h("p", { class: "bad", role: "alert" }, words(error))),
  );
}

function turn(event, tabs) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const all = [...tabs.children],
    next = all[(all.indexOf(event.target) + by + all.length) % all.length];
  next.focus();
  next.click();
  event.preventDefault();
}

function verdict(shown) {
  return shown.ok
    ? h(
        "p.verdict.good",
        {},
        "Exactly what was sent: rebuilt from the log, and its digest is the one that was written at dispatch.",
      )
    : h(
        "p.verdict.bad",
        { role: "alert" },
        "This is not what was sent: what the log gives has another digest. Run callboard verify.",
      );
}

function whole(shown) {
  return [
    verdict(shown),
    facts([
      ["Turn", `${shown.turn}, step ${shown.step}${shown.attempt > 1 ? `, try ${shown.attempt}` : ""}`],
      ["Model", `${shown.provider}:${shown.model}`],
      ...settings(shown.settings),
      ["Record", `seq ${shown.seq}`],
      ["Digest", h("code", {}, shown.digest)],
    ]),
    shown.system ? h("section.part", {}, h("h3", {}, "System"), prose(shown.system)) : null,
    shown.tools.length ? h("section.part", {}, h("h3", {}, counted(shown.tools.length, "tool")), shown.tools.map(tool)) : null,
    shown.output ? fold("Shape of the answer", () => json(shown.output)) : null,
    h("section.part", {}, h("h3", {}, counted(shown.count, "message")), messages(shown)),
  ];
}

function settings(values) {
  return Object.entries(values ?? {})
    .filter(([, value]) => value !== null)
    .map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value)]);
}

const tool = (spec) =>
  fold([h("code", {}, plain(spec.name)), " ", h("span.aside", {}, plain(spec.description.split("\n")[0].slice(0, 140)))], () => [
    prose(spec.description),
    json(spec.schema),
  ]);

/** The newest messages; older ones unfold above them, so that a history of thousands opens as fast as a short one. */
function messages(shown) {
  const list = h("ol.messages");
  let from = Math.max(0, shown.messages.length - SHOWN);
  const one = (message, at) => messageItem(message, { fresh: shown.before !== null && at + shown.first >= shown.kept });
  const more = h("button.more", {
    type: "button",
    onclick: () => {
      const begin = Math.max(0, from - SHOWN);
      list.prepend(...shown.messages.slice(begin, from).map((message, n) => one(message, begin + n)));
      from = begin;
      name();
    },
  });
  const name = () => {
    more.hidden = from === 0;
    more.textContent = `Show ${Math.min(SHOWN, from)} earlier of ${full(from)}`;
  };
  name();
  list.append(...shown.messages.slice(from).map((message, n) => one(message, from + n)));
  return [more, shown.first > 0 ? h("p.hint", {}, `${counted(shown.first, "message")} before these are not shown.`) : null, list];
}

function messageItem(message, { fresh = false, sign = null } = {}) {
  const from = sourceText(message.source);
  return h(
    "li.message",
    { class: `${message.role}${sign ? ` ${sign}` : ""}` },
    h(
      "p.meta",
      {},
      h("span.role", {}, message.role),
      from === "a person" ? "" : ` · ${from}`,
      fresh ? h("span.tag", {}, "new") : null,
    ),
    blocks(message.content),
  );
}

async function difference(link, agent, shown) {
  if (shown.before === null) return h("p.empty", {}, "This is the first request of the log: there is none before it.");
  const before = await load(link, agent, shown.before, (first) => Math.max(0, Math.min(shown.kept, first.count)));
  const found = requests(before, shown);
  const { gone, come, changed } = found.tools;
  return [
    h(
      "p.lead",
      {},
      `Compared with seq ${before.seq} (turn ${before.turn}, step ${before.step}${before.attempt > 1 ? `, try ${before.attempt}` : ""}): ${counted(found.kept, "message")} the same, ${found.gone.length} gone, ${found.come.length} new.`,
    ),
    found.fields.length
      ? h(
          "section.part",
          {},
          h("h3", {}, "Settings"),
          h(
            "table.trace",
            {},
            h(
              "tbody",
              {},
              found.fields.map(({ name, before: was, after: is }) =>
                h(
                  "tr",
                  {},
                  h("th", { scope: "row" }, plain(name)),
                  h("td", {}, h("del", {}, plain(was ?? "unset"))),
                  h("td", {}, h("ins", {}, plain(is ?? "unset"))),
                ),
              ),
            ),
          ),
        )
      : null,
    found.system ? h("section.part", {}, h("h3", {}, "System"), difflines(found.system)) : null,
    gone.length || come.length || changed.length
      ? h(
          "section.part",
          {},
          h("h3", {}, "Tools"),
          gone.map((spec) => h("div.gone", {}, tool(spec))),
          come.map((spec) => h("div.come", {}, tool(spec))),
          changed.map(({ before: was, after: is }) =>
            fold([h("code", {}, plain(is.name)), " changed"], () =>
              difflines(lines(JSON.stringify(was, null, 2), JSON.stringify(is, null, 2))),
            ),
          ),
        )
      : null,
    found.gone.length || found.come.length
      ? h(
          "section.part",
          {},
          h("h3", {}, "Messages"),
          h(
            "ol.messages",
            {},
            found.gone.map((message) => messageItem(message, { sign: "gone" })),
            found.come.map((message) => messageItem(message, { sign: "come" })),
          ),
        )
      : h("p.hint", {}, "The messages are the same."),
  ];
}

const SIGNS = { "-": "gone", "+": "come", " ": "same", "…": "skipped" };

function difflines(all) {
  return h(
    "pre.code.diff",
    {},
    cut(all).map((each) =>
      h(
        "span",
        { class: SIGNS[each.sign] },
        each.sign === "…" ? `… ${counted(each.count, "line")} the same\n` : `${each.sign} ${plain(each.text)}\n`,
      ),
    ),
  );
}
