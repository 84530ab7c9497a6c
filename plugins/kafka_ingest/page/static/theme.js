// Light or dark as Airflow's own pages are: its UI keeps the choice in localStorage (next-themes, key "theme").
"use strict";
(() => {
  const apply = () => {
    let chosen = null;
    try {
      chosen = localStorage.getItem("theme");
    } catch {
      // Storage is switched off: the system decides.
    }
    if (chosen === "dark" || chosen === "light") {
      document.documentElement.dataset.theme = chosen;
    } else {
      delete document.documentElement.dataset.theme;
    }
  };
  apply();
  addEventListener("storage", apply);
})();
