// Curves over time, with the stages shaded and the rebuilding of clusters marked. Drawn by uPlot.

const CHARTS = [
  { title: "Surprise S", series: [["surprise", "S", 0]], digits: 3 },
  { title: "Orderliness Ω", series: [["orderliness", "Ω", 1]], digits: 3 },
  { title: "Agreement of the views", series: [["agreement", "agreement", 2]], share: true },
  { title: "Clusters", series: [["surprising", "surprising", 0], ["active", "active", 4]], digits: 0 },
];
const drawn = [];

/** What a chart shows besides its curves: stages as stripes, rebuilding as ticks at the bottom; then the stages' names. */
function stageHooks(latest) {
  const prepared = (plot) => {
    const { left, width } = plot.bbox;
    return { pen: plot.ctx, ratio: window.devicePixelRatio || 1, curves: latest(), ...plot.bbox,
      at: (seconds) => Math.min(left + width, Math.max(left, plot.valToPos(seconds, "x", true))) };
  };
  const stripes = (plot) => {
    const { pen, ratio, curves, at, top, height } = prepared(plot);
    pen.save();
    pen.fillStyle = themeColor("stripe");
    curves.stages.forEach((stage, number) => {
      if (number % 2 === 0) pen.fillRect(at(stage.from), top, at(stage.to) - at(stage.from), height);
    });
    pen.fillStyle = themeColor("accent");
    for (const mark of curves.marks) {
      const [size, wide] = mark.kind === "merge" ? [height, 1.5 * ratio] : [7 * ratio, ratio];
      pen.globalAlpha = mark.kind === "merge" ? 0.5 : 0.9;
      pen.fillRect(at(mark.seconds) - wide / 2, top + height - size, wide, size);
    }
    pen.restore();
  };
  const names = (plot) => {
    const { pen, ratio, curves, at, top } = prepared(plot);
    pen.save();
    pen.font = `${11 * ratio}px system-ui, sans-serif`;
    pen.textBaseline = "bottom";
    pen.textAlign = "left";
    pen.fillStyle = themeColor("quiet");
    for (const stage of curves.stages) {
      const room = at(stage.to) - at(stage.from);
      if (pen.measureText(stage.name).width < room) pen.fillText(stage.name, at(stage.from) + 2 * ratio, top - 2 * ratio);
    }
    pen.restore();
  };
  return { drawClear: [stripes], draw: [names] };
}

function axis(extra) {
  return { stroke: themeColor("quiet"), grid: { stroke: themeColor("line"), width: 1 }, ticks: { stroke: themeColor("line"), width: 1 },
    font: "11px system-ui, sans-serif", ...extra };
}

/** Distances of marks on the time axis: round in seconds, minutes and hours. */
const TIMES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18_000, 36_000, 86_400, 172_800, 432_000];

function roomIn(place) {
  const { paddingLeft, paddingRight } = getComputedStyle(place);
  return Math.max(200, (place.clientWidth || 400) - parseFloat(paddingLeft) - parseFloat(paddingRight));
}

/** One chart. ``lines``: label, values, color number, dash; all over the same ``seconds``. */
function plot(place, title, seconds, lines, hooks, { digits = 3, share = false } = {}) {
  const format = (value) => (value === null || value === undefined ? "–" : share ? percent(value, 1) : value.toFixed(digits));
  const options = {
    width: roomIn(place), height: 210, title,
    cursor: { sync: { key: "curves" }, y: false, points: { size: 6 } },
    legend: { show: true, live: true },
    scales: { x: { time: false } },
    padding: [16, 10, 0, 0],
    axes: [axis({ values: (_, marks) => marks.map(duration), space: 60, size: 34, incrs: TIMES }),
      axis({ values: (_, marks) => marks.map((mark) => (share ? percent(mark) : String(Math.round(mark * 1000) / 1000))), size: 54 })],
    series: [{ label: "time", value: (_, value) => (value === null ? "–" : duration(value)) },
      ...lines.map((line) => ({ label: line.label, stroke: look(line.color).color, width: 1.6, dash: line.dash, spanGaps: true,
        points: { show: seconds.length < 12 }, value: (_, value) => format(value) }))],
    hooks: hooks || {},
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
    if (place.clientWidth && roomIn(place) !== chart.width) chart.setSize({ width: roomIn(place), height: 210 });
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
    one.series.map(([key, label, color]) => ({ label, values: curves[key], color })), stageHooks(() => state.content.curves), one));
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
