// A list that draws only what is seen: ten rows or a hundred thousand cost the same. Rows are of one height; focus stays on the list
// itself and `aria-activedescendant` names the chosen row, so that a row may leave the page and come back without losing it.

import { atFrame, h } from "./dom.js";

const BEYOND = 8;
let lists = 0;

export class VirtualList {
  /**
   * `draw(item, at)` makes a row's element; it is asked again only when `stamp(item)` has changed. `key(item)` names an item for as long
   * as it exists. `chosen(item, how)` hears of a choice, `how` being "move" or "enter"; `seen(from, to)` of what is in view.
   */
  constructor({
    height,
    label,
    role = "listbox",
    draw,
    key,
    stamp,
    chosen,
    seen = () => {},
    level = null,
    expanded = null,
    keys = null,
  }) {
    Object.assign(this, {
      height,
      draw,
      key,
      stamp,
      chosen,
      seen,
      level,
      expanded,
      keys,
      items: [],
      places: new Map(),
      pinned: false,
      revealing: false,
      shifting: 0,
      top: 0,
      drawn: new Map(),
      at: null,
    });
    this.id = `list${++lists}`;
    this.item = role === "tree" ? "treeitem" : "option";
    this.body = h("div.rows", { role: "presentation" });
    this.element = h(
      "div.list",
      { role, tabIndex: 0, "aria-label": label, onscroll: () => this.scrolled(), onkeydown: (event) => this.press(event) },
      this.body,
    );
    this.later = atFrame(() => this.paint());
    new ResizeObserver(() => this.later()).observe(this.element);
  }

  /** The items to show from now on. */
  show(items) {
    this.items = items;
    this.places = null;
    this.later();
  }

  /** The place of the item with this key; -1 if it is not shown. */
  place(key) {
    if (key === null) return -1;
    this.places ??= new Map(this.items.map((item, at) => [this.key(item), at]));
    return this.places.get(key) ?? -1;
  }

  /** Choose the item with this key, without telling anybody. */
  choose(key, { reveal = true } = {}) {
    this.at = key;
    if (key !== null) this.pinned = false;
    this.revealing = reveal;
    this.later();
  }

  /** Scroll so far that the item at this place is seen. */
  reveal(at) {
    if (at < 0) return;
    const top = at * this.height,
      { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) this.element.scrollTop = top + this.height - clientHeight;
  }

  /** Stay at the end, whatever comes and however the list is resized, until the reader scrolls up or chooses something. */
  toEnd() {
    this.pinned = true;
    this.later();
  }

  /** So many items came above what is in view: it stays where it is. */
  shift(items) {
    this.shifting += items * this.height;
    this.pinned = false;
    this.later();
  }

  scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    if (this.pinned && scrollTop < this.top && scrollTop + clientHeight < scrollHeight - this.height) this.pinned = false;
    this.top = scrollTop;
    this.later();
  }

  /** Go on by so many items, and tell. */
  move(by) {
    if (!this.items.length) return;
    const now = this.place(this.at),
      last = this.items.length - 1;
    const next = now >= 0 ? Math.min(Math.max(now + by, 0), last) : by === -1 || by === Infinity ? last : 0;
    this.choose(this.key(this.items[next]));
    this.chosen(this.items[next], "move");
  }

  enter() {
    const at = this.place(this.at);
    if (at >= 0) this.chosen(this.items[at], "enter");
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.element) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const item = this.items[this.place(this.at)];
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === "Enter") this.enter();
    else if (!(item && this.keys?.(event.key, item))) return;
    event.preventDefault();
    event.stopPropagation();
  }

  paint() {
    this.body.style.height = `${this.items.length * this.height}px`;
    if (this.pinned) {
      this.element.scrollTop = this.items.length * this.height;
      this.top = this.element.scrollTop; // as far as it could go
    }
    if (this.shifting) this.element.scrollTop += this.shifting;
    this.shifting = 0;
    if (this.revealing) this.reveal(this.place(this.at));
    this.revealing = false;
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - BEYOND);
    const last = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / this.height) + BEYOND);
    const kept = new Map();
    for (let at = first; at < last; at += 1) kept.set(this.key(this.items[at]), this.row(at));
    for (const [key, { element }] of this.drawn) if (kept.get(key)?.element !== element) element.remove();
    this.drawn = kept;
    let before = null;
    for (const { element } of kept.values()) {
      if (element.parentNode !== this.body || element.previousSibling !== before)
        this.body.insertBefore(element, before ? before.nextSibling : this.body.firstChild);
      before = element;
    }
    if (kept.has(this.at)) this.element.setAttribute("aria-activedescendant", kept.get(this.at).element.id);
    else this.element.removeAttribute("aria-activedescendant");
    this.seen(first, last);
  }

  row(at) {
    const item = this.items[at],
      key = this.key(item),
      stamp = this.stamp(item);
    const old = this.drawn.get(key);
    const row = old && old.stamp === stamp ? old : { stamp, element: this.make(item, at) };
    const { element } = row;
    element.style.transform = `translateY(${at * this.height}px)`;
    element.id = `${this.id}-${at}`;
    element.setAttribute("aria-setsize", this.items.length);
    element.setAttribute("aria-posinset", at + 1);
    element.setAttribute("aria-selected", key === this.at);
    if (this.level) element.setAttribute("aria-level", this.level(item) + 1);
    const expanded = this.expanded?.(item) ?? null;
    if (expanded !== null) element.setAttribute("aria-expanded", expanded);
    else element.removeAttribute("aria-expanded");
    return row;
  }

  make(item, at) {
    const element = this.draw(item, at);
    element.setAttribute("role", this.item);
    element.style.height = `${this.height}px`;
    element.addEventListener("click", (event) => {
      if (event.defaultPrevented) return;
      this.choose(this.key(item), { reveal: false });
      this.chosen(item, "enter");
    });
    return element;
  }
}
