// Texts of documents: the field that has them, and the marked words in them.

import { make } from "./dom.js";

const textFields = ["text", "page_content", "content", "body", "abstract"];

// textOf returns the name of the field with the text of a document, and the text. Both are "" without one.
export function textOf(fields) {
  const name = textFields.find((n) => typeof fields[n] === "string" && fields[n]);
  return name ? [name, fields[name]] : ["", ""];
}

export const titleOf = (fields) => typeof fields.title === "string" && fields.title ? fields.title : String(fields._id);

// bytesOf returns the number of bytes of a text in UTF-8.
const encoder = new TextEncoder();
export const bytesOf = (text) => encoder.encode(text).length;

// unitsAt returns two functions from offsets in the UTF-8 form of a text to offsets in the string. For an
// offset within a character, down returns the beginning of the character and up its end.
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

// fold returns a text in lower case, without the accents and points that searches by words ignore: those of
// Latin, Greek, Cyrillic, Hebrew and Arabic.
const fold = (text) => text.normalize("NFD").replace(/([\p{ASCII}\p{sc=Latin}\p{sc=Greek}\p{sc=Cyrillic}\p{sc=Hebrew}\p{sc=Arabic}])\p{M}+/gu, "$1").toLowerCase();

const words = /[\p{L}\p{N}\p{M}]+/gu;

// paired matches a character of the scripts that are searched by pairs of characters, and runs a run of them.
const paired = "[\\p{sc=Han}\\p{sc=Hira}\\p{sc=Kana}\\p{sc=Bopo}\\p{sc=Yiii}\\p{sc=Thai}\\p{sc=Laoo}\\p{sc=Khmr}\\p{sc=Mymr}\\p{sc=Java}\\p{sc=Bali}\\p{sc=Hang}ーｰ]";
const runs = new RegExp(`(?:(?!\\p{M})${paired}[\\p{M}ﾞﾟ]*)+`, "gu");

// pairsOf yields each pair of neighbouring characters in such runs: {start, one, both, alone}. one is the
// first character, and alone is true for a run of a single character.
function* pairsOf(text) {
  for (const run of text.matchAll(runs)) {
    const all = [...run[0].matchAll(/[^\p{M}ﾞﾟ][\p{M}ﾞﾟ]*/gu)];
    for (let i = 0; i < all.length; i++) {
      const start = run.index + all[i].index;
      yield { start, one: all[i][0], both: i + 1 < all.length ? all[i][0] + all[i + 1][0] : "", alone: all.length === 1 };
    }
  }
}

// wordRanges returns the ranges of a text that match words of a question. If no whole word matches, they are
// parts of words, like those that an index of trigrams finds.
export function wordRanges(text, question) {
  const same = (s) => fold(s.normalize("NFKC"));
  const pairs = new Set();
  for (const p of pairsOf(question)) {
    if (p.both) pairs.add(same(p.both));
    if (p.alone) pairs.add(same(p.one));
  }
  const wanted = new Set((question.replace(runs, " ").match(words) || []).map(fold));
  const found = [], parts = [];
  for (const p of pairsOf(text)) {
    const hit = p.both && pairs.has(same(p.both)) ? p.both : pairs.has(same(p.one)) ? p.one : "";
    if (!hit) continue;
    const end = p.start + hit.length, last = found.at(-1);
    if (last && last.end >= p.start && last.end < end) { // pairs that overlap or touch are one
      last.end = end;
      last.word = text.slice(last.start, end);
    } else if (!last || last.end < end) {
      found.push({ start: p.start, end, word: hit, weight: 1 });
    }
  }
  const others = text.replace(runs, (run) => " ".repeat(run.length));
  for (const m of others.matchAll(words)) {
    const range = (start, end) => ({ start: m.index + start, end: m.index + end, word: m[0], weight: 1 });
    const folded = fold(m[0]);
    if (wanted.has(folded)) found.push(range(0, m[0].length));
    if (found.length || folded.length !== m[0].length) continue; // where letters are is known of equal lengths
    for (const w of wanted) {
      const at = [...w].length > 2 ? folded.indexOf(w) : -1;
      if (at >= 0) parts.push(range(at, at + w.length));
    }
  }
  return found.length ? found : parts;
}

// spanRanges returns the ranges of a field that the service has found.
export function spanRanges(text, spans, field) {
  const fieldSpans = (spans || []).filter((s) => s.field === field);
  if (!fieldSpans.length) return [];
  const units = unitsAt(text);
  return fieldSpans.map((s) => ({ start: units.down(s.start), end: units.up(s.end), word: s.word, weight: s.score })).filter((r) => r.end > r.start);
}

// marked returns the nodes of a text with its ranges marked. Ranges may overlap.
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

// snippet returns the part of a text, of about length characters, with the heaviest ranges: [from, to].
export function snippet(text, ranges, length = 360) {
  if (text.length <= length * 1.25) return [0, text.length];
  const sorted = [...ranges].sort((a, b) => a.start - b.start);
  let best = -1, from = 0;
  for (let i = 0; i < sorted.length; i++) {
    let weight = 0;
    for (let j = i; j < sorted.length && sorted[j].end <= sorted[i].start + length * 0.75; j++) weight += sorted[j].weight;
    if (weight > best) [best, from] = [weight, sorted[i].start];
  }
  from = from < length / 4 ? 0 : Math.min(from - 40, text.length - length);
  if (from > 0) from += Math.max(0, text.slice(from, from + 40).search(/\s\S/) + 1); // not within a word
  let to = Math.min(text.length, from + length);
  if (to < text.length) to = Math.max(text.lastIndexOf(" ", to), from + length / 2);
  const low = (i) => i > 0 && i < text.length && text.charCodeAt(i) >= 0xdc00 && text.charCodeAt(i) <= 0xdfff; // the second half of a pair
  return [low(from) ? from - 1 : from, low(to) ? to + 1 : to];
}
