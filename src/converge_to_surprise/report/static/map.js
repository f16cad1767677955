// The map: every image a point, near what it is like; the picture under the pointer.

const MARGIN = 26;
const REACH = 14;
const chart = { x: null, y: null, buckets: new Map(), cursor: null };

function renderMap() {
  const canvas = find("map-canvas");
  const width = canvas.parentElement.clientWidth;
  if (!width || !state.images) return;
  const height = Math.round(Math.min(680, Math.max(300, width * 0.62)));
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  placePoints(width, height);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, width, height);
  const many = state.images.shown;
  const radius = many > 20_000 ? 1.4 : many > 6_000 ? 1.9 : many > 1_500 ? 2.6 : 3.4;
  state.groups.forEach((group) => {
    const { color, shape } = look(group.look);
    pen.fillStyle = color;
    pen.globalAlpha = many > 20_000 ? 0.55 : 0.75;
    pen.beginPath();
    for (const position of group.members) trace(pen, radius < 1.8 ? "square" : shape, chart.x[position], chart.y[position], radius);
    pen.fill();
  });
  pen.globalAlpha = 1;
  writeLabels(pen, width, height);
  hideTip();
}

/** The projection is as wide as high; it is turned upright or sideways by stretching to what room there is. */
function placePoints(width, height) {
  const { x, y, shown } = state.images;
  const span = (column) => {
    let low = Infinity, high = -Infinity;
    for (const value of column) { low = Math.min(low, value); high = Math.max(high, value); }
    return [low, Math.max(1, high - low)];
  };
  const [left, across] = span(x);
  const [top, down] = span(y);
  chart.x = new Float32Array(shown);
  chart.y = new Float32Array(shown);
  chart.buckets = new Map();
  for (let position = 0; position < shown; position++) {
    chart.x[position] = MARGIN + ((x[position] - left) / across) * (width - 2 * MARGIN);
    chart.y[position] = MARGIN + ((y[position] - top) / down) * (height - 2 * MARGIN);
    const key = bucket(chart.x[position], chart.y[position]);
    if (chart.buckets.has(key)) chart.buckets.get(key).push(position);
    else chart.buckets.set(key, [position]);
  }
}

const bucket = (x, y) => Math.floor(x / REACH) * 4096 + Math.floor(y / REACH);

/** Names above their clusters, so that no color has to be looked up; moved apart where they collide. */
function writeLabels(pen, width, height) {
  pen.font = "600 12px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.lineWidth = 4;
  pen.lineJoin = "round";
  const taken = [];
  for (const group of [...state.groups].sort((a, b) => b.size - a.size)) {
    if (!group.members.length || state.groups.length > 80) continue;
    const text = group.name.length > 22 ? `${group.name.slice(0, 21)}…` : group.name;
    const half = pen.measureText(text).width / 2 + 3;
    const x = Math.min(width - half, Math.max(half, quantile(group.members.map((position) => chart.x[position]), 0.5)));
    let y = quantile(group.members.map((position) => chart.y[position]), 0.04) - 12;
    const free = (at) => !taken.some((box) => Math.abs(box.x - x) < box.half + half && Math.abs(box.y - at) < 15);
    for (const shift of [0, -15, 15, -30, 30, -45, 45]) {
      if (free(y + shift)) { y += shift; break; }
    }
    y = Math.min(height - 10, Math.max(10, y));
    taken.push({ x, y, half });
    pen.strokeStyle = themeColor("surface");
    pen.strokeText(text, x, y);
    pen.fillStyle = themeColor("ink");
    pen.fillText(text, x, y);
  }
}

function quantile(values, share) {
  const sorted = values.sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length * share)];
}

/** The image nearest to a place, if one is near. */
function nearest(x, y, reach) {
  let best = null, least = reach * reach;
  const steps = Math.ceil(reach / REACH);
  for (let dx = -steps; dx <= steps; dx++) {
    for (let dy = -steps; dy <= steps; dy++) {
      for (const position of chart.buckets.get(bucket(x + dx * REACH, y + dy * REACH)) || []) {
        const square = (chart.x[position] - x) ** 2 + (chart.y[position] - y) ** 2;
        if (square < least) { least = square; best = position; }
      }
    }
  }
  return best;
}

function hideTip() { show(find("map-tip"), false); chart.cursor = null; }

function tip(position) {
  if (position === null) { hideTip(); return; }
  const element = find("map-tip");
  const group = state.groups[state.groupOf[position]];
  chart.cursor = position;
  fill(element, thumb(position, 96),
    make("strong", {}, sign(group.look), group.name),
    make("span", { class: "name" }, imageName(position)),
    make("span", {}, `confidence ${percent(confidenceOf(position), 1)}`),
    noveltyOf(position) ? make("span", {}, noveltyOf(position)) : null);
  show(element, true);
  const canvas = find("map-canvas");
  const x = Math.min(chart.x[position] + 14, canvas.clientWidth - element.offsetWidth - 4);
  const below = chart.y[position] + 14 + element.offsetHeight < canvas.clientHeight;
  element.style.left = `${Math.max(4, x)}px`;
  element.style.top = `${below ? chart.y[position] + 14 : Math.max(4, chart.y[position] - element.offsetHeight - 14)}px`;
}

/** With the keyboard: the nearest image in the direction of an arrow. */
function step(key) {
  if (chart.cursor === null) return nearest(find("map-canvas").clientWidth / 2, find("map-canvas").clientHeight / 2, 4000) ?? 0;
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  let best = chart.cursor, least = Infinity;
  for (let position = 0; position < state.images.shown; position++) {
    const x = chart.x[position] - chart.x[chart.cursor], y = chart.y[position] - chart.y[chart.cursor];
    const along = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (along > 4 && along + 2 * aside < least) { least = along + 2 * aside; best = position; }
  }
  return best;
}

function startMap() {
  const canvas = find("map-canvas");
  canvas.addEventListener("pointermove", (event) => tip(nearest(event.offsetX, event.offsetY, REACH)));
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("blur", hideTip);
  canvas.addEventListener("click", () => { if (chart.cursor !== null) openPicture(chart.cursor); });
  canvas.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) { event.preventDefault(); tip(step(event.key)); }
    if (event.key === "Enter" && chart.cursor !== null) openPicture(chart.cursor);
    if (event.key === "Escape") hideTip();
  });
}
