// Differences: between two texts, line by line, and between two requests. Pure.

const MOST_WORK = 1_500_000;

/** The lines of both texts in order: `[{sign: " " | "-" | "+", text}]`. Texts too different to compare in time are told as a whole. */
export function lines(before, after) {
  const a = before.split("\n"),
    b = after.split("\n");
  let head = 0,
    tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const middle = between(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  const same = (text) => ({ sign: " ", text });
  return [...a.slice(0, head).map(same), ...middle, ...a.slice(a.length - tail).map(same)];
}

/** The longest common subsequence, by the table; what is too long for that is replaced whole. */
function between(a, b) {
  const gone = (text) => ({ sign: "-", text }),
    come = (text) => ({ sign: "+", text });
  if (!a.length || !b.length || a.length * b.length > MOST_WORK) return [...a.map(gone), ...b.map(come)];
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] =
        a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const found = [];
  let i = 0,
    j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) (found.push({ sign: " ", text: a[i] }), (i += 1), (j += 1));
    else if (table[(i + 1) * width + j] >= table[i * width + j + 1]) (found.push(gone(a[i])), (i += 1));
    else (found.push(come(b[j])), (j += 1));
  }
  return [...found, ...a.slice(i).map(gone), ...b.slice(j).map(come)];
}

/** Runs of unchanged lines longer than twice `around` are cut: `{sign: "…", count}` stands for them. */
export function cut(all, around = 3) {
  const found = [];
  for (let at = 0; at < all.length;) {
    let end = at;
    while (end < all.length && all[end].sign === " ") end += 1;
    if (end === at) {
      found.push(all[at]);
      at += 1;
      continue;
    }
    const before = at === 0 ? 0 : around,
      after = end === all.length ? 0 : around;
    if (end - at > before + after + 1)
      found.push(...all.slice(at, at + before), { sign: "…", count: end - at - before - after }, ...all.slice(end - after, end));
    else found.push(...all.slice(at, end));
    at = end;
  }
  return found;
}

const stable = (value) =>
  JSON.stringify(value, (_, v) =>
    v && typeof v === "object" && !Array.isArray(v)
      ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)))
      : v,
  );

/** What differs between two requests: fields, the system prompt, tools; messages that went and came, and how many stayed. */
export function requests(before, after) {
  const fields = [];
  const one = flat(before),
    two = flat(after);
  for (const name of [...new Set([...Object.keys(one), ...Object.keys(two)])].sort()) {
    if (one[name] !== two[name]) fields.push({ name, before: one[name], after: two[name] });
  }
  return {
    fields,
    system: before.system === after.system ? null : lines(before.system, after.system),
    tools: tools(before.tools, after.tools),
    kept: after.kept,
    gone: before.messages.slice(Math.max(0, after.kept - before.first)),
    come: after.messages.slice(Math.max(0, after.kept - after.first)),
  };
}

function flat({ provider, model, settings, output }) {
  const found = { provider, model };
  for (const [name, value] of Object.entries(settings ?? {})) if (value !== null) found[`settings.${name}`] = stable(value);
  if (output) found.output = stable(output);
  return found;
}

function tools(before, after) {
  const one = new Map(before.map((tool) => [tool.name, tool])),
    two = new Map(after.map((tool) => [tool.name, tool]));
  return {
    gone: before.filter((tool) => !two.has(tool.name)),
    come: after.filter((tool) => !one.has(tool.name)),
    changed: after
      .filter((tool) => one.has(tool.name) && stable(one.get(tool.name)) !== stable(tool))
      .map((tool) => ({ before: one.get(tool.name), after: tool })),
  };
}
