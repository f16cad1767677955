// Images in a dialog, a page at a time: those of a cluster, those most similar to one, or the near-duplicates of one.

const PAGE = 60;
const gallery = { views: [] };  // the last one is shown; the others are what "Back" leads to

const novelty = ({ position }) => state.images.novelty[position];
const ORDERS = {
  typical: { words: "most typical first", sort: (covers) => covers },
  doubtful: { words: "least certain first", sort: (covers) => [...covers].reverse() },
  novel: { words: "most novel first", sort: (covers) => [...covers].sort((a, b) => novelty(b) - novelty(a) || a.position - b.position) },
};

const viewNow = () => gallery.views[gallery.views.length - 1];
const badge = (members) => make("span", { class: "badge", "aria-hidden": "true" }, `×${members.length}`);
const stackWords = (members) => (members.length > 1 ? `, ${members.length} near-duplicates` : "");

function openGallery(id) { openView({ kind: "cluster", group: id, page: 0, order: "typical" }); }

/** What a click on a picture shows: the near-duplicates that it stands for, or else the images most similar to it. */
function openPicture(position, members = [position]) {
  openView(members.length > 1 ? { kind: "stack", position, members, page: 0 } : { kind: "similar", position, page: 0 });
}

/** Show a view: in the open dialog, on top of what it shows, or else alone. */
function openView(view) {
  const dialog = find("gallery");
  gallery.views = dialog.open ? [...gallery.views, view] : [view];
  renderGallery();
  if (!dialog.open) dialog.showModal();
  const area = dialog.querySelector(".pictures");
  area.scrollTop = 0;
  area.focus();  // so that the arrows turn pages at once
}

function goBack() {
  gallery.views.pop();
  renderGallery();
  find("gallery").querySelector(".pictures").focus();
}

function turn(pages) {
  const view = viewNow();
  const last = Math.max(0, Math.ceil(contentOf(view).covers.length / PAGE) - 1);
  const page = Math.min(last, Math.max(0, view.page + pages));
  if (page === view.page) return;
  view.page = page;
  const pressed = document.activeElement?.dataset.turn;
  renderGallery();
  const button = pressed && find("gallery").querySelector(`[data-turn="${pressed}"]:not(:disabled)`);
  (button || find("gallery").querySelector(".pictures")).focus();
}

/** One image: a button that leads to similar ones or opens a stack, and what is known of the image. */
function picture({ position, members }) {
  const { second, secondConfidence, viewsAgree } = state.images;
  const name = imageName(position);
  const sure = `${percent(confidenceOf(position), 1)}${viewsAgree[position] ? "" : ", views differ"}`;
  const next = second[position] < 0 ? null : `then ${clusterName(second[position])}, ${percent(secondConfidence[position] / 10_000, 1)}`;
  const label = state.images.class ? clustering().classes[state.images.class[position]] : null;
  const group = state.groups[state.groupOf[position]];
  const words = members.length > 1 ? `Open the ${members.length} near-duplicates of ${name}` : `Show images similar to ${name}`;
  return make("figure", {},
    make("button", { type: "button", class: members.length > 1 ? "open stack" : "open", title: words, "aria-label": words,
      onclick: () => openPicture(position, members) }, thumb(position, 72), members.length > 1 ? badge(members) : null),
    make("figcaption", {},
      make("span", { class: "name", title: name }, name),
      viewNow().kind === "cluster" ? null : make("span", { class: "name" }, sign(group.look), group.name),
      make("span", {}, sure),
      noveltyOf(position) ? make("span", {}, noveltyOf(position)) : null,
      next ? make("span", { class: "quiet" }, next) : null,
      label ? make("span", { class: "quiet" }, label) : null));
}

/** Heading, facts and images of a view. */
function contentOf(view) {
  if (view.kind === "cluster") {
    const group = state.groups.find((one) => one.id === view.group);
    const some = group.members.length < group.size ? `, ${count(group.members.length)} of them shown` : "";
    return { title: [sign(group.look), group.name], facts: `${images(group.size)}${some}`, label: `Images of ${group.name}`,
      covers: ORDERS[view.order].sort(group.stacks) };
  }
  const name = imageName(view.position);
  if (view.kind === "stack") {
    return { title: [`Near-duplicates of ${name}`], facts: images(view.members.length), label: `Near-duplicates of ${name}`,
      covers: view.members.map((position) => ({ position, members: [position] })) };
  }
  view.found ??= stacked(similarTo(view.position));
  return { title: [thumb(view.position, 48), `Similar to ${name}`], facts: "most similar first", label: `Images similar to ${name}`, covers: view.found };
}

function orderChoice(view) {
  const order = make("select", { id: "gallery-order", onchange: (event) => {
    view.order = event.target.value;
    view.page = 0;
    renderGallery();
    find("gallery-order").focus();
  } }, ...Object.entries(ORDERS).filter(([name]) => name !== "novel" || state.images.novelty)
    .map(([name, { words }]) => make("option", { value: name }, words)));
  order.value = view.order;
  return [make("label", { for: "gallery-order", class: "hidden-label" }, "Order"), order];
}

function clusterButton(position) {
  const group = state.groups[state.groupOf[position]];
  return make("button", { type: "button", class: "quiet", onclick: () => openGallery(group.id) }, `All of ${group.name}`);
}

function renderGallery() {
  const view = viewNow();
  const { title, facts, label, covers } = contentOf(view);
  const pages = Math.max(1, Math.ceil(covers.length / PAGE));
  const from = view.page * PAGE;
  const button = (words, pagesOn, off) => make("button", { type: "button", "data-turn": pagesOn, disabled: off, onclick: () => turn(pagesOn) }, words);
  find("gallery").setAttribute("aria-label", label);
  fill(find("gallery"),
    make("header", {},
      gallery.views.length > 1 ? make("button", { type: "button", class: "back", onclick: goBack }, "← Back") : null,
      make("h2", {}, ...title),
      make("p", { class: "facts" }, facts),
      ...(view.kind === "cluster" ? orderChoice(view) : [clusterButton(view.position)]),
      make("button", { type: "button", class: "close", onclick: () => find("gallery").close() }, "Close")),
    make("div", { class: "pictures", tabindex: 0, "aria-label": label },
      ...covers.slice(from, from + PAGE).map(picture)),
    make("footer", {},
      button("← Earlier", -1, view.page === 0),
      make("span", { role: "status" }, `page ${view.page + 1} of ${pages}`),
      button("Later →", 1, view.page === pages - 1)));
}

function startGallery() {
  find("gallery").addEventListener("keydown", (event) => {
    if (event.target.tagName === "SELECT") return;
    if (event.key === "ArrowRight" || event.key === "PageDown") { event.preventDefault(); turn(1); }
    if (event.key === "ArrowLeft" || event.key === "PageUp") { event.preventDefault(); turn(-1); }
    if (event.key === "Backspace" && gallery.views.length > 1) { event.preventDefault(); goBack(); }
  });
  // A click beside the dialog closes it.
  for (const id of ["gallery", "editor"]) {
    find(id).addEventListener("mousedown", (event) => { if (event.target === find(id)) find(id).close(); });
  }
}
