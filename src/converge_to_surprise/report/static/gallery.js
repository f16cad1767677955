// All images of a cluster, a page at a time.

const PAGE = 60;
const gallery = { group: null, page: 0, order: "typical" };

const ORDERS = {
  typical: { words: "most typical first", sort: (members) => members },
  doubtful: { words: "least certain first", sort: (members) => [...members].reverse() },
  novel: { words: "most novel first", sort: (members) => [...members].sort((a, b) => state.images.novelty[b] - state.images.novelty[a] || a - b) },
};

function openGallery(id) {
  gallery.group = id;
  gallery.page = 0;
  gallery.order = "typical";
  renderGallery();
  find("gallery").showModal();
  find("gallery").querySelector(".pictures").focus();  // so that the arrows turn pages at once
}

function turn(pages) {
  const group = state.groups.find((one) => one.id === gallery.group);
  const last = Math.max(0, Math.ceil(group.members.length / PAGE) - 1);
  const page = Math.min(last, Math.max(0, gallery.page + pages));
  if (page === gallery.page) return;
  gallery.page = page;
  const pressed = document.activeElement?.dataset.turn;
  renderGallery();
  const button = pressed && find("gallery").querySelector(`[data-turn="${pressed}"]:not(:disabled)`);
  (button || find("gallery").querySelector(".pictures")).focus();
}

function picture(position) {
  const { second, secondConfidence, viewsAgree } = state.images;
  const name = imageName(position);
  const sure = `${percent(confidenceOf(position), 1)}${viewsAgree[position] ? "" : ", views differ"}`;
  const next = second[position] < 0 ? null : `then ${clusterName(second[position])}, ${percent(secondConfidence[position] / 10_000, 1)}`;
  const label = state.images.class ? clustering().classes[state.images.class[position]] : null;
  return make("figure", {},
    thumb(position, 72),
    make("figcaption", {},
      make("span", { class: "name", title: name }, name),
      make("span", {}, sure),
      noveltyOf(position) ? make("span", {}, noveltyOf(position)) : null,
      next ? make("span", { class: "quiet" }, next) : null,
      label ? make("span", { class: "quiet" }, label) : null));
}

function renderGallery() {
  const group = state.groups.find((one) => one.id === gallery.group);
  const members = ORDERS[gallery.order].sort(group.members);
  const pages = Math.max(1, Math.ceil(members.length / PAGE));
  const from = gallery.page * PAGE;
  const order = make("select", { id: "gallery-order", onchange: (event) => {
    gallery.order = event.target.value;
    gallery.page = 0;
    renderGallery();
    find("gallery-order").focus();
  } }, ...Object.entries(ORDERS).filter(([name]) => name !== "novel" || state.images.novelty)
    .map(([name, { words }]) => make("option", { value: name }, words)));
  order.value = gallery.order;
  const button = (words, pagesOn, off) => make("button", { type: "button", "data-turn": pagesOn, disabled: off, onclick: () => turn(pagesOn) }, words);
  const some = members.length < group.size ? `, ${count(members.length)} of them shown` : "";
  fill(find("gallery"),
    make("header", {},
      make("h2", {}, sign(group.look), group.name),
      make("p", { class: "facts" }, `${images(group.size)}${some}`),
      make("label", { for: "gallery-order", class: "hidden-label" }, "Order"), order,
      make("button", { type: "button", class: "close", onclick: () => find("gallery").close() }, "Close")),
    make("div", { class: "pictures", tabindex: 0, "aria-label": `Images of ${group.name}` },
      ...members.slice(from, from + PAGE).map(picture)),
    make("footer", {},
      button("← Earlier", -1, gallery.page === 0),
      make("span", { role: "status" }, `page ${gallery.page + 1} of ${pages}`),
      button("Later →", 1, gallery.page === pages - 1)));
}

function startGallery() {
  find("gallery").addEventListener("keydown", (event) => {
    if (event.target.tagName === "SELECT") return;
    if (event.key === "ArrowRight" || event.key === "PageDown") { event.preventDefault(); turn(1); }
    if (event.key === "ArrowLeft" || event.key === "PageUp") { event.preventDefault(); turn(-1); }
  });
  // A click beside the dialog closes it.
  for (const id of ["gallery", "editor"]) {
    find(id).addEventListener("mousedown", (event) => { if (event.target === find(id)) find(id).close(); });
  }
}
