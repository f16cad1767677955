// What is inside the clusters: the tree of sub-clusters, one node at a time, with pictures and the reason for its split.

const ICICLE = { row: 34, gap: 2, least: 30, letter: 6.6 };
const inside = { at: -1 };  // the node that is shown; -1: all clusters

const subtree = () => clustering().hierarchy;
const nodeName = (index) => {
  const { path, parent } = subtree().nodes[index];
  const number = path.split("/").pop();
  return parent < 0 ? clusterName(Number(number)) : state.leafNames[path] ?? `Part ${number}`;
};

/** The node of a cluster, if its cluster was opened and stands for itself. */
function nodeOfGroup(group) {
  if (!subtree() || !atOwnLevel() || group.id < 0 || group.clusters.size > 1) return -1;
  return subtree().nodes.findIndex((node) => node.path === String(group.id) && node.children.length > 0);
}

/** Images shown of a node, most typical first. */
function imagesOfNode(index) {
  const below = new Set([index]);
  subtree().nodes.forEach((node, place) => { if (below.has(node.parent)) below.add(place); });  // parents come first
  const found = [];
  for (let position = 0; position < state.images.shown; position++) if (below.has(state.images.leaf[position])) found.push(position);
  return found.sort((a, b) => state.images.confidence[b] - state.images.confidence[a] || a - b);
}

const natsWords = (node) => (node.children.length ? `its parts explain ${count(Math.round(node.nats))} nats` : "not split");

/** The path to the shown node: each step is a button. */
function trail() {
  const steps = [];
  for (let at = inside.at; at >= 0; at = subtree().nodes[at].parent) steps.unshift(at);
  const button = (words, index) => make("button", { type: "button", class: "quiet", "aria-current": index === inside.at ? "true" : null,
    onclick: () => openNode(index) }, words);
  return make("nav", { class: "trail", "aria-label": "Path" }, button("All clusters", -1),
    ...steps.flatMap((index) => ["›", button(nodeName(index), index)]));
}

const whyLine = (node) => { const line = make("p", { class: "why" }); fillSentence(line, node.why); return line; };

/** One part: its pictures, its size, whether it can be opened, and why not if not. */
function partCard(index) {
  const node = subtree().nodes[index];
  const covers = stacked(imagesOfNode(index));
  const random = someOf(covers, 2 * STRIP);
  const opens = node.children.length > 0;
  return make("article", { class: "card", "data-node": node.path, tabindex: -1 },
    make("header", {}, make("h3", {}, nodeName(index)), make("span", { class: "quiet" }, node.path), make("span", { class: "size" }, images(node.size))),
    opens ? make("p", { class: "facts" }, `${node.children.length} parts; ${natsWords(node)}`) : null,
    whyLine(node),
    strip("typical", covers.slice(0, STRIP)),
    strip("random", random.slice(0, STRIP)),
    random.length > STRIP ? strip("", random.slice(STRIP)) : null,
    make("footer", {},
      opens ? make("button", { type: "button", class: "open-node", onclick: () => openNode(index), "aria-label": `Open ${nodeName(index)}` }, "Open") : null,
      node.parent >= 0 ? nameField(node) : null));
}

function nameField(node) {
  const field = make("input", { type: "text", maxlength: 100, placeholder: "Name", "aria-label": `Name of ${node.path}`, autocomplete: "off" });
  field.value = state.leafNames[node.path] ?? "";
  field.addEventListener("change", () => {
    const text = field.value.replace(CONTROL, " ").trim().slice(0, 100);
    const names = { ...state.leafNames };
    if (text) names[node.path] = text; else delete names[node.path];
    state.leafNames = names;
    keepEdits();
    document.querySelector(`#inside [data-node="${node.path}"] input`)?.focus();
  });
  return field;
}

/** What is written on a bar: as much of name, path and nats as there is room for. */
function barText(index, room) {
  const node = subtree().nodes[index];
  const nats = node.children.length ? ` · ${count(Math.round(node.nats))} nats` : "";
  const own = state.leafNames[node.path] ?? (node.parent < 0 ? state.edits[Number(node.path)]?.name : undefined);
  const name = own ? `${node.path} ${own}` : node.path;
  return [`${name}${nats}`, name, node.path].find((text) => text.length * ICICLE.letter + 10 < room) ?? "";
}

