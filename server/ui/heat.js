// Which token of the query matched which token of the document: a heat map in the text
// of the document, and the same as a table.

import { figure, make, row, table } from "./dom.js";
import { pictureMap } from "./picture.js";
import { unitsAt } from "./texts.js";

// spansOf splits a text at its tokens: [{text, token}]. token is undefined between tokens. A character that
// several tokens share belongs to the first.
export function spansOf(text, tokens) {
  const at = unitsAt(text);
  const spans = [];
  let end = 0;
  const order = tokens.map((t, i) => ({ token: i, start: at.down(t.start), end: at.up(t.end) }))
    .filter((s) => s.end > s.start).sort((a, b) => a.start - b.start || a.end - b.end);
  for (const s of order) {
    const start = Math.max(s.start, end);
    if (start >= s.end) continue;
    if (start > end) spans.push({ text: text.slice(end, start) });
    spans.push({ text: text.slice(start, s.end), token: s.token });
    end = s.end;
  }
  if (end < text.length) spans.push({ text: text.slice(end) });
  return spans;
}

// matchesByToken returns the matches of each token of the document, best first. Most tokens have none.
function matchesByToken(x) {
  const matches = Array.from({ length: x.tokens }, () => []);
  for (const m of x.matches) matches[m.doc_token].push(m);
  for (const list of matches) list.sort((a, b) => b.weight * b.score - a.weight * a.score);
  return matches;
}

const pieceOf = (tokens, i) => tokens && tokens[i] ? tokens[i].piece : "token " + i;

const isMask = (piece) => piece === "[MASK]" || piece === "<mask>";

// heatMap returns an element that shows the explanation of a document. queryTokens has the pieces of the
// query, if they are known.
export function heatMap(x, queryTokens, index) {
  const box = make("div", { class: "explanation" });
  const byToken = matchesByToken(x);
  const bests = byToken.map((list) => list.length ? list[0].weight * list[0].score : 0);
  const spans = [];
  const text = make("p", { class: "heat" });
  for (const s of x.document_text ? spansOf(x.document_text, x.document_tokens || []) : []) {
    if (s.token === undefined) {
      text.append(s.text);
      continue;
    }
    const span = make("span", {}, s.text);
    spans.push({ span, token: s.token });
    text.append(span);
  }
  const says = make("p", { class: "quiet", role: "status" });
  const picture = x.image === undefined && !x.grid ? null : pictureMap(x, index);
  const buttons = [];
  const show = (chosen) => {
    const match = x.matches[chosen];
    const values = match ? (x.similarities || [])[chosen] || [] : bests;
    const highest = values.reduce((a, b) => Math.max(a, b), 1e-9); // as arguments they may be too many
    for (const { span, token } of spans) {
      const value = values[token] || 0;
      span.style.setProperty("--heat", Math.max(0, value / highest).toFixed(3));
      span.classList.toggle("best", !!match && match.doc_token === token);
      span.title = match ? figure(value) : byToken[token].map((m) => pieceOf(queryTokens, m.query_token) + " " + figure(m.weight * m.score)).join(", ");
    }
    if (picture) picture.show(match ? chosen : -1);
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i - 1 === chosen)));
    says.textContent = match
      ? "“" + pieceOf(queryTokens, match.query_token) + "” matches “" + pieceOf(x.document_tokens, match.doc_token) + "” best, with " + figure(match.score) +
        (match.weight === 1 ? "" : " times " + figure(match.weight)) + "."
      : "Words are coloured by how well they match. Choose a query token to see its matches.";
  };
  const highestMatch = Math.max(...x.matches.map((m) => m.weight * m.score), 1e-9);
  const chip = (label, index, heat) => {
    const b = make("button", { type: "button", "aria-pressed": "false", onclick: () => show(index) }, label);
    b.style.setProperty("--heat", Math.max(0, heat).toFixed(3));
    buttons.push(b);
    return make("li", {}, b);
  };
  const chips = [], masks = [];
  const all = chip("all", -1, 0);
  x.matches.forEach((m, i) => {
    const piece = pieceOf(queryTokens, m.query_token);
    (isMask(piece) ? masks : chips).push(chip(piece, i, m.weight * m.score / highestMatch));
  });
  box.append(make("ul", { class: "tokens", "aria-label": "Tokens of the query" }, all, ...chips));
  if (masks.length) {
    const score = x.matches.filter((m) => isMask(pieceOf(queryTokens, m.query_token))).reduce((sum, m) => sum + m.weight * m.score, 0);
    box.append(make("details", { class: "masks" },
      make("summary", {}, masks.length + " × [MASK]: " + figure(score) + " of the score"),
      make("p", { class: "quiet" }, "The model fills up a short question with these. Each stands for something that the question could also have said."),
      make("ul", { class: "tokens", "aria-label": "Tokens that fill the query up" }, ...masks)));
  }
  box.append(says);
  if (picture) box.append(picture.box);
  if (x.document_text) box.append(text);
  for (const note of x.notes || []) box.append(make("p", { class: "quiet" }, note[0].toUpperCase() + note.slice(1) + "."));
  box.append(make("details", { open: !x.document_text }, make("summary", {}, "As a table"),
    table("Matches", ["Query", "Document", "Place", "Score"],
      x.matches.map((m) => row(pieceOf(queryTokens, m.query_token), pieceOf(x.document_tokens, m.doc_token), m.doc_token, m.weight * m.score)))));
  show(-1);
  return box;
}

const stages = {
  empty: "It has no tokens, so no search returns it.",
  filtered: "The filter does not let it through.",
  "not probed": "It is in the list of no centroid that was read for the query.",
  cut: "It is in lists that were read, but was not among the documents that got an approximate score.",
  pruned: "Its approximate score was too low for an exact one.",
  outranked: "It was scored exactly, and others are better.",
  returned: "It is among the results.",
};

// outcomeOf describes how far a document got in a search, and its scores.
export function outcomeOf(x) {
  const parts = [make("strong", {}, x.stage), ": " + (stages[x.stage] || "")];
  if (x.rank) parts.push(" Rank " + x.rank + ".");
  if (x.stage_score !== undefined) {
    parts.push(" Its score at that stage is " + figure(x.stage_score) + (x.stage_limit === undefined ? "." : "; the lowest score that stayed is " + figure(x.stage_limit) + "."));
  }
  parts.push(" Its full score is " + figure(x.score) + ".");
  return make("p", {}, ...parts);
}
