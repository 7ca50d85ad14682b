// The theme, before the first paint: what the reader chose, else what the system says. Loaded as a plain script in the head, since
// a module runs after the page has been drawn once.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("callboard.theme");
  } catch {
    // Storage may be forbidden; then the system decides.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
