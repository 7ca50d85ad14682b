// Making elements. Everything that comes from a log enters the page as a text node or as an attribute of a known name, never as
// markup, so that nothing an agent, a model or a tool writes can be more than text.

const PROPERTIES = new Set(["disabled", "value", "checked", "hidden", "open", "tabIndex", "rows", "htmlFor", "type", "name"]);

/** An element: `h("button.quiet", {onclick, "aria-label": "Close"}, "Close")`. Children are nodes, texts, or lists; null is left out. */
export function h(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  element.append(...flat(children));
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "class") element.className += ` ${value}`;
  else if (name === "data") Object.assign(element.dataset, value);
  else if (PROPERTIES.has(name)) element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "");
}

/** Put these in the place of all that an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** Call `draw` once at the next frame, however often it is asked for until then. A hidden page draws when it is seen again. */
export function atFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

/** What the reader chose, kept in this browser where that is allowed. */
export const kept = {
  get(name, otherwise = "") {
    try {
      return localStorage.getItem(`callboard.${name}`) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`callboard.${name}`, value);
    } catch {
      // Storage is forbidden: it holds until the page is left.
    }
  },
};
