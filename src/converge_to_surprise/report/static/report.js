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
  renderInside();
  renderClasses();
}

function renderHead() {
  const { title, sentence, facts, run, quarantine } = state.content;
  document.title = `${title} · ${run.name}`;
  find("title").textContent = title;
  fillSentence(find("sentence"), sentence);
  renderVerdict(state.content.verdict);
  fillFacts(find("facts"), facts);
  show(find("quarantine"), quarantine.length > 0);
  fill(find("quarantined"), ...quarantine.map((row) => make("tr", {}, make("td", { class: "name" }, row.file), make("td", {}, row.reason))));
  find("quarantine-count").textContent = `${count(quarantine.length)} ${quarantine.length === 1 ? "file was" : "files were"} left out.`;
  fill(find("settings-rows"), ...Object.entries(run.settings).map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value))));
}

/** How far the clusters can be trusted, why, and what to try next; nothing before the run is finished. */
function renderVerdict(verdict) {
  const element = find("verdict");
  show(element, Boolean(verdict));
  if (!verdict) return;
  element.dataset.strength = verdict.strength;
  fill(element, make("p", {}, make("strong", {}, `Verdict: ${verdict.strength}`), ` ${verdict.reasons.join("; ")}`),
    verdict.advice.length ? make("p", { class: "advice" }, `What to try: ${verdict.advice.join("; ")}`) : null);
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
  findStacks();
  inside.at = -1;
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
  startInside();
  load(JSON.parse(find("content").textContent));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    resizeCharts();
    if (clustering()) { renderCut(); renderMap(); renderTree(); renderInside(); }
  });
  document.documentElement.dataset.ready = "yes";
  if (state.content.live) follow();
}

start();
