// Which token of the query matched which token of the document: a heat map in the text
// of the document, and the same as a table.

import { figure, make, row, table } from "./dom.js";
import { pictureMap } from "./picture.js";
import { unitsAt } from "./texts.js";

// spansOf splits a text at its tokens: [{text, token}]. token is undefined between tokens. A character that
// several tokens share belongs to the first.
export function spansOf(text, tokens) {
  const units = unitsAt(text);
  const spans = [];
  let end = 0;
  const order = tokens.map((t, i) => ({ token: i, start: units.down(t.start), end: units.up(t.end) }))
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
function matchesByToken(explanation) {
  const matches = Array.from({ length: explanation.tokens }, () => []);
  for (const m of explanation.matches) matches[m.doc_token].push(m);
  for (const list of matches) list.sort((a, b) => b.weight * b.score - a.weight * a.score);
  return matches;
}

const pieceOf = (tokens, i) => tokens && tokens[i] ? tokens[i].piece : "token " + i;

const isMask = (piece) => piece === "[MASK]" || piece === "<mask>";

// heatMap returns an element that shows the explanation of a document. queryTokens has the pieces of the
// query, if they are known.
export function heatMap(explanation, queryTokens, index) {
  const box = make("div", { class: "explanation" });
  const byToken = matchesByToken(explanation);
  const bests = byToken.map((list) => list.length ? list[0].weight * list[0].score : 0);
  const spans = [];
  const text = make("p", { class: "heat" });
  for (const s of explanation.document_text ? spansOf(explanation.document_text, explanation.document_tokens || []) : []) {
    if (s.token === undefined) {
      text.append(s.text);
      continue;
    }
    const span = make("span", {}, s.text);
    spans.push({ span, token: s.token });
    text.append(span);
  }
  const statusLine = make("p", { class: "quiet", role: "status" });
  const picture = explanation.image === undefined && !explanation.grid ? null : pictureMap(explanation, index);
  const buttons = [];
  const show = (chosen) => {
    const match = explanation.matches[chosen];
    const values = match ? (explanation.similarities || [])[chosen] || [] : bests;
    const highest = values.reduce((a, b) => Math.max(a, b), 1e-9); // as arguments they may be too many
    for (const { span, token } of spans) {
      const value = values[token] || 0;
      span.style.setProperty("--heat", Math.max(0, value / highest).toFixed(3));
      span.classList.toggle("best", !!match && match.doc_token === token);
      span.title = match ? figure(value) : byToken[token].map((m) => pieceOf(queryTokens, m.query_token) + " " + figure(m.weight * m.score)).join(", ");
    }
    if (picture) picture.show(match ? chosen : -1);
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i - 1 === chosen)));
    statusLine.textContent = match
      ? "“" + pieceOf(queryTokens, match.query_token) + "” matches “" + pieceOf(explanation.document_tokens, match.doc_token) + "” best, with " + figure(match.score) +
        (match.weight === 1 ? "" : " times " + figure(match.weight)) + "."
      : "Words are coloured by how well they match. Choose a query token to see its matches.";
  };
  const highestMatch = Math.max(...explanation.matches.map((m) => m.weight * m.score), 1e-9);
  const chip = (label, index, heat) => {
    const b = make("button", { type: "button", "aria-pressed": "false", onclick: () => show(index) }, label);
    b.style.setProperty("--heat", Math.max(0, heat).toFixed(3));
    buttons.push(b);
    return make("li", {}, b);
  };
  const chips = [], masks = [];
  const all = chip("all", -1, 0);
  explanation.matches.forEach((m, i) => {
    const piece = pieceOf(queryTokens, m.query_token);
    (isMask(piece) ? masks : chips).push(chip(piece, i, m.weight * m.score / highestMatch));
  });
  box.append(make("ul", { class: "tokens", "aria-label": "Tokens of the query" }, all, ...chips));
  if (masks.length) {
    const score = explanation.matches.filter((m) => isMask(pieceOf(queryTokens, m.query_token))).reduce((sum, m) => sum + m.weight * m.score, 0);
    box.append(make("details", { class: "masks" },
      make("summary", {}, masks.length + " × [MASK]: " + figure(score) + " of the score"),
      make("p", { class: "quiet" }, "The model fills up a short question with these. Each stands for something that the question could also have said."),
      make("ul", { class: "tokens", "aria-label": "Tokens that fill the query up" }, ...masks)));
  }
  box.append(statusLine);
  if (picture) box.append(picture.box);
  if (explanation.document_text) box.append(text);
  for (const note of explanation.notes || []) box.append(make("p", { class: "quiet" }, note[0].toUpperCase() + note.slice(1) + "."));
  box.append(make("details", { open: !explanation.document_text }, make("summary", {}, "As a table"),
    table("Matches", ["Query", "Document", "Place", "Score"],
      explanation.matches.map((m) => row(pieceOf(queryTokens, m.query_token), pieceOf(explanation.document_tokens, m.doc_token), m.doc_token, m.weight * m.score)))));
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
export function outcomeOf(explanation) {
  const parts = [make("strong", {}, explanation.stage), ": " + (stages[explanation.stage] || "")];
  if (explanation.rank) parts.push(" Rank " + explanation.rank + ".");
  if (explanation.stage_score !== undefined) {
    parts.push(" Its score at that stage is " + figure(explanation.stage_score) + (explanation.stage_limit === undefined ? "." : "; the lowest score that stayed is " + figure(explanation.stage_limit) + "."));
  }
  parts.push(" Its full score is " + figure(explanation.score) + ".");
  return make("p", {}, ...parts);
}
