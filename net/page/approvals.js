// Questions that wait for a person: a card for each, with what would run, and the three words that can be said. Who said it, and why,
// is kept in the log, so the page asks for a name once and remembers it.

import { attempt, dialog, field } from "./dialog.js";
import { fill, h, kept } from "./dom.js";
import { agentLink, code, prose } from "./texts.js";
import { ago, clock, plain } from "./words.js";

/** A card for one question; `answered(id)` is called when it has its answer. */
export function card(question, { link, may, answered = () => {}, named = true }) {
  const by = h("input", { name: "by", value: kept.get("by"), required: true, autocomplete: "name", "aria-label": "Your name" });
  const text = h("textarea", { name: "text", rows: 2, "aria-label": "Why, or the result to reply with" });
  const buttons = h("div.buttons", {}, ...["allow", "deny", "reply"].map((verdict) => button(verdict)));
  function button(verdict) {
    const words = { allow: "Allow", deny: "Deny", reply: "Reply" }[verdict];
    return h(
      "button",
      { type: "button", class: verdict === "allow" ? "primary" : "", disabled: !may, onclick: () => say(verdict, words) },
      words,
    );
  }
  async function say(verdict, words) {
    if (!by.reportValidity()) return;
    if (verdict === "reply" && !text.value) {
      text.setCustomValidity("Write the result that the model shall read.");
      text.reportValidity();
      text.setCustomValidity("");
      return;
    }
    kept.set("by", by.value);
    for (const each of buttons.children) each.disabled = true;
    const params = { id: question.id, verdict, by: by.value, ...(text.value ? { text: text.value } : {}) };
    const went = await attempt(() => link.call("answer", params), `${words}: the answer is in the log.`);
    for (const each of buttons.children) each.disabled = !may;
    if (went) answered(question.id);
  }
  return h(
    "article.question",
    { "data-id": question.id },
    h("p.ask", { dir: "auto" }, plain(question.question)),
    h(
      "p.meta",
      {},
      named && [agentLink(question.agent), " · "],
      h("code", {}, plain(question.tool || "a call")),
      ` · asked ${ago(Date.parse(question.asked))}`,
      question.expires && ` · expires ${clock(Date.parse(question.expires))}`,
    ),
    question.arguments && code(question.arguments, 1200),
    may
      ? h("div.answer", {}, field("Who decides", by), field("Why, or the result", text))
      : prose("This token may not answer: that needs the scope admin.", "p.hint"),
    buttons,
  );
}

/** All open questions, kept up to date; the button in the bar shows how many there are. */
export class Questions {
  constructor(page, button) {
    Object.assign(this, { page, button, open: [], sheet: null, body: null });
    button.onclick = () => this.show();
    this.draw();
  }

  async refresh() {
    const open = await this.page.link.call("approvals", {});
    const changed = JSON.stringify(open) !== JSON.stringify(this.open);
    this.open = open;
    if (changed) this.draw();
  }

  draw() {
    const count = this.open.length;
    this.button.textContent = count === 0 ? "No questions" : count === 1 ? "1 question" : `${count} questions`;
    this.button.classList.toggle("asked", count > 0);
    if (this.sheet?.open && !this.body.contains(document.activeElement?.closest("input, textarea"))) this.list();
  }

  show() {
    this.sheet = dialog(
      "Questions that wait for a person",
      (close, body) => {
        this.body = body;
        body.addEventListener("click", (event) => event.target.closest("a") && close());
        return this.cards();
      },
      { name: "dialog.box.wide" },
    );
  }

  list() {
    fill(this.body, this.cards());
  }

  cards() {
    if (!this.open.length) return h("p.empty", {}, "Nothing waits for a person.");
    const answered = (id) => {
      this.open = this.open.filter((question) => question.id !== id);
      this.draw();
      this.list();
    };
    return this.open.map((question) => card(question, { link: this.page.link, may: this.page.may("admin"), answered }));
  }
}
