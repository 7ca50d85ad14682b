// What a person can do to an agent: write to it, stop it, fork it. Everything that is sent has an id of its own, so that a connection
// that breaks meanwhile cannot send it twice.

import { attempt, dialog, field, form, tell, tick, words } from "./dialog.js";
import { h } from "./dom.js";
import { plain } from "./words.js";

const WAYS = [
  ["followup", "Prompt", "A turn of its own, after those that wait."],
  ["steer", "Steer", "Into the running turn, before its next model call."],
  ["inject", "Context", "Read at the next model call; wakes nobody."],
];

/** A new id, also where the page has no secure context. */
export function mint() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `page-${[...bytes].map((byte) => byte.toString(36).padStart(2, "0")).join("")}`;
}

/** The box to write in. */
export class Composer {
  constructor(page) {
    this.page = page;
    this.agent = null;
    this.unsent = null;
    this.text = h("textarea", {
      rows: 1,
      placeholder: "Write to this agent",
      "aria-label": "Message",
      "aria-keyshortcuts": "m",
      onkeydown: (event) => this.press(event),
      oninput: () => this.grow(),
    });
    this.way = h(
      "select",
      { "aria-label": "How it is sent", onchange: () => this.explain() },
      WAYS.map(([value, label]) => h("option", { value }, label)),
    );
    this.button = h("button.primary", { type: "submit" }, "Send");
    this.hint = h("p.hint", { "aria-live": "polite" });
    this.element = h(
      "form.composer",
      { onsubmit: (event) => (event.preventDefault(), this.send()) },
      this.text,
      h("div.with", {}, this.way, this.hint, this.button),
    );
    this.explain();
  }

  show(agent) {
    if (agent !== this.agent) this.unsent = null;
    this.agent = agent;
    const may = this.page.may("send");
    for (const control of [this.text, this.way, this.button]) control.disabled = !may;
    this.text.placeholder = may ? "Write to this agent" : "This token may only read.";
  }

  explain() {
    this.hint.textContent = WAYS.find(([value]) => value === this.way.value)[2];
  }

  grow() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(this.text.scrollHeight + 2, 220)}px`;
  }

  press(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.send();
  }

  async send() {
    const content = this.text.value;
    if (!content.trim() || this.button.disabled) return;
    // The same text under the same id: pressing Send again after an error cannot send it twice.
    if (this.unsent?.content !== content || this.unsent.method !== this.way.value)
      this.unsent = { content, method: this.way.value, id: mint() };
    const { id, method } = this.unsent;
    this.button.disabled = true;
    this.element.classList.add("sending");
    try {
      await this.page.link.call(method, { agent: this.agent, content, message_id: id });
      this.unsent = null;
      if (this.text.value === content) this.text.value = "";
      this.grow();
    } catch (error) {
      tell(words(error), { bad: true });
    }
    this.element.classList.remove("sending");
    this.button.disabled = !this.page.may("send");
  }
}

/** Ask whether to stop, and how. */
export function stop(page, agent) {
  const what = [
    h("p", {}, "The turn that runs is ended, with those of its children. What a tool has done stays done."),
    tick("Keep what waits in the inbox (parked, until the next message)", "keep", true),
  ];
  return form(
    `Stop ${plain(agent)}?`,
    what,
    async (data) => {
      await page.link.call("cancel", { agent, keep_inbox: data.has("keep") });
      tell("The stop is in the log.");
      return true;
    },
    { send: "Stop", danger: true },
  );
}

/** Ask where to fork, and go to the fork. Either `at` (behind a record) or `turn` (just before it). */
export function fork(page, agent, { at = null, turn = null } = {}) {
  const where =
    turn !== null
      ? `The fork has all records before turn ${turn}.`
      : at !== null
        ? `The fork has all records up to seq ${at}.`
        : "The fork has all records up to now.";
  const id = h("input", { name: "id", value: `${agent}~${mint().slice(5, 11)}`, required: true, spellcheck: "false" });
  const definition = h("input", { name: "definition", spellcheck: "false", placeholder: "the same" });
  const fields = [
    h("p", {}, `${where} It shares them, and copies nothing.`),
    field("Id of the fork", id),
    field("Definition", definition, "The name of another one, to see what it makes of it."),
    turn !== null && tick(`Run turn ${turn} again`, "rerun", true),
  ];
  return form(
    `Fork ${plain(agent)}`,
    fields,
    async (data) => {
      const params = { agent, id: data.get("id"), ...(turn !== null ? { turn } : at !== null ? { at } : {}) };
      if (data.get("definition")) params.definition = data.get("definition");
      if (data.has("rerun")) params.rerun = true;
      const made = await page.link.call("fork", params);
      tell("The fork is there.");
      page.open(made.id);
      return true;
    },
    { send: "Fork" },
  );
}

/** Take up the open turn of a fork. */
export const resume = (page, agent) =>
  attempt(() => page.link.call("resume", { agent }).then(() => true), "The open turn is taken up.");

const KEYS = [
  ["/", "Search agents"],
  ["j  k  ↓  ↑", "Down and up in a list"],
  ["h  l  ←  →", "Close and open a part of it"],
  ["Enter", "Open what is chosen"],
  ["g  t  d", "Go to agents, timeline, details"],
  ["1  2  3  4  5", "Timeline, inbox, outbox, reminders, records"],
  ["o  O", "Open all turns, close all turns"],
  ["r", "The request behind what is chosen"],
  ["m", "Write a message"],
  ["x", "Stop"],
  ["f", "Fork from what is chosen"],
  ["a", "Questions that wait for a person"],
  ["c", "Light, dark, as the system"],
  ["Escape", "Back; close"],
  ["?", "This list"],
];

/** The keys, and how to leave. */
export function help(page) {
  return dialog("Keys", () => [
    h(
      "table.keys",
      {},
      h(
        "tbody",
        {},
        KEYS.map(([key, what]) =>
          h(
            "tr",
            {},
            h(
              "th",
              { scope: "row" },
              key.split("  ").map((one, n) => [n ? " " : "", h("kbd", {}, one)]),
            ),
            h("td", {}, what),
          ),
        ),
      ),
    ),
    h(
      "label.tick",
      {},
      h("input", { type: "checkbox", checked: page.keys.on, onchange: (event) => page.keys.set(event.target.checked) }),
      "Single keys act at once (Escape, Enter, Tab and arrows always do)",
    ),
    h(
      "p.hint",
      {},
      `Callboard ${page.link.hello?.version ?? ""}. This token may ${(page.link.hello?.scopes ?? []).join(", ") || "nothing"}${page.link.hello?.prefix ? `, with agents whose ids begin ${plain(page.link.hello.prefix)}` : ""}.`,
    ),
    h("form", { method: "post", action: "/logout" }, h("button", { type: "submit" }, "Sign out")),
  ]);
}
