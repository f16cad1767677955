// The merge tree: subclusters at the bottom, merged towards the top the weakest split first, and the cut.

const TREE = { top: 16, bottom: 54, left: 46, right: 16, height: 320 };
const STRONGEST = 0.9999;

/** Height of a split: strong ones, which differ in the third decimal, are spread out. */
const heightOf = (strength) => -Math.log10(1 - Math.min(STRONGEST, Math.max(0, strength)));

/** Nodes of the tree with their place (in leaves from the left) and height; a join is never below what it merges. */
function treeNodes(merges) {
  const open = new Map();
  const nodeOf = (subcluster) => {
    if (!open.has(subcluster)) open.set(subcluster, { subcluster, height: 0, children: [], leaves: [subcluster] });
    return open.get(subcluster);
  };
  let highest = 0;
  for (const [into, merged, strength] of merges) {
    const children = [nodeOf(into), nodeOf(merged)];
    highest = Math.max(highest, heightOf(strength));
    open.delete(merged);
    open.set(into, { subcluster: into, height: highest, strength, children, leaves: [...children[0].leaves, ...children[1].leaves] });
  }
  const root = [...open.values()][0];
  const place = new Map(root.leaves.map((subcluster, position) => [subcluster, position]));
  const settle = (node) => {
    node.children.forEach(settle);
    node.x = node.children.length ? (node.children[0].x + node.children[1].x) / 2 : place.get(node.subcluster);
  };
  settle(root);
  return root;
}

/** Heights of the merges in the order in which they are made. */
function joinHeights() {
  let highest = 0;
  return clustering().tree.map(([, , strength]) => { highest = Math.max(highest, heightOf(strength)); return highest; });
}

/** Where the line lies that leaves so many clusters: between the last join below it and the first above. */
function cutHeight(clusters) {
  const heights = joinHeights();
  const made = heights.length + 1 - clusters;
  const below = made > 0 ? heights[made - 1] : 0;
  const above = made < heights.length ? heights[made] : heights[heights.length - 1] * 1.06;
  return (below + above) / 2;
}

function renderTree() {
  const area = find("tree-drawing");
  const merges = clustering().tree;
  show(find("tree"), Boolean(merges && merges.length));
  if (!merges || !merges.length) return;
  const root = treeNodes(merges);
  const width = Math.max(280, area.clientWidth);
  const inner = { width: width - TREE.left - TREE.right, height: TREE.height - TREE.top - TREE.bottom };
  const most = root.height * 1.08;
  const x = (place) => TREE.left + ((place + 0.5) / root.leaves.length) * inner.width;
  const y = (height) => TREE.top + (1 - height / most) * inner.height;
  const cut = cutHeight(state.level);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${TREE.height}`, width, height: TREE.height, role: "img",
    "aria-label": `Merge tree of ${root.leaves.length} subclusters, cut at ${state.level} clusters` });
  let last = Infinity;
  for (const strength of [0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999]) {
    const at = y(heightOf(strength));
    if (heightOf(strength) > most || last - at < 18) continue;
    last = at;
    svg.append(draw("line", { x1: TREE.left, x2: width - TREE.right, y1: at, y2: at, class: "grid" }),
      draw("text", { x: TREE.left - 8, y: at + 4, "text-anchor": "end" }, String(strength)));
  }
  const colors = partLooks();
  const branch = (node) => {
    for (const child of node.children) {
      const group = child.height <= cut ? colors.get(child.subcluster) : undefined;
      const across = draw("path", { d: `M ${x(node.x)} ${y(node.height)} H ${x(child.x)}`, class: "joint" });
      const down = draw("path", { d: `M ${x(child.x)} ${y(node.height)} V ${y(child.height)}`, class: "branch" });
      if (group) down.style.stroke = look(group.look).color;
      if (group && node.height <= cut) across.style.stroke = look(group.look).color;
      svg.append(across, down);
      branch(child);
    }
    if (!node.children.length) leaf(svg, x(node.x), y(0), colors.get(node.subcluster), inner.width / root.leaves.length);
  };
  branch(root);
  svg.append(draw("line", { x1: TREE.left - 6, x2: width - TREE.right, y1: y(cut), y2: y(cut), class: "cut", id: "cut-line" }),
    draw("circle", { cx: width - TREE.right, cy: y(cut), r: 6, class: "knob" }));
  startDrag(svg, (at) => (1 - (at - TREE.top) / inner.height) * most);
  fill(area, svg);
}

/** The group that most images of each subcluster are in. */
function partLooks() {
  const into = grouping();
  const tallies = new Map();
  for (const [cluster, subcluster, , size] of clustering().cells) {
    if (!tallies.has(subcluster)) tallies.set(subcluster, new Map());
    const tally = tallies.get(subcluster), id = into(cluster, subcluster);
    tally.set(id, (tally.get(id) || 0) + size);
  }
  const groups = new Map(state.groups.map((group) => [group.id, group]));
  return new Map([...tallies].map(([subcluster, tally]) => [subcluster, groups.get(largest(tally))]));
}

function leaf(svg, x, y, group, room) {
  if (!group) return;
  const { color, shape } = look(group.look);
  const path = { d: "", moveTo(a, b) { this.d += `M${a} ${b}`; }, lineTo(a, b) { this.d += `L${a} ${b}`; }, closePath() { this.d += "Z"; },
    rect(a, b, w, h) { this.d += `M${a} ${b}h${w}v${h}h${-w}Z`; },
    arc(a, b, r) { this.d += `M${a - r} ${b}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`; } };
  trace(path, shape, x, y + 9, 5);
  const mark = draw("path", { d: path.d, "fill-rule": "evenodd" }, draw("title", {}, group.name));
  mark.style.fill = color;
  svg.append(mark);
  const number = group.id < 0 ? "–" : String(atOwnLevel() ? group.main : group.id);
  if (room >= 12) svg.append(draw("text", { x, y: y + 30, "text-anchor": "middle" }, number));
}

/** Dragging the line moves the cut. The drawing is made anew on the way: places are measured from what holds it. */
function startDrag(svg, heightAt) {
  const follow = (event) => {
    const { top } = find("tree-drawing").firstElementChild.getBoundingClientRect();
    const height = heightAt(event.clientY - top);
    setLevel(joinHeights().filter((one) => one > height).length + 1);
  };
  svg.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    const end = () => { removeEventListener("pointermove", follow); removeEventListener("pointerup", end); };
    addEventListener("pointermove", follow);
    addEventListener("pointerup", end);
    follow(event);
  });
}
