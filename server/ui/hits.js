// Results: documents with their passages, words marked in place.

import { figure, make } from "./dom.js";
import { pictureOf } from "./picture.js";
import { marked, snippet, spanRanges, textOf, titleOf, wordRanges } from "./texts.js";

// groupsOf returns the documents of an answer, each with the parts of it that are shown:
// [{id, fields, score, parts: [{id, fields, score, spans}]}]. It groups passages by their document, if the
// service has not done so.
export function groupsOf(result) {
  const groups = [], byText = new Map();
  result.document_ids.forEach((_, i) => {
    const fields = (result.metadata || [])[i] || {}, score = (result.scores || [])[i], id = String((result.ids || [])[i] ?? fields._id);
    const passages = (result.passages || [])[i];
    if (passages && passages.length) {
      groups.push({ id, fields, score, parts: passages.map((p) => ({ id: p.id, fields: p.metadata || {}, score: p.score, spans: p.spans })) });
      return;
    }
    const part = { id, fields, score, spans: (result.spans || [])[i] };
    const documentID = fields._passage && typeof fields._passage.of === "string" ? fields._passage.of : null;
    const existing = documentID === null ? null : byText.get(documentID);
    if (existing) {
      existing.parts.push(part);
      return;
    }
    const group = { id: documentID ?? part.id, fields, score, parts: [part] };
    if (documentID !== null) byText.set(documentID, group);
    groups.push(group);
  });
  return groups;
}

// textPart returns an element with the best snippet of a part's text, and a button that shows all of it.
function textPart(part, request) {
  const [name, text] = textOf(part.fields);
  if (!text) return make("div");
  const ranges = part.spans && part.spans.length ? spanRanges(text, part.spans, name)
    : request.words ? wordRanges(text, request.words) : [];
  const place = make("p", { class: "text" });
  const [from, to] = snippet(text, ranges);
  const show = (whole) => {
    const [a, b] = whole ? [0, text.length] : [from, to];
    place.replaceChildren(a > 0 ? "… " : "", ...marked(text, ranges, a, b), b < text.length ? " …" : "");
  };
  show(false);
  const box = make("div", {}, place);
  if (to - from < text.length) {
    const toggle = make("button", { type: "button", class: "link", "aria-expanded": "false", onclick: () => {
      const whole = toggle.getAttribute("aria-expanded") === "false";
      toggle.setAttribute("aria-expanded", String(whole));
      toggle.textContent = whole ? "Less text" : "Whole text";
      show(whole);
    } }, "Whole text");
    box.append(toggle);
  }
  return box;
}

// hit returns the element of a result. actions has the functions of its buttons: explain(id), which returns
// the content of Matches, similar(id), judge(id, good), and judged(id).
export function hit(group, rank, request, actions) {
  const { id, fields } = group;
  const label = "hit-" + rank;
  const parts = group.parts.map((part, i) => {
    const short = textPart(part, request);
    const place = make("div", { hidden: true });
    const buttons = make("div", { class: "buttons" });
    if (actions.explain) {
      const name = group.parts.length > 1 ? "Matches of passage " + (i + 1) : "Matches";
      const toggle = make("button", { type: "button", class: "plain", "aria-expanded": "false", "aria-label": name, onclick: () => actions.guarded(async () => {
        const opens = place.hidden;
        place.hidden = !opens;
        short.hidden = opens;
        toggle.setAttribute("aria-expanded", String(opens));
        if (!opens || place.firstChild) return;
        place.append(make("p", { class: "quiet" }, "…"));
        try {
          place.replaceChildren(...await actions.explain(part.id));
        } catch (err) {
          place.replaceChildren(); // the next click asks again
          throw err;
        }
      }) }, "Matches");
      buttons.append(toggle);
    }
    if (i === 0) {
      if (actions.similar) buttons.append(make("button", { type: "button", class: "plain", onclick: () => actions.similar(id) }, "Similar"));
      if (actions.judge) {
        for (const good of [true, false]) {
          buttons.append(make("button", {
            type: "button", class: "plain judge", "aria-pressed": String(actions.judged(part.id) === good),
            "aria-label": (good ? "More like " : "Less like ") + titleOf(fields), title: good ? "More like this" : "Less like this",
            onclick: () => actions.judge(part.id, good),
          }, good ? "▲ More" : "▼ Less"));
        }
      }
    }
    const many = group.parts.length > 1;
    const heading = many ? make("p", { class: "quiet" }, typeof part.fields.title === "string" && part.fields.title !== fields.title ? part.fields.title : "Passage " + part.id,
      part.score === undefined ? "" : make("span", { class: "score" }, " · " + figure(part.score))) : "";
    return make("div", many ? { class: "part" } : {}, heading, short, place, buttons);
  });
  const title = titleOf({ ...fields, _id: id });
  const titleRanges = group.parts[0].spans?.length ? spanRanges(title, group.parts[0].spans, "title") : request.words ? wordRanges(title, request.words) : [];
  const shows = Object.entries(fields).filter(([k, v]) => !["_id", "_subset_", "title", "text", "path", "digest"].includes(k) && !k.startsWith("_") &&
    (["number", "boolean"].includes(typeof v) || typeof v === "string" && v.length <= 40 || Array.isArray(v) && v.length && v.length <= 6 && v.every((x) => typeof x === "string" && x.length <= 30)));
  return make("li", {}, make("article", { class: "hit", "aria-labelledby": label, tabindex: "-1", "data-id": id },
    make("div", { class: "top" }, make("span", { class: "quiet rank" }, String(rank)), make("h3", { id: label }, ...marked(title, titleRanges)),
      group.score === undefined ? "" : make("span", { class: "score", title: "score" }, figure(group.score))),
    make("p", { class: "quiet id" }, title === id ? "" : id, request.id === id || group.parts.some((p) => p.id === request.id) ? " (the document itself)" : ""),
    typeof fields.image === "string" && fields.image ? pictureOf(request.index, group.parts[0].id, fields.image) : "",
    ...parts,
    shows.length ? make("ul", { class: "values" }, ...shows.slice(0, 8).map(([k, v]) => make("li", {}, make("span", { class: "quiet" }, k + " "), Array.isArray(v) ? v.join(", ") : String(v)))) : "",
    make("details", {}, make("summary", {}, "Metadata"), make("pre", {}, JSON.stringify(fields, null, 1)))));
}
