// From content to page, and what keeps the page up to date.

/** Everything that depends on the cut and on a person's changes. */
function refresh() {
  if (!clustering()) return;
  regroup();
  renderCut();
  renderCards();
  renderEdits();
  renderMap();
  renderTree();
  renderClasses();
}

function setLevel(clusters) {
  const { finest } = clustering().levels;
  const level = Math.min(finest, Math.max(1, clusters));
  if (level === state.level) return;
  state.level = level;
  refresh();
}

function renderCut() {
  const { own, finest } = clustering().levels;
  const slider = find("cut");
  show(find("cut-part"), finest > 1 && Boolean(clustering().tree));
  slider.min = 1;
  slider.max = finest;
  slider.value = state.level;
  slider.setAttribute("aria-valuetext", `${state.level} of at most ${finest} clusters`);
  find("cut-words").textContent = state.level === own ? `${own}, as found` : `${state.level} of at most ${finest}`;
  show(find("cut-back"), state.level !== own);
}

function renderHead() {
  const { title, sentence, facts, run, quarantine } = state.content;
  document.title = `${title} · ${run.name}`;
  find("title").textContent = title;
  fillSentence(find("sentence"), sentence);
  fillFacts(find("facts"), facts);
  show(find("quarantine"), quarantine.length > 0);
  fill(find("quarantined"), ...quarantine.map((row) => make("tr", {}, make("td", { class: "name" }, row.file), make("td", {}, row.reason))));
  find("quarantine-count").textContent = `${count(quarantine.length)} ${quarantine.length === 1 ? "file was" : "files were"} left out.`;
  fill(find("settings-rows"), ...Object.entries(run.settings).map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value))));
}

/** Show a content: the one in the page, or a newer one while the run goes on. */
function load(content) {
  const before = state.content && clustering() ? { level: state.level, own: ownLevel() } : null;
  if (state.images) state.images.urls.filter(Boolean).forEach((url) => URL.revokeObjectURL(url));
  state.content = content;
  renderHead();
  renderCurves();
  const seen = Boolean(content.clustering);
  for (const id of ["clusters", "map", "tree", "classes"]) show(find(id), seen);
  show(find("waiting"), !seen);
  if (!seen) return;
  state.images = unpackImages(content.clustering.images);
  state.level = before && before.level !== before.own ? Math.min(before.level, content.clustering.levels.finest) : appliedLevel();
  find("map-method").textContent = content.clustering.map;
  loadEdits();
  refresh();
}

function start() {
  followTheme(find("theme"), () => { renderCurves(); refresh(); });
  find("cut").addEventListener("input", (event) => setLevel(Number(event.target.value)));
  find("cut-back").addEventListener("click", () => setLevel(ownLevel()));
  find("filter").addEventListener("input", renderCards);
  find("sort").addEventListener("change", renderCards);
  find("save").addEventListener("click", save);
  find("reset").addEventListener("click", resetEdits);
  startGallery();
  startMap();
  load(JSON.parse(find("content").textContent));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    resizeCharts();
    if (clustering()) { renderMap(); renderTree(); }
  });
  document.documentElement.dataset.ready = "yes";
  if (state.content.live) follow();
}

start();
