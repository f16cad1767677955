// Images that look alike: by reduced features, and near-duplicates, which are stacked.

const MOST_SIMILAR = 60;

/** The images shown that are most similar to one of them, nearest first, without itself. */
function similarTo(position) {
  const { codes, codeSize, shown } = state.images;
  const own = codes.subarray(position * codeSize, (position + 1) * codeSize);
  const distance = new Float64Array(shown);
  for (let other = 0, place = 0; other < shown; other++) {
    let sum = 0;
    for (let k = 0; k < codeSize; k++, place++) sum += (codes[place] - own[k]) ** 2;
    distance[other] = sum;
  }
  distance[position] = Infinity;
  return Array.from(distance.keys()).sort((a, b) => distance[a] - distance[b] || a - b).slice(0, Math.min(MOST_SIMILAR, shown - 1));
}

/** The group of near-duplicates of every image shown; -1 for none. */
function findStacks() {
  state.stackOf = new Int32Array(state.images.shown).fill(-1);
  clustering().duplicates.forEach((stack, number) => stack.forEach((position) => { state.stackOf[position] = number; }));
}

/** Images in order, of near-duplicates only the first one; and how many there are of each. */
function stacked(positions) {
  const first = new Map();
  const covers = [];
  for (const position of positions) {
    const stack = state.stackOf[position];
    const cover = stack < 0 ? undefined : first.get(stack);
    if (cover) { cover.members.push(position); continue; }
    const entry = { position, members: [position] };
    covers.push(entry);
    if (stack >= 0) first.set(stack, entry);
  }
  return covers;
}