/** All nodes as nested bars: width is the number of images, a row is a round deeper. */
function icicle(width) {
  const { nodes } = subtree();
  const depth = (node) => node.path.split("/").length - 1;
  const rows = 1 + Math.max(...nodes.map(depth));
  const tops = nodes.map((_, index) => index).filter((index) => nodes[index].parent < 0);
  const total = tops.reduce((sum, index) => sum + nodes[index].size, 0) || 1;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${rows * ICICLE.row}`, width, height: rows * ICICLE.row, role: "group", "aria-label": "All nodes of the tree" });
  const place = (index, from, room) => {
    const node = nodes[index];
    const words = `${nodeName(index)} (${node.path}): ${images(node.size)}, ${natsWords(node)}`;
    const box = draw("g", { class: index === inside.at ? "node here" : "node", role: "button", tabindex: 0, "aria-label": words, "data-path": node.path },
      draw("title", {}, words),
      draw("rect", { x: from, y: depth(node) * ICICLE.row, width: Math.max(1, room - ICICLE.gap), height: ICICLE.row - ICICLE.gap, rx: 3 }));
    box.querySelector("rect").style.fill = look(Number(node.path.split("/")[0])).color;
    if (room > ICICLE.least) box.append(draw("text", { x: from + 5, y: depth(node) * ICICLE.row + ICICLE.row / 2 + 4 }, barText(index, room)));
    box.addEventListener("click", () => openNode(index));
    box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); openNode(index); } });
    svg.append(box);
    let at = from;
    for (const child of node.children) {
      const share = (room * nodes[child].size) / (node.size || 1);
      place(child, at, share);
      at += share;
    }
  };
  let at = 0;
  for (const index of tops) { const room = (width * nodes[index].size) / total; place(index, at, room); at += room; }
  return svg;
}

/** How much each hypothesis explains, a line per round. */
function roundsTable() {
  const { rounds } = subtree();
  if (!rounds.length) return "";
  const cells = (tag, texts) => make("tr", {}, ...texts.map((text) => make(tag, tag === "th" ? { scope: "col" } : {}, text)));
  const assumed = (row) => (row.round === 0 ? "H0: pixels are noise" : `H${row.round}: given its ${row.round === 1 ? "cluster" : "part"}, an image is noise`);
  return make("table", { class: "rounds" }, make("thead", {}, cells("th", ["assumption", "clusters tried", "split", "parts then", "explained, nats"])),
    make("tbody", {}, ...rounds.map((row) => cells("td", [`${assumed(row)} – ${row.splits ? "rejected" : "not rejected"}`,
      count(row.tried), count(row.splits), count(row.leaves), count(Math.round(row.nats))]))));
}

/** The node before or after one among the parts of the same node. */
function sibling(index, step) {
  const { nodes } = subtree();
  const all = nodes.map((_, place) => place).filter((place) => nodes[place].parent === nodes[index].parent);
  return all[(all.indexOf(index) + step + all.length) % all.length];
}

function renderInside() {
  const seen = Boolean(subtree());
  show(find("inside"), seen);
  show(find("inside-link"), seen);
  if (!seen) return;
  const { nodes, ending } = subtree();
  find("inside-ending").textContent = `${ending[0].toUpperCase()}${ending.slice(1)}.`;
  fill(find("inside-tree"), icicle(Math.max(280, find("inside-tree").clientWidth || 280)));
  const shown = inside.at < 0 ? nodes.map((_, index) => index).filter((index) => nodes[index].parent < 0)
    : nodes[inside.at].children.length ? nodes[inside.at].children : [inside.at];
  fill(find("inside-trail"), trail());
  fillSentence(find("inside-why"), inside.at < 0 ? "Each cluster, and why it was split or not." : nodes[inside.at].why);
  fill(find("inside-rounds"), roundsTable());
  fill(find("inside-parts"), ...shown.map(partCard));
}

/** Show a node, with the focus on its path so that the keyboard goes on from there. */
function openNode(index) {
  inside.at = index;
  renderInside();
  find("inside").scrollIntoView({ block: "start" });
  find("inside-trail").querySelector("[aria-current]").focus();
}

function startInside() {
  find("inside").addEventListener("keydown", (event) => {
    if (event.target.tagName === "INPUT") return;
    if (event.key === "Backspace" || event.key === "ArrowLeft" || event.key === "Escape") {
      if (inside.at < 0) return;
      event.preventDefault();
      openNode(subtree().nodes[inside.at].parent);
    }
    const among = event.target.closest("#inside-tree, #inside-trail");  // elsewhere these keys scroll
    if (among && inside.at >= 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      openNode(sibling(inside.at, event.key === "ArrowDown" ? 1 : -1));
    }
    if (event.key === "ArrowRight") {
      const first = find("inside-parts").querySelector(".open-node");
      if (first) { event.preventDefault(); first.click(); }
    }
  });
}
