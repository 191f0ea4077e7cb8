// The picture of a page, with the score of each of its cells for a token of the query.

import * as api from "./api.js";
import { figure, make } from "./dom.js";

// isAddress reports whether a picture is on the web. The page only links to it, since it sends requests to
// no other service than its own.
export const isAddress = (image) => /^https?:\/\//i.test(image);

// pictureOf returns an element that shows the picture of a document, or the reason why it cannot be shown.
// The picture goes into frame, if that is given.
export function pictureOf(index, id, image, frame) {
  const place = make("div", { class: "picture" }, frame || "");
  if (typeof image !== "string" || !image) return place;
  if (isAddress(image)) {
    place.append(make("a", { href: image, rel: "noreferrer noopener", target: "_blank" }, "Open the picture"));
    return place;
  }
  const img = make("img", { alt: "The page " + id });
  api.picture(index, id).then((blob) => {
    const url = URL.createObjectURL(blob);
    img.addEventListener("load", () => URL.revokeObjectURL(url));
    img.addEventListener("error", () => { img.remove(); URL.revokeObjectURL(url); });
    img.src = url;
    (frame || place).prepend(img);
  }, (err) => place.append(make("p", { class: "quiet" }, "The picture is not shown: " + err.message)));
  return place;
}

// maxCells is the largest number of cells of a grid that is drawn.
const maxCells = 1 << 16;

// pictureMap returns {box, show}: an element with the picture of an explanation, and a function. show(i) lays
// the scores of match i over the picture, and show(-1) the best score of each cell.
export function pictureMap(x, index) {
  const statusLine = make("p", { class: "quiet" });
  const g = x.grid;
  if (!g || !(g.rows > 0 && g.columns > 0 && g.rows * g.columns <= maxCells)) {
    const box = pictureOf(index, x.id, x.image);
    if (x.no_grid) statusLine.textContent = "Its cells are not shown: " + x.no_grid + ".";
    box.append(statusLine);
    return { box, show() {} };
  }
  const frame = make("div", { class: "frame" });
  frame.style.setProperty("--ratio", g.columns + " / " + g.rows);
  const canvas = make("canvas", { width: g.columns, height: g.rows, role: "img" });
  frame.append(canvas);
  const box = pictureOf(index, x.id, x.image, frame);
  box.append(statusLine);
  const cellsOf = (i) => (g.scores.find((s) => s.query_token === x.matches[i].query_token) || g.scores[i] || {}).cells || [];
  const show = (chosen) => {
    let values = [];
    if (chosen >= 0) values = cellsOf(chosen);
    else x.matches.forEach((_, i) => cellsOf(i).forEach((v, j) => { values[j] = Math.max(values[j] ?? -Infinity, v); }));
    const [lowest, highest] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    const paint = canvas.getContext("2d");
    paint.clearRect(0, 0, g.columns, g.rows);
    let best = 0;
    values.forEach((v, i) => {
      if (v > values[best]) best = i;
      const heat = highest > lowest ? (v - lowest) / (highest - lowest) : 0;
      paint.fillStyle = "rgb(220 60 0 / " + (0.75 * heat * heat).toFixed(3) + ")";
      paint.fillRect(i % g.columns, Math.floor(i / g.columns), 1, 1);
    });
    const at = "The best cell is in row " + (Math.floor(best / g.columns) + 1) + " of " + g.rows + ", column " + (best % g.columns + 1) + " of " + g.columns;
    statusLine.textContent = at + (values.length ? ", with " + figure(values[best]) + "." : ".");
    canvas.setAttribute("aria-label", "Heat map. " + statusLine.textContent);
  };
  return { box, show };
}
