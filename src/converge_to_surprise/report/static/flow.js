// From one run's clusters to the next's, as bands as wide as the images they share.

const FLOW = { gap: 4, bar: 12, top: 34, labels: 130 };

/** Places of a run's clusters from top to bottom, in the order given. */
function stack(order, sizes, scale) {
  let y = FLOW.top;
  const places = new Map();
  for (const number of order) {
    places.set(number, { y, height: sizes[number] * scale, used: { left: 0, right: 0 } });
    y += sizes[number] * scale + FLOW.gap;
  }
  return places;
}

/** Clusters of the next run beside those that most of their images come from. */
function followOrder(before, flow, sizes) {
  const center = new Map();
  for (const [a, b, n] of flow) center.set(b, (center.get(b) || 0) + before.indexOf(a) * n);
  return [...center.keys()].sort((p, q) => center.get(p) / sizes[p] - center.get(q) / sizes[q]);
}

function renderFlow(place, content) {
  const { runs, flows } = content;
  const columns = runs.map((run) => run.clusters.map((cluster) => cluster.size));
  const orders = [columns[0].map((_, number) => number).filter((number) => columns[0][number] > 0)];
  flows.forEach((flow, step) => orders.push(followOrder(orders[step], flow, columns[step + 1])));
  const rows = Math.max(...orders.map((order) => order.length));
  const height = Math.max(360, rows * 26);
  const total = columns[0].reduce((sum, size) => sum + size, 0);
  const scale = (height - rows * FLOW.gap) / total;
  const width = Math.max(320, place.clientWidth);
  const side = Math.min(FLOW.labels, width / 4);
  const step = (width - 2 * side - FLOW.bar) / (runs.length - 1);
  const x = (column) => side + column * step;
  const stacks = orders.map((order, column) => stack(order, columns[column], scale));
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height + FLOW.top + 8}`, width, height: height + FLOW.top + 8, role: "img",
    "aria-label": `Where the clusters of ${runs.map((run) => run.name).join(" went in ")}` });
  flows.forEach((flow, column) => bands(svg, flow, stacks[column], stacks[column + 1], x(column) + FLOW.bar, x(column + 1), runs, column, scale));
  stacks.forEach((one, column) => bars(svg, one, runs[column], x(column), column, runs.length));
  fill(place, svg);
}

function bands(svg, flow, from, to, left, right, runs, column, scale) {
  const position = (places) => new Map([...places.keys()].map((number, place) => [number, place]));
  const first = position(from), second = position(to);
  const sorted = [...flow].sort((p, q) => first.get(p[0]) - first.get(q[0]) || second.get(p[1]) - second.get(q[1]));
  for (const [a, b, n] of sorted) {
    const start = from.get(a), end = to.get(b), wide = n * scale, middle = (left + right) / 2;
    const y1 = start.y + start.used.right, y2 = end.y + end.used.left;
    start.used.right += wide;
    end.used.left += wide;
    const words = `${count(n)} images: ${runs[column].clusters[a].name} of ${runs[column].name} to ${runs[column + 1].clusters[b].name} of ${runs[column + 1].name}`;
    const band = draw("path", { class: "band", d: `M${left} ${y1}C${middle} ${y1} ${middle} ${y2} ${right} ${y2}v${wide}C${middle} ${y2 + wide} ${middle} ${y1 + wide} ${left} ${y1 + wide}Z` },
      draw("title", {}, words));
    band.style.fill = look(a).color;
    band.style.fillOpacity = 0.45;
    svg.append(band);
  }
}

function bars(svg, places, run, x, column, columns) {
  const last = column === columns - 1;
  const anchor = column === 0 ? "end" : "start";
  const text = column === 0 ? x - 8 : x + FLOW.bar + 8;
  svg.append(draw("text", { x: column === 0 ? x + FLOW.bar : x, y: 18, class: "title", "text-anchor": column === 0 ? "end" : last ? "start" : "middle" }, shorten(run.name, 18)));
  for (const [number, place] of places) {
    const bar = draw("rect", { x, y: place.y, width: FLOW.bar, height: Math.max(1, place.height), rx: 2 },
      draw("title", {}, `${run.clusters[number].name}: ${images(run.clusters[number].size)}`));
    bar.style.fill = themeColor("ink");
    svg.append(bar);
    if (place.height > 9) svg.append(draw("text", { x: text, y: place.y + place.height / 2 + 4, "text-anchor": anchor }, shorten(run.clusters[number].name, 16)));
  }
}

const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
