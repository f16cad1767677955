// Runs side by side.

const content = JSON.parse(find("content").textContent);
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

function table(head, rows) {
  return make("table", { class: "compare-table" },
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, ""), ...head.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows));
}

function renderTables() {
  const names = content.runs.map((run) => run.name);
  const row = (name, values, differs) => make("tr", {}, make("th", { scope: "row", class: differs ? "differs" : null }, name),
    ...values.map((value) => make("td", { class: differs ? "differs" : null }, value)));
  fill(find("results"), table(names, content.results.map(([name, ...values]) => row(name, values, false))));
  const only = find("only").checked;
  const settings = content.settings.filter((one) => one.differs || !only);
  fill(find("settings-table"), settings.length ? table(names, settings.map((one) => row(one.name, one.values, one.differs)))
    : make("p", { class: "note" }, "The runs have the same settings."));
  for (const kind of ["ari", "nmi"]) {
    const rows = content[kind].map((values, number) => make("tr", {}, make("th", { scope: "row" }, names[number]), ...values.map((value) => {
      const cell = make("td", {}, value.toFixed(3));
      cell.style.setProperty("--share", Math.max(0, value));
      return cell;
    })));
    const found = table(names, rows);
    found.classList.add("matrix");
    fill(find(kind), found);
  }
}

/** All runs over the same axis: the times of all of them, with gaps where a run has no point. */
function renderOverlay() {
  clearCharts();
  const seconds = [...new Set(content.runs.flatMap((run) => run.curves.seconds))].sort((a, b) => a - b);
  const at = new Map(seconds.map((value, place) => [value, place]));
  const spread = (run, key) => {
    const values = new Array(seconds.length).fill(null);
    run.curves.seconds.forEach((value, place) => { values[at.get(value)] = run.curves[key][place]; });
    return values;
  };
  const charts = CHARTS.flatMap((one) => one.series.map(([key, label]) => ({ ...one, key, title: one.series.length > 1 ? `Clusters, ${label}` : one.title })));
  const places = charts.map((one) => make("div", { class: "chart", role: "img", "aria-label": `${one.title} of ${content.runs.map((run) => run.name).join(", ")}` }));
  fill(find("charts"), ...places);
  charts.forEach((one, number) => plot(places[number], one.title, seconds,
    content.runs.map((run, place) => ({ label: run.name, values: spread(run, one.key), color: place, dash: DASHES[Math.floor(place / 6) % DASHES.length] })), null, one));
}

function renderAll() {
  renderOverlay();
  renderFlow(find("flow-drawing"), content);
}

followTheme(find("theme"), renderAll);
find("only").addEventListener("change", renderTables);
renderTables();
renderAll();
addEventListener("resize", () => { resizeCharts(); renderFlow(find("flow-drawing"), content); });
document.documentElement.dataset.ready = "yes";
