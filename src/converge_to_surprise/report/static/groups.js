// The state of the page: the content, where the tree is cut, and the groups of images that follow from it.

const state = { content: null, level: 0, edits: [], leafNames: {}, images: null, groups: [], groupOf: null, stackOf: null };

function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Kind(bytes.buffer);
}

/** Columns of the images that the page shows, as numbers. */
function unpackImages(packed) {
  return {
    ...packed,
    index: unpack(packed.index, Uint32Array),
    cluster: unpack(packed.cluster, Int16Array),
    confidence: unpack(packed.confidence, Uint16Array),
    novelty: packed.novelty === null ? null : unpack(packed.novelty, Uint16Array),
    second: unpack(packed.second, Int16Array),
    secondConfidence: unpack(packed.secondConfidence, Uint16Array),
    viewsAgree: unpack(packed.viewsAgree, Uint8Array),
    subcluster: unpack(packed.subcluster, Int16Array),
    leaf: packed.leaf === null ? null : unpack(packed.leaf, Int16Array),
    class: packed.class === null ? null : unpack(packed.class, Int32Array),
    x: unpack(packed.x, Uint16Array),
    y: unpack(packed.y, Uint16Array),
    codes: unpack(packed.codes, Int8Array),
    urls: packed.sheets.map(() => null),
  };
}

const clustering = () => state.content.clustering;
const ownLevel = () => clustering().levels.own;
const atOwnLevel = () => state.level === ownLevel();
const levelNow = () => clustering().levels.levels.find((level) => level.clusters === state.level);
const imageName = (position) => (state.images.names ? state.images.names[position] : `image ${state.images.index[position]}`);

/** What one cluster of the run is called. */
const clusterName = (number) => state.edits[number]?.name ?? `Cluster ${number}`;

/** Where a cluster went by a person's merges; -1 if it is noise. */
function rootOf(number) {
  let root = number;
  for (let steps = 0; state.edits[root]?.into != null && steps <= state.edits.length; steps++) root = state.edits[root].into;
  return state.edits[root]?.noise ? -1 : root;
}

/** The group of every cluster and subcluster at the present cut. */
function grouping() {
  const level = levelNow();
  if (atOwnLevel() || !level) return (cluster) => rootOf(cluster);
  return level.of === "clusters" ? (cluster) => level.groups[cluster] : (_, subcluster) => level.groups[subcluster];
}

/** Work out the groups anew: sizes and shares from the counts of all images, members from the images shown. */
function regroup() {
  const into = grouping();
  const found = new Map();
  for (const [cluster, subcluster, label, size, confidence] of clustering().cells) {
    const id = into(cluster, subcluster);
    if (!found.has(id)) {
      found.set(id, { id, size: 0, confidence: 0, classes: new Map(), clusters: new Map(), members: [] });
    }
    const group = found.get(id);
    group.size += size;
    group.confidence += confidence;
    if (label >= 0) group.classes.set(label, (group.classes.get(label) || 0) + size);
    group.clusters.set(cluster, (group.clusters.get(cluster) || 0) + size);
  }
  const groups = [...found.values()].sort((a, b) => (a.id < 0) - (b.id < 0) || a.id - b.id);
  const place = new Map(groups.map((group, position) => [group.id, position]));
  const { cluster, subcluster, confidence } = state.images;
  state.groupOf = new Int16Array(state.images.shown);
  for (let position = 0; position < state.images.shown; position++) {
    const at = place.get(into(cluster[position], subcluster[position]));
    state.groupOf[position] = at;
    groups[at].members.push(position);
  }
  for (const group of groups) {
    group.members.sort((a, b) => confidence[b] - confidence[a] || a - b);
    group.stacks = stacked(group.members);
    group.confidence /= group.size;
    group.main = largest(group.clusters);
    group.top = group.classes.size ? largest(group.classes) : null;
    group.purity = group.classes.size ? group.classes.get(group.top) / group.size : null;
  }
  state.groups = groups;
  nameAndColor(groups);
  measure(groups);
}

function largest(counts) {
  return [...counts].reduce((best, entry) => (entry[1] > best[1] ? entry : best))[0];
}

/** A group has the name and color of the cluster it mostly is; smaller subclusters of the same cluster get others. */
function nameAndColor(groups) {
  const subclusters = new Map();
  for (const group of groups) {
    if (!subclusters.has(group.main)) subclusters.set(group.main, []);
    subclusters.get(group.main).push(group);
  }
  let free = clustering().clusters;
  const finer = levelNow()?.of === "subclusters";
  for (const group of groups) {
    const siblings = [...subclusters.get(group.main)].sort((a, b) => b.size - a.size);
    const rank = siblings.indexOf(group);
    group.look = group.id < 0 ? -1 : rank === 0 ? group.main : free++;
    if (group.id < 0) group.name = "Noise";
    else if (finer) group.name = siblings.length > 1 ? `${clusterName(group.main)} · subcluster ${rank + 1}` : clusterName(group.main);
    else if (atOwnLevel()) group.name = clusterName(group.id);
    else group.name = joinedName([...group.clusters.keys()]);
  }
}

function joinedName(clusters) {
  const names = clusters.map((number) => state.edits[number]?.name ?? String(number));
  if (clusters.length === 1) return clusterName(clusters[0]);
  const start = names.every((name, place) => name === String(clusters[place])) ? "Clusters " : "";
  return start + names.slice(0, 4).join(" + ") + (names.length > 4 ? ` + ${names.length - 4} more` : "");
}

/** The surprise of a group, where the run measured it: not of subclusters, and not of what a person merged. */
function measure(groups) {
  const table = levelNow()?.table || {};
  for (const group of groups) {
    const merged = atOwnLevel() && (group.clusters.size > 1 || group.id < 0);
    const row = merged ? undefined : table[group.id];
    group.surprise = row ? row.surprise : null;
    group.surprising = row ? row.surprising : true;
  }
}
