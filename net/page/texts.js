// Texts and content blocks from logs, as elements: text nodes only, long ones folded, addresses linked only if they lead to the web.

import { h } from "./dom.js";
import { held } from "./media.js";
import { full, plain, pretty } from "./words.js";

const FOLDED = 3000;
const MORE = 200_000;

/** A text of any length: what is too long to read at a glance is folded, and unfolds in pieces that a page can bear. */
export function prose(text, name = "div.prose", most = FOLDED) {
  const whole = String(text ?? "");
  if (whole.length <= most * 1.2) return h(name, { dir: "auto" }, plain(whole));
  const shown = document.createTextNode(plain(whole.slice(0, most)));
  let upto = most;
  const more = h("button.more", { type: "button" });
  const name_ = () =>
    (more.textContent = `… show ${full(Math.min(MORE, whole.length - upto))} of ${full(whole.length - upto)} more characters`);
  more.onclick = () => {
    shown.appendData(plain(whole.slice(upto, upto + MORE)));
    upto += MORE;
    if (upto >= whole.length) more.remove();
    else name_();
  };
  name_();
  return h("div", {}, h(name, { dir: "auto" }, shown), more);
}

/** A text in a typewriter's letters; JSON is laid out. */
export const code = (text, most) => prose(pretty(String(text ?? "")), "pre.code", most);

/** Any value as JSON. */
export const json = (value, most) => prose(JSON.stringify(value, null, 2), "pre.code", most);

/** Something that opens: `draw` is called when it is opened first. */
export function fold(title, draw, { open = false, name = "details.fold" } = {}) {
  const body = h("div.folded");
  let drawn = false;
  const element = h(name, {}, h("summary", {}, title), body);
  const once = () => {
    if (drawn || !element.open) return;
    drawn = true;
    body.append(...[draw()].flat(Infinity));
  };
  element.addEventListener("toggle", once);
  element.open = open;
  once();
  return element;
}

/** Content blocks, each by its kind. */
export function blocks(content) {
  return (content ?? []).map(block);
}

/** What a tool gave: text that is JSON is laid out. */
export function results(content) {
  return (content ?? []).map((value) => (value.type === "text" && /^\s*[[{]/.test(value.text) ? code(value.text) : block(value)));
}

function block(value) {
  switch (value.type) {
    case "text":
      return prose(value.text);
    case "reasoning":
      return h("div.reasoning", {}, h("span.tag", {}, "Reasoning"), prose(value.text, "div.prose.quiet"));
    case "tool-call":
      return h("div.call", {}, h("span.tag", {}, "Call"), " ", h("code", {}, plain(value.name)), code(value.arguments ?? ""));
    case "tool-result":
      return h(
        "div.call",
        {},
        h("span.tag", { class: value.is_error ? "bad" : "" }, value.is_error ? "Error result" : "Result"),
        blocks(value.content),
      );
    case "image":
    case "file":
      return media(value);
    default:
      return json(value);
  }
}

function media(value) {
  const what = value.name ? `${value.name}, ${value.media_type}` : value.media_type;
  const where = value.url ? address(value.url) : value.blob ? held(value) : h("code", {}, "no content");
  return h("div.call.media", {}, h("span.tag", {}, value.type === "image" ? "Picture" : "File"), ` ${plain(what)} `, where);
}

/** An address: a link if it leads to the web, else a text. It is never fetched by the page. */
export function address(url) {
  let target = null;
  try {
    target = new URL(url);
  } catch {
    // No address at all: it is shown as it is.
  }
  if (target?.protocol !== "https:" && target?.protocol !== "http:") return h("code", {}, plain(url));
  return h("a", { href: target.href, rel: "noopener noreferrer", target: "_blank" }, plain(url));
}

/** Names and values in two columns; entries without a value are left out. */
export function facts(entries) {
  const rows = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl.facts",
    {},
    rows.map(([name, value]) => [h("dt", {}, name), h("dd", { dir: "auto" }, typeof value === "string" ? plain(value) : value)]),
  );
}

/** An agent's id, its last part strong: where it stands in its tree is read at once. `below`: the parent in the row above,
 * whose id is left out: what tells children apart is at their end, where a narrow list cuts. */
export function ident(id, below = null) {
  const text = plain(below !== null && id.startsWith(`${below}/`) ? id.slice(below.length + 1) : id),
    cut = text.lastIndexOf("/") + 1;
  return h("bdi.ident", {}, h("span.stem", {}, text.slice(0, cut)), h("span.leaf", {}, text.slice(cut)));
}

/** A link to an agent. */
export const agentLink = (id) => h("a", { href: agentAddress(id) }, ident(id));

/** The address of an agent on this page, perhaps at a record. */
export const agentAddress = (id, seq = null) => `#/agent/${encodeURIComponent(id)}${seq === null ? "" : `?at=${seq}`}`;
