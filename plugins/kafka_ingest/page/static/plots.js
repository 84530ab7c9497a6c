// Plots of the newest batches. The table below them has the same numbers, for those who do not see plots.
"use strict";
(() => {
  const box = document.querySelector("[data-plots]");
  if (!box || typeof uPlot === "undefined") {
    return;
  }
  const data = JSON.parse(document.getElementById(box.dataset.plots).textContent);
  // One batch alone has no time line.
  if (data.at.length < 2) {
    box.hidden = true;
    return;
  }
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const stack = (series) => {
    const sums = data.at.map(() => 0);
    return series.map((values) => values.map((value, i) => (value === null ? null : (sums[i] += value))));
  };
  const kinds = {
    rate: () => ({ series: [data.rate], labels: ["offsets/s"], colors: ["--plot-1"] }),
    offsets: () => ({ series: [data.offsets, data.rows], labels: ["offsets", "rows"], colors: ["--plot-2", "--plot-1"] }),
    phases: () => ({
      // The greatest sum is drawn first, so that each phase is seen above the one before.
      series: stack([data.session, data.stage, data.publish]).reverse(),
      labels: ["publish", "stage", "session"],
      colors: ["--plot-3", "--plot-1", "--plot-2"],
      parts: [data.publish, data.stage, data.session],
    }),
  };
  const short = (value) =>
    value === null || value === undefined ? "-" : new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  const time = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
  const day = (seconds, step) => (step >= 86400 ? time(seconds).slice(5, 10) : time(seconds).slice(11, 16));

  const draw = (element) => {
    const kind = kinds[element.dataset.plot]();
    element.replaceChildren();
    if (kind.series.every((values) => values.every((value) => value === null))) {
      const note = document.createElement("p");
      note.className = "quiet";
      note.textContent = "No attempt has told this yet.";
      element.append(note);
      return;
    }
    const axis = { stroke: style("--quiet"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line") } };
    const bars = uPlot.paths.bars({ size: [0.7, 28, 5] });
    // Room for half a bar on both sides.
    const gap = () => (data.at[data.at.length - 1] - data.at[0]) / (2 * (data.at.length - 1)) || 1;
    // The legend shows the batch that is pointed at, else the newest.
    const newest = (plot) => plot.cursor.idx ?? plot.setLegend({ idx: data.at.length - 1 }, false);
    new uPlot(
      {
        width: Math.max(240, element.clientWidth),
        height: 180,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        cursor: { y: false, drag: { x: true, y: false } },
        hooks: { ready: [newest], setCursor: [newest] },
        scales: { x: { range: (_, low, high) => [low - gap(), high + gap()] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, values: (_, values, __, ___, step) => values.map((value) => day(value, step)) }, { ...axis, size: 56, values: (_, values) => values.map(short) }],
        series: [
          { label: "time", value: (_, value) => (value === null || value === undefined ? "-" : time(value)) },
          ...kind.series.map((_, i) => ({
            label: kind.labels[i],
            stroke: style(kind.colors[i]),
            fill: style(kind.colors[i]),
            paths: bars,
            points: { show: false },
            value: (_, value, __, at) => short(kind.parts && at !== null && at !== undefined ? kind.parts[i][at] : value),
          })),
        ],
      },
      [data.at, ...kind.series],
      element,
    );
    const canvas = element.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${kind.labels.join(", ")} of ${data.at.length} batches; the table below has the numbers`);
  };
  const drawAll = () => box.querySelectorAll("[data-plot]").forEach(draw);
  drawAll();
  let timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(drawAll, 150);
  });
  addEventListener("storage", () => setTimeout(drawAll, 0));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
