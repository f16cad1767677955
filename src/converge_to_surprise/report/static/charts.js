// Curves over time, with the stages shaded and the rebuilding of clusters marked. Drawn by uPlot.

const CHARTS = [
  { title: "Surprise S", series: [["surprise", "S", 0]], digits: 3 },
  { title: "Orderliness Ω", series: [["orderliness", "Ω", 1]], digits: 3 },
  { title: "Agreement of the views", series: [["agreement", "agreement", 2]], share: true },
  { title: "Clusters", series: [["surprising", "surprising", 0], ["active", "active", 4]], digits: 0 },
];
const drawn = [];

/** What lies behind the curves: stages as stripes with their names, rebuilding as ticks at the bottom. */
function background(latest) {
  return (plot) => {
    const curves = latest();
    const pen = plot.ctx;
    const { left, top, width, height } = plot.bbox;
    const ratio = window.devicePixelRatio || 1;
    const at = (seconds) => Math.min(left + width, Math.max(left, plot.valToPos(seconds, "x", true)));
    pen.save();
    pen.font = `${11 * ratio}px system-ui, sans-serif`;
    pen.textBaseline = "top";
    (curves.stages || []).forEach((stage, number) => {
      const from = at(stage.from), to = at(stage.to);
      if (number % 2 === 0) {
        pen.fillStyle = themeColour("stripe");
        pen.fillRect(from, top, to - from, height);
      }
      pen.fillStyle = themeColour("quiet");
      const words = stage.name;
      if (pen.measureText(words).width < to - from - 8 * ratio) pen.fillText(words, from + 4 * ratio, top + 4 * ratio);
    });
    pen.fillStyle = themeColour("accent");
    for (const mark of curves.marks || []) {
      const size = mark.kind === "merge" ? height : 7 * ratio;
      pen.globalAlpha = mark.kind === "merge" ? 0.5 : 0.9;
      pen.fillRect(at(mark.seconds) - ratio / 2, top + height - size, mark.kind === "merge" ? 1.5 * ratio : ratio, size);
    }
    pen.restore();
  };
}

function axis(extra) {
  return { stroke: themeColour("quiet"), grid: { stroke: themeColour("line"), width: 1 }, ticks: { stroke: themeColour("line"), width: 1 },
    font: "11px system-ui, sans-serif", ...extra };
}

/** One chart. ``lines``: label, values, colour number, dash; all over the same ``seconds``. */
function plot(place, title, seconds, lines, behind, { digits = 3, share = false } = {}) {
  const format = (value) => (value === null || value === undefined ? "–" : share ? percent(value, 1) : value.toFixed(digits));
  const options = {
    width: place.clientWidth || 400, height: 210, title,
    cursor: { sync: { key: "curves" }, y: false, points: { size: 6 } },
    legend: { show: true, live: true },
    scales: { x: { time: false } },
    axes: [axis({ values: (_, marks) => marks.map(duration), space: 70 }),
      axis({ values: (_, marks) => marks.map((mark) => (share ? percent(mark) : String(Math.round(mark * 1000) / 1000))), size: 54 })],
    series: [{ label: "time", value: (_, value) => (value === null ? "–" : duration(value)) },
      ...lines.map((line) => ({ label: line.label, stroke: look(line.colour).colour, width: 1.6, dash: line.dash, spanGaps: true,
        points: { show: seconds.length < 12 }, value: (_, value) => format(value) }))],
    hooks: { drawClear: behind ? [behind] : [] },
  };
  const chart = new uPlot(options, [seconds, ...lines.map((line) => line.values)], place);
  drawn.push({ chart, place });
  return chart;
}

function clearCharts() {
  drawn.splice(0).forEach(({ chart }) => chart.destroy());
}

function resizeCharts() {
  for (const { chart, place } of drawn) {
    if (place.clientWidth && place.clientWidth !== chart.width) chart.setSize({ width: place.clientWidth, height: 210 });
  }
}

/** The curves of one run. */
function renderCurves() {
  const { curves } = state.content;
  clearCharts();
  show(find("curves"), curves.seconds.length > 0);
  if (!curves.seconds.length) return;
  const places = CHARTS.map((one) => make("div", { class: "chart", role: "img", "aria-label": describeCurve(one, curves) }));
  fill(find("charts"), ...places);
  CHARTS.forEach((one, number) => plot(places[number], one.title, curves.seconds,
    one.series.map(([key, label, colour]) => ({ label, values: curves[key], colour })), background(() => state.content.curves), one));
}

/** More of the same curves, while a run goes on. */
function extendCurves() {
  const { curves } = state.content;
  if (!drawn.length) { renderCurves(); return; }
  CHARTS.forEach((one, number) => drawn[number].chart.setData([curves.seconds, ...one.series.map(([key]) => curves[key])]));
}

function describeCurve(one, curves) {
  const ends = one.series.map(([key, label]) => `${label} from ${curves[key][0]} to ${curves[key].at(-1)}`);
  return `${one.title} over ${duration(curves.seconds.at(-1))}: ${ends.join(", ")}`;
}
