// Values as people read them: durations, counts, times, end reasons, waits; and texts made fit to be shown. Pure.

const GROUPED = new Intl.NumberFormat("en-GB");

/** A duration in milliseconds. */
export function duration(ms) {
  if (!Number.isFinite(ms) || ms < 0) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 9.95 ? s.toFixed(1) : Math.round(s)} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return two(minutes, "min", Math.floor(s % 60), "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return two(hours, "h", minutes % 60, "min");
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

function two(big, bigUnit, small, smallUnit) {
  return small ? `${big} ${bigUnit} ${small} ${smallUnit}` : `${big} ${bigUnit}`;
}

/** A count, short: 950, 12.4k, 3.1M. */
export function short(count) {
  if (count < 1000) return String(count);
  if (count < 999_500) return `${(count / 1000).toFixed(count < 9_950 ? 1 : 0)}k`;
  return `${(count / 1e6).toFixed(count < 9.95e6 ? 1 : 0)}M`;
}

/** A count in full, with its word: "1 record", "12,400 records". */
export function counted(count, one, many = `${one}s`) {
  return `${GROUPED.format(count)} ${count === 1 ? one : many}`;
}

/** A count in full. */
export const full = (count) => GROUPED.format(count);

/** A number of bytes: "640 B", "12 KiB", "3.4 MiB". */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const places = ["KiB", "MiB", "GiB"],
    at = Math.min(Math.floor(Math.log2(bytes) / 10), places.length) - 1,
    value = bytes / 1024 ** (at + 1);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${places[at]}`;
}

/** All tokens of a usage. */
export function total(usage) {
  if (!usage) return 0;
  return (usage.input ?? 0) + (usage.output ?? 0) + (usage.cache_read ?? 0) + (usage.cache_write ?? 0) + (usage.reasoning ?? 0);
}

const KINDS_OF_TOKENS = [
  ["input", "input"],
  ["output", "output"],
  ["reasoning", "reasoning"],
  ["cache_read", "from cache"],
  ["cache_write", "to cache"],
];

/** A usage, kind by kind; kinds of which there were none are left out. */
export function spent(usage) {
  const parts = KINDS_OF_TOKENS.filter(([kind]) => usage?.[kind]).map(([kind, word]) => `${full(usage[kind])} ${word}`);
  return parts.length ? parts.join(", ") : "no tokens counted";
}

/** A point in time: the time alone if it is of today. */
export function clock(ms) {
  const when = new Date(ms),
    now = new Date();
  const time = when.toLocaleTimeString("en-GB");
  return when.toDateString() === now.toDateString()
    ? time
    : `${when.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: when.getFullYear() === now.getFullYear() ? undefined : "numeric" })} ${time}`;
}

/** How long ago, or in how long. */
export function ago(ms, now = Date.now()) {
  const off = now - ms;
  if (Math.abs(off) < 1500) return "now";
  const text = duration(Math.abs(off)).split(" ").slice(0, 2).join(" ");
  return off > 0 ? `${text} ago` : `in ${text}`;
}

const ENDS = {
  completed: () => "completed",
  "max-tokens": () => "cut at the model's output cap",
  blocked: (r) => `blocked: ${r.why}`,
  aborted: (r) =>
    `stopped by ${CAUSES[r.cause?.kind] ?? r.cause?.kind}${r.cause?.text ? `: ${r.cause.text}` : ""}${r.error ? ` (beside it ${failure(r.error)})` : ""}`,
  error: (r) => failure(r.error),
  interrupted: () => "interrupted by a crash",
  limit: (r) => `reached the limit ${r.limit}${r.text ? `: ${r.text}` : ""}`,
};
const CAUSES = { user: "a person", parent: "its parent", disposed: "a shutdown", hook: "a plugin" };

/** An end reason in words. */
export function ended(reason) {
  return (ENDS[reason?.kind] ?? (() => String(reason?.kind ?? "open")))(reason);
}

/** A failure in words: its code, then its sentence. */
export function failure(failed) {
  return failed ? `${failed.code}${failed.message ? `: ${failed.message}` : ""}` : "";
}

const WAITS = {
  approval: "a person",
  model: "the model",
  "model-slot": "a free model slot",
  tool: "a tool",
  child: "a child",
  ask: "an answer of",
  retry: "the next attempt",
  commit: "the disk",
  timer: "its time",
  definition: "a definition that is missing",
};

/** One wait as a sentence: for what, for how long, and what exactly. */
export function waits(wait, now) {
  const long = wait.since ? `, for ${duration(now - Date.parse(wait.since))}` : "",
    until = wait.until ? `, until ${clock(Date.parse(wait.until))}` : "";
  return `Waits for ${WAITS[wait.kind] ?? wait.kind}${long}${until}${wait.what ? `: ${wait.what}` : ""}`;
}

/** A kind of wait, alone. */
export const waitKind = (kind) => WAITS[kind] ?? kind;

// What changes the order of what is read, or hides in it. Joiners stay: scripts and emoji are made of them.
const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** A text in which nothing hides: controls, direction marks and zero-width characters are written out. */
export function plain(text) {
  return String(text ?? "")
    .replace(/\r\n?/g, "\n")
    .replace(HIDDEN, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** The beginning of a text on one line. */
export function line(text, most = 240) {
  const whole = String(text ?? "");
  const flat = plain(whole.slice(0, most * 2))
    .replace(/\s+/g, " ")
    .trim();
  return flat.length > most || whole.length > most * 2 ? `${flat.slice(0, most)}…` : flat;
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/**
 * JSON laid out, if the text is JSON; else the text. Values stay as they are written: a number that JavaScript cannot hold, or a name
 * that stands twice, must not be shown as something else to a person who decides about it.
 */
export function pretty(text) {
  if (text.length > 500_000) return text;
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const tokens = text.match(TOKENS) ?? [];
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  return tokens
    .map((token, at) => {
      if (token === "{" || token === "[") return ((depth += 1), "}]".includes(tokens[at + 1]) ? token : token + line());
      if (token === "}" || token === "]") return ((depth -= 1), "{[".includes(tokens[at - 1]) ? token : line() + token);
      if (token === ",") return token + line();
      return token === ":" ? ": " : token;
    })
    .join("");
}

/** The visible text of content blocks, on one line; reasoning alone only where there is nothing else. */
export function gist(blocks, most = 240) {
  const parts = [],
    said = (blocks ?? []).filter((block) => block.type !== "reasoning");
  for (const block of said.length ? said : (blocks ?? [])) {
    if (block.type === "text" || block.type === "reasoning") parts.push(block.text);
    else if (block.type === "tool-call") parts.push(`${block.name}(${block.arguments ?? ""})`);
    else if (block.type === "tool-result") parts.push(gist(block.content, most));
    else parts.push(`[${block.type}]`);
    if (parts.join(" ").length > most) break;
  }
  return line(parts.join(" "), most);
}
