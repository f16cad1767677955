// Elements are only ever made here, and text only ever set as text: no name can become markup.

/** An element with properties, attributes and children; a child that is no element becomes text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The same for SVG elements. */
function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

const find = (id) => document.getElementById(id);
const fill = (element, ...children) => element.replaceChildren(...children.filter((child) => child));
const show = (element, visible) => { element.hidden = !visible; };

const numberFormat = new Intl.NumberFormat("en");
const count = (value) => numberFormat.format(value);
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;
const images = (value) => `${count(value)} ${value === 1 ? "image" : "images"}`;

function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 5400) return `${Math.round(seconds / 6) / 10} min`;
  return `${Math.round(seconds / 360) / 10} h`;
}

/** A color of the present theme by its name in the style sheet. */
const themeColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const isDark = () => document.documentElement.dataset.theme === "dark";

/** What the browser keeps for this page; nothing if it does not. */
const memory = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* private window */ } },
  remove(key) { try { localStorage.removeItem(key); } catch { /* private window */ } },
};

/** Light or dark: as the system says until a person chooses. Calls back when it changes. */
function followTheme(button, changed) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = memory.get("cts:theme");
    document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colors" : "Use dark colors");
  };
  button.addEventListener("click", () => {
    memory.set("cts:theme", isDark() ? "light" : "dark");
    apply();
    changed();
  });
  system.addEventListener("change", () => { apply(); changed(); });
  apply();
}

function fillFacts(list, facts) {
  fill(list, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/** The head line; 10^-123 is written with the exponent raised. */
function fillSentence(element, sentence) {
  const [before, exponent, after] = sentence.split(/10\^(-[\d,]+)/);
  if (exponent === undefined) { fill(element, sentence); return; }
  fill(element, `${before}10`, make("sup", {}, exponent.replace("-", "−")), after);
}
