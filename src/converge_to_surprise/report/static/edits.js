// What a person makes of the clusters: names, merges, noise. Kept by the browser until it is saved and applied.

const plainEdits = (clusters) => Array.from({ length: clusters }, (_, cluster) => ({ cluster, name: null, into: null, noise: false }));

/** A key for this run and for what was applied to it when the page was made. */
function storageKey() {
  const applied = JSON.stringify([clustering().annotations, clustering().cut, ...(clustering().hierarchy ? [appliedNames()] : [])]);
  let hash = 5381;
  for (let place = 0; place < applied.length; place++) hash = ((hash * 33) ^ applied.charCodeAt(place)) >>> 0;
  return `cts:edits:${state.content.run.identity}:${hash.toString(16)}`;
}

function loadEdits() {
  const applied = plainEdits(clustering().clusters).map((plain, number) => ({ ...plain, ...clustering().annotations[number] }));
  state.edits = applied;
  state.leafNames = keptNames();
  try {
    const kept = JSON.parse(memory.get(storageKey()) || "null");
    const fits = Array.isArray(kept) && kept.length === applied.length && kept.every(isEdit);
    if (fits && !kept.some((_, number) => circular(kept, number))) state.edits = kept;
  } catch { /* not ours */ }
}

function isEdit(entry, number, all) {
  return entry && entry.cluster === number && typeof entry.noise === "boolean"
    && (entry.name === null || typeof entry.name === "string")
    && (entry.into === null || (Number.isInteger(entry.into) && entry.into >= 0 && entry.into < all.length));
}

function circular(edits, number) {
  let at = number;
  for (let steps = 0; edits[at].into !== null; steps++) {
    if (steps > edits.length) return true;
    at = edits[at].into;
  }
  return false;
}

const applied = (number) => ({ ...plainEdits(number + 1)[number], ...clustering().annotations[number] });
const isChanged = (entry) => JSON.stringify(entry) !== JSON.stringify(applied(entry.cluster));
const changes = () => state.edits.filter(isChanged).length;

/** Names of sub-clusters by path: as applied to the run, and as the browser keeps them. */
const appliedNames = () => clustering().hierarchy?.names ?? {};
const namesChanged = () => JSON.stringify(state.leafNames) !== JSON.stringify(appliedNames());
function keptNames() {
  try {
    const kept = JSON.parse(memory.get(`${storageKey()}:parts`) || "null");
    const paths = new Set((clustering().hierarchy?.nodes ?? []).map((node) => node.path));
    const fits = kept && typeof kept === "object" && Object.entries(kept).every(([path, name]) => paths.has(path) && typeof name === "string");
    if (fits) return kept;
  } catch { /* not ours */ }
  return { ...appliedNames() };
}

/** The cut that was applied to the run when the page was made. */
const appliedLevel = () => clustering().cut ?? ownLevel();
const cutChanged = () => state.content.finished && state.level !== appliedLevel();

/** Change one cluster; the page follows. */
function edit(number, change) {
  state.edits = state.edits.map((entry) => (entry.cluster === number ? { ...entry, ...change } : entry));
  keepEdits();
}

function keepEdits() {
  if (changes()) memory.set(storageKey(), JSON.stringify(state.edits));
  else memory.remove(storageKey());
  if (namesChanged()) memory.set(`${storageKey()}:parts`, JSON.stringify(state.leafNames));
  else memory.remove(`${storageKey()}:parts`);
  refresh();
}

function resetEdits() {
  state.edits = state.edits.map((entry) => applied(entry.cluster));
  state.leafNames = { ...appliedNames() };
  state.level = appliedLevel();
  keepEdits();
}

/** The file that `cts relabel` reads: what the clusters of the run are called, and where the tree is cut. */
function clustersFile() {
  const clusters = state.edits.filter((entry) => entry.name !== null || entry.into !== null || entry.noise);
  const file = { format: "converge-to-surprise clusters", version: 1, run: state.content.run.identity, clusters };
  if (!atOwnLevel()) file.n_clusters = state.level;
  if (Object.keys(state.leafNames).length) file.leaves = state.leafNames;
  return `${JSON.stringify(file, null, 1)}\n`;
}

