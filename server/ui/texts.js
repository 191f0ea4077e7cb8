// Texts of documents: which field has them, and what is marked in them.

import { make } from "./dom.js";

const textFields = ["text", "page_content", "content", "body", "abstract"];

// textOf is the field with the text of a document, and the text; "" if it has none.
export function textOf(fields) {
  const name = textFields.find((n) => typeof fields[n] === "string" && fields[n]);
  return name ? [name, fields[name]] : ["", ""];
}

export const titleOf = (fields) => typeof fields.title === "string" && fields.title ? fields.title : String(fields._id);

// bytesOf is how many bytes a text has in UTF-8.
const encoder = new TextEncoder();
export const bytesOf = (text) => encoder.encode(text).length;

// unitsAt maps offsets in the UTF-8 form of a text to offsets in the string. An offset
// within a character is that of its beginning (down) or of its end (up).
export function unitsAt(text) {
  const down = [], up = [];
  let unit = 0;
  for (const c of text) {
    const point = c.codePointAt(0);
    const bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (let i = 0; i < bytes; i++) {
      down.push(unit);
      up.push(i === 0 ? unit : unit + c.length);
    }
    unit += c.length;
  }
  down.push(unit);
  up.push(unit);
  const clamp = (i) => Math.min(Math.max(i, 0), down.length - 1);
  return { down: (i) => down[clamp(i)], up: (i) => up[clamp(i)] };
}

const fold = (word) => word.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

// wordRanges are the places of the words of a question in a text, as a search by words
// compares them: without case and accents.
export function wordRanges(text, question) {
  const wanted = new Set((question.match(/[\p{L}\p{N}\p{M}]+/gu) || []).map(fold));
  const found = [];
  for (const m of text.matchAll(/[\p{L}\p{N}\p{M}]+/gu)) {
    if (wanted.has(fold(m[0]))) found.push({ start: m.index, end: m.index + m[0].length, word: m[0], weight: 1 });
  }
  return found;
}

// spanRanges are the places that the service tells of a field.
export function spanRanges(text, spans, field) {
  const own = (spans || []).filter((s) => s.field === field);
  if (!own.length) return [];
  const at = unitsAt(text);
  return own.map((s) => ({ start: at.down(s.start), end: at.up(s.end), word: s.word, weight: s.score })).filter((r) => r.end > r.start);
}

// marked is a text with its ranges marked; they may overlap.
export function marked(text, ranges, from = 0, to = text.length) {
  const out = [];
  let end = from;
  for (const r of [...ranges].sort((a, b) => a.start - b.start || a.end - b.end)) {
    const start = Math.max(r.start, end), stop = Math.min(r.end, to);
    if (start >= stop) continue;
    if (start > end) out.push(text.slice(end, start));
    out.push(make("mark", { title: r.word }, text.slice(start, stop)));
    end = stop;
  }
  if (end < to) out.push(text.slice(end, to));
  return out;
}

// snippet is the part of a text with the heaviest ranges: [from, to].
export function snippet(text, ranges, most = 360) {
  if (text.length <= most * 1.25) return [0, text.length];
  const sorted = [...ranges].sort((a, b) => a.start - b.start);
  let best = -1, from = 0;
  for (let i = 0; i < sorted.length; i++) {
    let weight = 0;
    for (let j = i; j < sorted.length && sorted[j].end <= sorted[i].start + most * 0.75; j++) weight += sorted[j].weight;
    if (weight > best) [best, from] = [weight, sorted[i].start];
  }
  from = from < most / 4 ? 0 : Math.min(from - 40, text.length - most);
  if (from > 0) from += Math.max(0, text.slice(from, from + 40).search(/\s\S/) + 1); // not within a word
  let to = Math.min(text.length, from + most);
  if (to < text.length) to = Math.max(text.lastIndexOf(" ", to), from + most / 2);
  const low = (i) => i > 0 && i < text.length && text.charCodeAt(i) >= 0xdc00 && text.charCodeAt(i) <= 0xdfff; // the second half of a pair
  return [low(from) ? from - 1 : from, low(to) ? to + 1 : to];
}
