// Where classes are known: how the clusters compare with them.

function renderClasses() {
  const names = clustering().classes;
  show(find("classes"), Boolean(names));
  if (!names) return;
  const level = levelNow();
  const edited = atOwnLevel() && state.edits.some((entry) => entry.into !== null || entry.noise);
  const scores = [["Accuracy", level.acc], ["NMI", level.nmi], ["ARI", level.ari]];
  fillFacts(find("scores"), scores.map(([name, value]) => [name, percent(value, 1)]));
  find("scores-note").textContent = edited ? "These three are of the clusters as they were found; the tables below follow your changes." : "";
  fill(find("confusion"), confusionTable(names));
  fill(find("purity"), ...[...state.groups].sort((a, b) => b.size - a.size).map((group) => make("li", {}, sign(group.look),
    make("span", {}, group.name), make("span", {}, `n = ${count(group.size)}`),
    make("span", {}, percent(group.purity, 1)), make("span", { class: "quiet" }, names[group.top]))));
  renderPanels(names);
}

/** Classes as columns, clusters as rows, each beside the class that it mostly is. */
function confusionTable(names) {
  const present = [...new Set(state.groups.flatMap((group) => [...group.classes.keys()]))].sort((a, b) => a - b);
  const rows = [...state.groups].sort((a, b) => a.top - b.top || b.size - a.size);
  const head = make("tr", {}, make("th", { scope: "col" }, "Cluster"), ...present.map((label) => make("th", { scope: "col" }, names[label])));
  const body = rows.map((group) => make("tr", {}, make("th", { scope: "row" }, sign(group.look), group.name),
    ...present.map((label) => {
      const many = group.classes.get(label) || 0;
      const cell = make("td", {}, many ? count(many) : "");
      const share = many / group.size;
      cell.style.setProperty("--share", share);
      if (share > 0.55) cell.className = "strong";
      return cell;
    })));
  return make("table", {}, make("caption", { class: "hidden-label" }, "Images of each class in each cluster"), make("thead", {}, head), make("tbody", {}, ...body));
}

function renderPanels(names) {
  const panels = clustering().panels;
  show(find("panels-part"), panels.length > 0);
  fill(find("panels"), ...panels.map((panel) => make("figure", { class: "panel" },
    make("div", { class: "nine" }, ...panel.shown.map((position) => thumb(position, 32))),
    make("figcaption", {}, make("strong", {}, clusterName(panel.cluster)), make("span", {}, `${names[panel.class]}: ${count(panel.images)}`)))));
}