/** A name of its own for every saved file: a browser would number a second one, and the first would be applied. */
const fileName = () => `clusters-${new Date().toISOString().slice(0, 19).replace(/[^0-9]/g, "")}.json`;

function save() {
  const url = URL.createObjectURL(new Blob([clustersFile()], { type: "application/json" }));
  const name = fileName();
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  fill(find("saved"), "Saved. Apply it with: ", make("code", {}, `cts relabel ${state.content.run.place} ${name}`));
}

const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** The dialog in which one cluster is renamed, merged or marked. */
function openEditor(number) {
  const dialog = find("editor");
  const entry = state.edits[number];
  const name = make("input", { id: "edit-name", type: "text", maxlength: 100, placeholder: `Cluster ${number}`, autocomplete: "off" });
  name.value = entry.name ?? "";
  const others = state.edits.filter((other) => other.cluster !== number && other.into === null && !other.noise);
  const into = make("select", { id: "edit-into" }, make("option", { value: "" }, "not merged"),
    ...others.map((other) => make("option", { value: other.cluster }, clusterName(other.cluster))));
  into.value = entry.into ?? "";
  const noise = make("input", { id: "edit-noise", type: "checkbox" });
  noise.checked = entry.noise;
  const exclude = () => { into.disabled = noise.checked; noise.disabled = into.value !== ""; };
  into.addEventListener("change", exclude);
  noise.addEventListener("change", exclude);
  exclude();
  const form = make("form", { method: "dialog", onsubmit: () => {
    const text = name.value.replace(CONTROL, " ").trim().slice(0, 100);
    edit(number, { name: text || null, into: into.value === "" ? null : Number(into.value), noise: noise.checked });
  } },
    make("h2", {}, sign(number), `Edit ${clusterName(number)}`),
    make("label", { for: "edit-name" }, "Name"), name,
    make("label", { for: "edit-into" }, "Merge into"), into,
    make("label", { class: "check" }, noise, "Noise: these images belong nowhere"),
    make("div", { class: "buttons" },
      make("button", { type: "submit", class: "primary" }, "Done"),
      make("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  fill(dialog, form);
  dialog.addEventListener("close", () => focusCard(number), { once: true });
  dialog.showModal();
  name.focus();
}

/** Back to the card that was edited, or to the one that it went into: the button that was pressed may be gone. */
function focusCard(number) {
  const found = document.querySelector(`#cards [data-group="${rootOf(number)}"] footer button:last-child`);
  (found || find("filter")).focus();
}

/** The line that says what was changed, with the button that saves it. */
function renderEdits() {
  const number = changes();
  const bar = find("edits");
  show(bar, number > 0 || cutChanged() || namesChanged());
  const edited = number ? [`${number} ${number === 1 ? "cluster" : "clusters"} changed`] : [];
  if (namesChanged()) edited.push("parts named");
  if (cutChanged()) edited.push(`cut at ${state.level}`);
  find("changes").textContent = edited.join(", ");
  if (!edited.length) find("saved").textContent = "";
  const lines = state.edits.filter((entry) => entry.into !== null || entry.noise).map((entry) => {
    const where = entry.noise ? "is noise" : `was merged into ${rootOf(entry.cluster) < 0 ? "the noise" : clusterName(rootOf(entry.cluster))}`;
    const back = make("button", { type: "button", class: "quiet", onclick: () => edit(entry.cluster, { into: null, noise: false }) },
      entry.noise ? "Unmark" : "Separate");
    return make("li", {}, sign(entry.cluster), `${clusterName(entry.cluster)} ${where}`, back);
  });
  fill(find("merged"), ...lines);
  show(find("merged"), lines.length > 0 && atOwnLevel());
}
