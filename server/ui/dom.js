// Elements. Texts become text nodes and never HTML.

export const byId = (id) => document.getElementById(id);

// make makes an element; properties that begin with "on" are listeners, functions and
// booleans are set as properties, all others as attributes.
export function make(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") e[name] = value;
    else e.setAttribute(name, String(value));
  }
  e.append(...children);
  return e;
}

// row is a row of a table; numbers are aligned as such.
export const row = (...cells) => make("tr", {}, ...cells.map((c) => make("td", typeof c === "number" ? { class: "number" } : {}, cellText(c))));

const cellText = (c) => typeof c === "number" ? figure(c) : c;

const numeric = ["Place", "Score", "ms"];

// table has a caption for those who do not see what is around it.
export function table(caption, heads, rows) {
  return make("table", {}, make("caption", { class: "hidden" }, caption),
    make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", { scope: "col", class: numeric.includes(h) ? "number" : undefined }, h)))), make("tbody", {}, ...rows));
}

// figure writes whole numbers in full and others with four digits.
export function figure(x) {
  if (Number.isInteger(x)) return x.toLocaleString("en");
  const size = Math.abs(x);
  if (size >= 1000) return x.toFixed(0);
  if (size >= 0.001) return x.toPrecision(4);
  return x.toExponential(1);
}

// pairs is a list of names and values; what is undefined is left out.
export function pairs(entries) {
  const list = make("dl");
  for (const [name, value] of entries) {
    if (value === undefined || value === null || value === "") continue;
    list.append(make("dt", {}, name), make("dd", {}, typeof value === "number" ? figure(value) : String(value)));
  }
  return list;
}
