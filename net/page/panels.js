// The other views of an agent: its inbox, its outbox, its reminders, and its records one by one.

import { attempt } from "./dialog.js";
import { fill, h } from "./dom.js";
import { blocks } from "./texts.js";
import { ago, clock, duration, failure, gist, line, plain } from "./words.js";
import { VirtualList } from "./virtual.js";

const REPLIES = 500;

const LANES = { "next-turn": "Prompt", "next-step": "Steer" };

/** What waits in the inbox, in the order in which it would be taken. */
export async function inbox(page, agent) {
  const items = await page.link.call("pending", { agent });
  if (!items.length) return empty("The inbox is empty.", "What is sent while a turn runs waits here.");
  const withdraw = (item) =>
    attempt(async () => {
      if (!(await page.link.call("withdraw", { agent, message_id: item.message.id })))
        throw new Error("It is too late: a turn has taken it.");
    }, "Withdrawn.").then(() => page.agent.refresh());
  return h(
    "ol.items",
    {},
    items.map((item) =>
      h(
        "li.item",
        {},
        h(
          "p.meta",
          {},
          h(
            "span.tag",
            { class: item.parked ? "parked" : "" },
            item.parked ? "Parked" : item.wake === false ? "Context" : LANES[item.lane],
          ),
          item.sender ? ` from ${plain(item.sender)}` : "",
          item.not_before ? ` · not before ${clock(item.not_before)}` : "",
          ` · seq ${item.seq}`,
        ),
        blocks(item.message.content),
        h(
          "div.buttons",
          {},
          h("button", { type: "button", disabled: !page.may("send"), onclick: () => withdraw(item) }, "Withdraw"),
        ),
      ),
    ),
  );
}

/** Replies to channels, the newest first, and what became of them. */
export function outbox(timeline) {
  const replies = [...timeline.outbox.values()].reverse().slice(0, REPLIES);
  if (!replies.length) return empty("The outbox is empty.", "Replies to channels stand here until they are delivered.");
  return h(
    "ol.items",
    {},
    replies.map((reply) =>
      h(
        "li.item",
        {},
        h(
          "p.meta",
          {},
          h("span.tag", { class: reply.state === "failed" ? "bad" : reply.state === "waiting" ? "parked" : "" }, reply.state),
          ` to ${plain([reply.route?.channel, reply.route?.chat].filter(Boolean).join(":"))} · turn ${reply.turn} · `,
          reply.done ? `${reply.state} after ${duration(reply.done - reply.time)}` : `put ${ago(reply.time)}`,
        ),
        reply.failure ? h("p", { class: "bad" }, plain(failure(reply.failure))) : null,
        blocks(reply.content),
      ),
    ),
  );
}

/** Reminders that are set. */
export async function reminders(page, agent) {
  const timers = await page.link.call("timers", { agent });
  if (!timers.length) return empty("No reminders.", "A reminder is a message for later, kept over restarts.");
  const cancel = (timer) =>
    attempt(async () => {
      if (!(await page.link.call("cancel_timer", { agent, id: timer.id }))) throw new Error("It is too late: it has fired.");
    }, "Taken back.").then(() => page.agent.refresh());
  return h(
    "ol.items",
    {},
    timers.map((timer) =>
      h(
        "li.item",
        {},
        h(
          "p.meta",
          {},
          h("span.tag", {}, ago(Date.parse(timer.due))),
          ` ${clock(Date.parse(timer.due))}`,
          timer.every_s ? ` · every ${duration(timer.every_s * 1000)}` : "",
        ),
        blocks(timer.message.content),
        h(
          "div.buttons",
          {},
          h("button", { type: "button", disabled: !page.may("send"), onclick: () => cancel(timer) }, "Take back"),
        ),
      ),
    ),
  );
}

const empty = (title, hint) => h("div.empty", {}, h("p", {}, title), h("p.hint", {}, hint));

/** Every record but the chunks, one a row. */
export class RecordsList extends VirtualList {
  constructor({ chosen }) {
    super({
      height: 26,
      label: "Records",
      draw: (record) =>
        h(
          "div.record",
          {},
          h("span.seq", {}, record.seq),
          h("span.time", {}, clock(record.time)),
          h("code.type", {}, record.type),
          h("span.what", { dir: "auto" }, about(record)),
        ),
      key: (record) => record.seq,
      stamp: () => 0,
      chosen,
    });
  }
}

const LEFT_OUT = new Set(["seq", "time", "type", "message", "content", "trace"]);

/** A record on one line: its text if it has one, and its other fields. */
function about(record) {
  const text = gist(record.message?.content ?? record.content ?? [], 160);
  const rest = Object.entries(record)
    .filter(([name, value]) => !LEFT_OUT.has(name) && value !== null)
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return line([text, ...rest].filter(Boolean).join(" · "), 220);
}

/** Put what `draw` gives into `body`, or say why it could not be had. */
export async function into(body, draw, words) {
  try {
    fill(body, await draw());
  } catch (error) {
    fill(body, h("p", { class: "bad", role: "alert" }, words(error)));
  }
}
