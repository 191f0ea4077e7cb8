// Elements. Texts become text nodes and never HTML.

export const byId = (id) => document.getElementById(id);

// make returns a new element. Properties that begin with "on" are listeners, and booleans are set as
// properties. All others, except undefined and null, become attributes.
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

// row returns a row of a table. Numbers are aligned to the right.
export const row = (...cells) => make("tr", {}, ...cells.map((c) => make("td", typeof c === "number" ? { class: "number" } : {}, cellText(c))));

const cellText = (c) => typeof c === "number" ? figure(c) : c;

const numeric = ["Place", "Score", "ms"];

// table returns a table with a hidden caption, for screen readers.
export function table(caption, heads, rows) {
  return make("table", {}, make("caption", { class: "hidden" }, caption),
    make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", { scope: "col", class: numeric.includes(h) ? "number" : undefined }, h)))), make("tbody", {}, ...rows));
}

// figure returns a number as text: a whole number in full, others with four digits.
export function figure(x) {
  if (Number.isInteger(x)) return x.toLocaleString("en");
  const size = Math.abs(x);
  if (size >= 1000) return x.toFixed(0);
  if (size >= 0.001) return x.toPrecision(4);
  return x.toExponential(1);
}

// pairs returns a list of names and values. Entries without a value are left out.
export function pairs(entries) {
  const list = make("dl");
  for (const [name, value] of entries) {
    if (value === undefined || value === null || value === "") continue;
    list.append(make("dt", {}, name), make("dd", {}, typeof value === "number" ? figure(value) : String(value)));
  }
  return list;
}
