// Where the merge tree is cut: the slider, and marks on it at the levels, the numbers at which the clustering is stable.

const THUMB = 16;  // the width of the slider's knob, which does not reach beyond the ends
const CLOSE = 20;  // of two marks that are nearer the later one goes without its number

function setLevel(clusters) {
  const { finest } = clustering().levels;
  const level = Math.min(finest, Math.max(1, clusters));
  if (level === state.level) return;
  state.level = level;
  refresh();
}

function renderCut() {
  const { own, finest } = clustering().levels;
  const slider = find("cut");
  show(find("cut-part"), finest > 1 && Boolean(clustering().tree));
  slider.min = 1;
  slider.max = finest;
  slider.value = state.level;
  slider.setAttribute("aria-valuetext", `${state.level} of at most ${finest} clusters`);
  find("cut-words").textContent = state.level === own ? `${own}, as found` : `${state.level} of at most ${finest}`;
  show(find("cut-back"), state.level !== own);
  renderLevels();
}

const evidenceWords = (level) => `${level.clusters} ${level.clusters === 1 ? "cluster" : "clusters"}: the weakest split holds ${level.strength.toFixed(2)}, `
  + `heads agree ${level.agreement.toFixed(2)}${level.clusters === ownLevel() ? "; taken by the run" : ""}`;

/** A mark for each level at its place along the slider. The marks are replaced, so the focus is carried over. */
function renderLevels() {
  const { stable, finest } = clustering().levels;
  const area = find("cut-levels");
  const focused = area.contains(document.activeElement) ? document.activeElement.dataset.clusters : null;
  const room = Math.max(0, find("cut").clientWidth - THUMB);
  let last = -Infinity;
  const marks = [...stable].sort((a, b) => a.clusters - b.clusters).map((level) => {
    const at = THUMB / 2 + (room * (level.clusters - 1)) / Math.max(1, finest - 1);
    const words = evidenceWords(level);
    const wide = at - last >= CLOSE;
    if (wide) last = at;
    const tell = () => { find("cut-evidence").textContent = words; };
    const mark = make("button", { type: "button", class: level.clusters === ownLevel() ? "level taken" : "level", title: words,
      "aria-label": words, "aria-pressed": String(level.clusters === state.level), "data-clusters": level.clusters, onclick: () => setLevel(level.clusters),
      onmouseenter: tell, onfocus: tell, onmouseleave: tellPresent, onblur: tellPresent }, wide ? String(level.clusters) : "\u00a0");
    mark.style.left = `${at}px`;
    return mark;
  });
  fill(area, ...marks);
  show(area, stable.length > 0);
  tellPresent();
  if (focused !== null) area.querySelector(`[data-clusters="${focused}"]`)?.focus();
}

/** The evidence at the present cut, if it is a level. */
function tellPresent() {
  const { stable } = clustering().levels;
  const level = stable.find((one) => one.clusters === state.level);
  const others = stable.length ? "Not one of the marked levels, at which the clustering is stable." : "";
  find("cut-evidence").textContent = level ? evidenceWords(level) : others;
}
