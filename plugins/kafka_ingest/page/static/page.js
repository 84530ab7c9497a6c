// Filters of tables, buttons that copy, and links that leave the frame. Without this file everything can still be read.
"use strict";
(() => {
  for (const field of document.querySelectorAll("input[data-filter]")) {
    const table = document.getElementById(field.dataset.filter);
    const count = field.parentElement.querySelector("[data-filter-count]");
    let timer = 0;
    const filter = () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = [...table.tBodies[0].rows];
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    };
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(filter, 100);
    });
  }

  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("pre");
      const label = button.textContent;
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = label), 2000);
    });
  }

  // Airflow shows the page in a frame that may neither change the window around it nor, in 3.1, download. It is of the
  // same origin, so a link of Airflow's own document is followed in its place.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-leave]");
    if (!link || window.parent === window || event.defaultPrevented || event.button !== 0) {
      return;
    }
    try {
      const outer = window.parent.document;
      const copy = outer.createElement("a");
      copy.href = link.href;
      copy.hidden = true;
      if (link.hasAttribute("download")) {
        copy.download = "";
      }
      if (event.ctrlKey || event.metaKey || event.shiftKey) {
        copy.target = "_blank";
        copy.rel = "noreferrer";
      }
      outer.body.append(copy);
      event.preventDefault();
      copy.click();
      copy.remove();
    } catch {
      // A frame of another origin: the link's own target is followed.
    }
  });
})();
