"use strict";
// Runs before the page is drawn: the chosen colours are kept from page to page.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const KEY = "evenhand-theme";
  try {
    const kept = localStorage.getItem(KEY);
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
    document.addEventListener("click", (event) => {
      // page.js has switched the colours by now: its listener is on the button itself.
      if (event.target.id === "theme" && root.dataset.theme) localStorage.setItem(KEY, root.dataset.theme);
    });
  } catch {
    // Without storage, the colours are those of the system on every page.
  }
})();
