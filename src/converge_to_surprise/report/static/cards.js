// A card per cluster: how large, how surprising, how sure, and what it looks like.

const STRIP = 8;
const PICTURE = 32;

const SORTS = {
  size: (a, b) => b.size - a.size,
  surprise: (a, b) => (b.surprise ?? -1) - (a.surprise ?? -1),
  confidence: (a, b) => b.confidence - a.confidence,
  doubtful: (a, b) => a.confidence - b.confidence,
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
};

/** A row of thumbnails; a click on one shows the images most similar to it, on a stack its near-duplicates. */
function strip(label, covers) {
  const thumbs = make("div", { class: "thumbs" }, ...covers.map(({ position, members }) => {
    const element = thumb(position, PICTURE, `, ${label}, confidence ${percent(confidenceOf(position))}${stackWords(members)}`);
    element.classList.add("opens");
    if (members.length > 1) element.append(badge(members));
    element.addEventListener("click", () => openPicture(position, members));
    return element;
  }));
  thumbs.style.height = `${state.images.height * enlargement(PICTURE)}px`;  // what does not fit into one row is not shown
  return make("div", { class: "strip" }, make("span", { class: "label" }, label), thumbs);
}

function card(group, most) {
  const facts = [];
  if (group.surprise !== null) facts.push(`surprise ${group.surprise.toFixed(3)}`);
  facts.push(`confidence ${percent(group.confidence, 1)}`);
  const open = () => openGallery(group.id);
  const bar = make("span", { class: "share", "aria-hidden": "true" });
  bar.style.width = `${Math.max(1, (100 * group.size) / most)}%`;
  bar.style.background = look(group.look).color;
  const node = nodeOfGroup(group);
  const editable = atOwnLevel() && group.id >= 0 && !state.content.live;
  return make("article", { class: group.surprising ? "card" : "card faint", "data-group": group.id, "data-size": group.size },
    make("header", {}, sign(group.look), make("h3", {}, group.name), make("span", { class: "size" }, images(group.size))),
    bar,
    make("p", { class: "facts" }, facts.join(" · ")),
    group.top === null ? null : make("p", { class: "class quiet" }, `${percent(group.purity)} ${clustering().classes[group.top]}`),
    strip("typical", group.stacks.slice(0, STRIP)),
    strip("boundary", group.stacks.slice(-STRIP).reverse()),
    strip("random", someOf(group.stacks, STRIP)),
    make("footer", {},
      make("button", { type: "button", onclick: open, "aria-label": `Show all images of ${group.name}` }, "All images"),
      node < 0 ? null : make("button", { type: "button", class: "open-node", onclick: () => openNode(node), "aria-label": `Open ${group.name}` }, `Open: ${subtree().nodes[node].children.length} parts`),
      editable ? make("button", { type: "button", class: "quiet", onclick: () => openEditor(group.id), "aria-label": `Edit ${group.name}` }, "Edit") : null));
}

function renderCards() {
  const wanted = find("filter").value.trim().toLowerCase();
  const fits = (group) => {
    const label = group.top === null ? "" : clustering().classes[group.top];
    return !wanted || `${group.name} ${label}`.toLowerCase().includes(wanted);
  };
  const most = Math.max(...state.groups.map((group) => group.size));
  const found = state.groups.filter(fits).sort((a, b) => (a.id < 0) - (b.id < 0) || SORTS[find("sort").value](a, b) || a.id - b.id);
  fill(find("cards"), ...found.map((group) => card(group, most)));
  show(find("nothing"), found.length === 0);
  const real = state.groups.filter((group) => group.id >= 0).length;
  find("count").textContent = `${real} ${real === 1 ? "cluster" : "clusters"}`;
  const { total, shown } = state.images;
  const note = [];
  if (shown < total) note.push(`Showing ${count(shown)} of ${count(total)} images, from the most to the least typical of each cluster; all are counted.`);
  if (state.content.live && !state.content.finished) note.push(`A sample of ${images(total)} at the newest checkpoint.`);
  if (!state.content.run.own) note.push(`These are the images of ${state.content.run.source}, not those that the run was made with.`);
  if (!atOwnLevel()) note.push(`The run itself found ${ownLevel()}. Names and merges belong to that cut.`);
  find("note").textContent = note.join(" ");
}
