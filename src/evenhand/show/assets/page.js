"use strict";
// The page: light and dark theme, sections that fold, the current section in the navigation, the metric of the group chart.
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  const theme = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const showTheme = () => {
    theme.textContent = isDark() ? "◐ Light" : "◐ Dark";
    theme.setAttribute("aria-pressed", String(isDark()));
    theme.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  const picker = document.getElementById("metric-picker");
  if (picker) {
    picker.addEventListener("change", () => {
      for (const panel of document.querySelectorAll("[data-panel]")) {
        panel.hidden = panel.dataset.panel !== picker.value;
      }
    });
  }

  const folds = [...document.querySelectorAll(".fold")].map((fold) => ({ fold, wide: fold.open }));
  const narrow = window.matchMedia("(max-width: 40rem)");
  const foldAll = () => {
    for (const { fold, wide } of folds) fold.open = wide && !narrow.matches;
    // Without a verdict above it, the first section is the answer.
    if (folds.length && !document.querySelector(".verdicts")) folds[0].fold.open = true;
  };
  const reveal = (hash) => {
    const target = document.getElementById(decodeURIComponent(hash.slice(1)));
    const fold = target && target.querySelector(".fold");
    if (fold) fold.open = true;
  };
  narrow.addEventListener("change", foldAll);
  window.addEventListener("beforeprint", () => folds.forEach(({ fold }) => (fold.open = true)));
  window.addEventListener("hashchange", () => reveal(location.hash));
  foldAll();
  reveal(location.hash);

  const links = new Map();
  for (const link of document.querySelectorAll("nav a")) {
    links.set(link.hash.slice(1), link);
    link.addEventListener("click", () => reveal(link.hash));
  }
  const sections = [...document.querySelectorAll("main > section")];
  let current = null;
  const follow = () => {
    const line = window.innerHeight * 0.3;
    const atEnd = window.scrollY > 0 && window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 4;
    const passed = sections.filter((section) => section.getBoundingClientRect().top <= line);
    const section = atEnd ? sections.at(-1) : passed.at(-1) || sections[0];
    const link = links.get(section.id);
    if (!link || link === current) return;
    if (current) current.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    current = link;
    const bar = link.closest("ul");
    if (bar.scrollWidth > bar.clientWidth) bar.scrollLeft = link.offsetLeft - bar.clientWidth / 3;
  };
  let waiting = false;
  const later = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      follow();
    });
  };
  window.addEventListener("scroll", later, { passive: true });
  window.addEventListener("resize", later);
  follow();
})();
