// Dialogs, and the words that the page says by itself: one place for errors and for what was done.

import { fill, h } from "./dom.js";

const TOLD_MS = 9000;

/** Say something, where a screen reader hears it too. */
export function tell(text, { bad = false } = {}) {
  const note = h(
    "p.note",
    { class: bad ? "bad" : "" },
    text,
    h("button.quiet", { type: "button", "aria-label": "Dismiss", onclick: () => note.remove() }, "×"),
  );
  const told = document.getElementById("told");
  while (told.children.length > 3) told.firstChild.remove();
  told.append(note);
  setTimeout(() => note.remove(), bad ? TOLD_MS * 2 : TOLD_MS);
}

/** An error in words. */
export function words(error) {
  const text = error.message ?? String(error);
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** Do something that may fail; a failure is said, and false comes back. `done` is said of a success. */
export async function attempt(work, done = null) {
  try {
    const value = await work();
    if (done) tell(done);
    return value ?? true;
  } catch (error) {
    tell(words(error), { bad: true });
    return false;
  }
}

/** Open a dialog; `draw(close)` gives its content. It closes by Escape, by its button, or by `close`. */
export function dialog(title, draw, { name = "dialog.box" } = {}) {
  const element = h(name, { "aria-label": title });
  const before = document.activeElement;
  // The focus goes back at once, and not when the browser comes to it: the next key is meant for the page.
  const close = () => {
    element.close();
    if (element.contains(document.activeElement)) document.activeElement.blur();
    if (before?.isConnected) before.focus();
  };
  const body = h("div.dialog-body");
  element.append(
    h("header", {}, h("h2", {}, title), h("button.quiet", { type: "button", "aria-label": "Close", onclick: close }, "×")),
    body,
  );
  element.addEventListener("close", () => element.remove());
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    close();
  });
  element.addEventListener("click", (event) => event.target === element && close());
  document.body.append(element);
  fill(body, draw(close, body));
  element.showModal();
  (element.querySelector("[autofocus]") ?? element.querySelector("textarea, input, button:not(header button)"))?.focus();
  return element;
}

/** A form in a dialog; `act(form data)` is done when it is sent, and the dialog closes if it went well. */
export function form(title, fields, act, { send = title, danger = false } = {}) {
  return dialog(title, (close) => {
    const button = h("button.primary", { type: "submit", class: danger ? "danger" : "" }, send);
    const submit = async (event) => {
      event.preventDefault();
      button.disabled = true;
      const went = await attempt(() => act(new FormData(event.target)));
      button.disabled = false;
      if (went) close();
    };
    return h(
      "form.stack",
      { onsubmit: submit },
      fields,
      h("div.buttons", {}, h("button", { type: "button", onclick: close }, "Cancel"), button),
    );
  });
}

/** A labelled field. */
export function field(label, input, hint = null) {
  return h("label.field", {}, h("span.label", {}, label), input, hint && h("span.hint", {}, hint));
}

/** A labelled box to tick. */
export function tick(label, name, checked = false) {
  return h("label.tick", {}, h("input", { type: "checkbox", name, checked }), label);
}
