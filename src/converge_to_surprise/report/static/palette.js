// Colors that people with any color vision can tell apart (Okabe and Ito), and shapes where colors run out.

const COLORS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b8578c", "#c98500", "#3a9bd9"],
  dark: ["#4aa3df", "#f0803c", "#2fc79a", "#e08fbb", "#f0b429", "#8fd0ff"],
};
const NOISE = { light: "#8a8a8a", dark: "#9a9a9a" };
const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "ring", "down", "bar"];

/** Color and shape of the n-th thing; -1 is noise. */
function look(number) {
  const theme = isDark() ? "dark" : "light";
  if (number < 0) return { color: NOISE[theme], shape: "dash" };
  const colors = COLORS[theme];
  return {
    color: colors[number % colors.length],
    shape: SHAPES[Math.floor(number / colors.length) % SHAPES.length],
  };
}

/** Add a shape around (x, y) with radius r to the path of a canvas or a Path2D. */
function trace(path, shape, x, y, r) {
  const polygon = (...points) => {
    points.forEach(([dx, dy], place) => (place ? path.lineTo(x + dx * r, y + dy * r) : path.moveTo(x + dx * r, y + dy * r)));
    path.closePath();
  };
  if (shape === "circle") { path.moveTo(x + r, y); path.arc(x, y, r, 0, 2 * Math.PI); }
  else if (shape === "square") path.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
  else if (shape === "triangle") polygon([0, -1.2], [1.1, 0.8], [-1.1, 0.8]);
  else if (shape === "down") polygon([0, 1.2], [1.1, -0.8], [-1.1, -0.8]);
  else if (shape === "diamond") polygon([0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]);
  else if (shape === "cross") {
    const w = 0.4;
    polygon([-w, -1.2], [w, -1.2], [w, -w], [1.2, -w], [1.2, w], [w, w], [w, 1.2], [-w, 1.2], [-w, w], [-1.2, w], [-1.2, -w], [-w, -w]);
  } else if (shape === "ring") {
    path.moveTo(x + r, y);
    path.arc(x, y, r, 0, 2 * Math.PI);
    path.moveTo(x + 0.45 * r, y);
    path.arc(x, y, 0.45 * r, 0, 2 * Math.PI, true);
  } else if (shape === "bar") path.rect(x - 0.5 * r, y - 1.3 * r, r, 2.6 * r);
  else path.rect(x - 1.1 * r, y - 0.35 * r, 2.2 * r, 0.7 * r);
}

/** The shape of a cluster as a small sign beside its name. */
function sign(number) {
  const { color, shape } = look(number);
  const canvas = make("canvas", { class: "sign", width: 32, height: 32, "aria-hidden": "true" });
  const pen = canvas.getContext("2d");
  pen.fillStyle = color;
  pen.beginPath();
  trace(pen, shape, 16, 16, 11);
  pen.fill();
  return canvas;
}
