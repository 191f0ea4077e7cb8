// Files into documents: JSON lines, CSV, Markdown and text.

import { bytesOf } from "./texts.js";

const idNames = ["_id", "id", "docid", "doc_id"];
const textNames = ["text", "contents", "content", "body", "page_content", "passage", "abstract"];
const titleNames = ["title", "name", "heading"];
// kinds has the endings of the names of files that can be read.
export const kinds = [".jsonl", ".ndjson", ".json", ".csv", ".md", ".markdown", ".txt", ".rst"];

export const readable = (name) => kinds.some((end) => name.toLowerCase().endsWith(end));

// reserved matches the names of fields that the service uses itself, in any case.
const reserved = /^(_subset_|_content_id_|_id|_passage)$/iu;

// fieldName returns the name of a field of metadata, with "field" before a reserved name.
const fieldName = (name) => reserved.test(name) ? "field" + name : name;

// parseExactJSON parses JSON. A number that JavaScript would write differently keeps its text, since it may be an
// id, or have more digits than a float64.
function parseExactJSON(text) {
  return JSON.parse(text, (_, value, at) => {
    if (typeof value !== "number") return value;
    if (at?.source !== undefined && JSON.rawJSON) return String(value) === at.source ? value : JSON.rawJSON(at.source);
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) throw new RangeError("a number has more digits than this browser reads: write it in quotes");
    return value;
  });
}

const isRaw = (v) => JSON.isRawJSON?.(v) ?? false;
const isText = (v) => typeof v === "string" && v.trim() !== "" || typeof v === "number" || isRaw(v);
const textOf = (v) => isRaw(v) ? v.rawJSON : String(v);
const named = (o, names) => names.find((n) => Object.hasOwn(o, n) && isText(o[n]));

// number returns a field of CSV as a number, if JavaScript writes that number in the same way.
const number = (v) => typeof v === "string" && Number.isFinite(Number(v)) && String(Number(v)) === v ? Number(v) : v;

// groupsFromObjects turns objects, [{o, where, id}], into groups of one document each. value converts the values of
// fields. Objects without a text are skipped. If all objects are, it throws: the field with the texts has
// another name.
function groupsFromObjects(objects, value = (v) => v) {
  const groups = [];
  let fault = null, empty = 0;
  for (const { o, where, id } of objects) {
    if (o === null || typeof o !== "object" || Array.isArray(o) || isRaw(o)) throw new Error(where + " is not an object");
    const textName = named(o, textNames), idName = named(o, idNames), titleName = named(o, titleNames);
    if (!textName) {
      fault ??= new Error(where + " has no text. It has " + (Object.keys(o).slice(0, 8).join(", ") || "no fields") + "; the text must be in one of " + textNames.join(", "));
      empty++;
      continue;
    }
    const fields = new Map();
    for (const [name, v] of Object.entries(o)) {
      if (v !== null && ![idName, textName, titleName].includes(name)) fields.set(fieldName(name), value(v));
    }
    if (titleName) fields.set("title", textOf(o[titleName]));
    fields.set("text", textOf(o[textName]));
    fields.set("_id", idName ? textOf(o[idName]) : id);
    const title = fields.get("title");
    groups.push([{ text: (title ? title + " " : "") + fields.get("text"), metadata: Object.fromEntries(fields) }]);
  }
  if (fault && !groups.length) throw fault;
  return { groups, empty };
}

// csvRows splits a text into rows by RFC 4180: fields in double quotes may have commas and line ends.
export function csvRows(text) {
  const rows = [];
  let row = [], field = "", inside = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (inside) {
      if (c !== '"') field += c;
      else if (text[i + 1] === '"') field += text[++i];
      else inside = false;
    } else if (c === '"' && field === "") inside = true;
    else if (c === ",") {
      row.push(field);
      field = "";
    } else if (c === "\n" || c === "\r") {
      if (c === "\r" && text[i + 1] === "\n") i++;
      row.push(field);
      rows.push(row);
      row = [];
      field = "";
    } else field += c;
  }
  if (inside) throw new Error("a double quote is not closed");
  if (field !== "" || row.length) rows.push([...row, field]);
  return rows.filter((r) => r.length > 1 || r[0] !== "");
}

// linesOf returns the lines of a text, with their ends.
const linesOf = (text) => text.match(/[^\n]*\n|[^\n]+$/g) || [];

// headingOf returns the heading in a line of Markdown, {level, title}, or null.
function headingOf(line) {
  const m = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/.exec(line.trimEnd());
  return m && { level: m[1].length, title: (m[2] || "").replace(/(^|[ \t]+)#+$/, "").trim() };
}

// blocksOf splits a text after empty lines: [{text, heading}]. In Markdown a heading begins a block, too, and
// empty lines between fences of code end none.
function blocksOf(text, markdown) {
  const blocks = [];
  let fence = "", block = null;
  for (const line of linesOf(text)) {
    let heading = null;
    if (markdown) {
      const mark = /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line.trimEnd());
      if (fence) {
        if (mark && mark[1].startsWith(fence) && !mark[2].trim()) fence = "";
      } else if (mark && (mark[1][0] === "~" || !mark[2].includes("`"))) fence = mark[1];
      else heading = headingOf(line);
    }
    if (!block || heading) blocks.push(block = { text: "", heading });
    block.text += line;
    if (!fence && !line.trim()) block = null;
  }
  return blocks;
}

// splitPassages splits a text at headings and empty lines into passages of about maxLength characters:
// [{start, end, title}], with offsets in characters.
export function splitPassages(text, maxLength, markdown) {
  const found = [], headings = [];
  let start = 0, end = 0, title = "", at = 0;
  const close = () => {
    if (text.slice(start, end).trim()) found.push({ start, end, title });
    start = end;
  };
  for (const { text: block, heading } of blocksOf(text, markdown)) {
    if (heading) {
      close();
      headings.length = Math.min(headings.length, heading.level - 1);
      if (heading.title) headings.push(heading.title);
      title = headings.join(" › ");
    } else if (at + block.length - start > maxLength) close();
    for (let from = 0; from < block.length;) { // a block that is too long is split at sentences
      let size = Math.min(block.length - from, maxLength);
      if (from + size < block.length) {
        const cut = Math.max(...[". ", "\n", " "].map((s) => block.lastIndexOf(s, from + size - 1)));
        if (cut > from + maxLength / 2) size = cut + 1 - from;
        const next = block.charCodeAt(from + size);
        if (next >= 0xdc00 && next <= 0xdfff) size--; // do not split a surrogate pair
      }
      if (from > 0) close();
      from += size;
      end = at + from;
    }
    at += block.length;
  }
  close();
  return found;
}

// documentsOf returns the documents in the text of a file, {groups, empty}. The documents of a group are the
// passages of one text, of about maxLength characters, and must be stored together. empty is the number of
// rows without a text.
export function documentsOf(path, text, maxLength) {
  text = text.replace(/^\ufeff/, "").toWellFormed();
  const name = path.toLowerCase();
  const read = (text, where) => {
    try {
      return parseExactJSON(text);
    } catch (err) {
      throw new Error(where + (err instanceof RangeError ? ": " + err.message : " is not JSON"));
    }
  };
  if (name.endsWith(".jsonl") || name.endsWith(".ndjson")) {
    const lines = text.split("\n").map((line, i) => [line.trim(), i + 1]).filter(([line]) => line);
    return groupsFromObjects(lines.map(([line, n]) => ({ o: read(line, "line " + n), where: "line " + n, id: path + ":" + n })));
  }
  if (name.endsWith(".json")) {
    const all = read(text, "the file");
    return groupsFromObjects((Array.isArray(all) ? all : [all]).map((o, i) => ({ o, where: "object " + (i + 1), id: path + ":" + (i + 1) })));
  }
  if (name.endsWith(".csv")) {
    const [heads = [], ...rows] = csvRows(text);
    return groupsFromObjects(rows.map((row, i) => ({
      o: Object.fromEntries(heads.map((h, j) => [h.trim(), row[j] || null])), where: "row " + (i + 2), id: path + ":" + (i + 2),
    })), number);
  }
  const file = path.split("/").pop();
  const all = splitPassages(text, maxLength, name.endsWith(".md") || name.endsWith(".markdown"));
  if (!all.length) return { groups: [], empty: 0 };
  let at = 0, bytes = 0;
  const bytesTo = (end) => { // calls have ascending ends, so that each character is counted once
    bytes += bytesOf(text.slice(at, end));
    at = end;
    return bytes;
  };
  return { empty: 0, groups: [all.map((p, n) => {
    const passage = text.slice(p.start, p.end).trim();
    const title = p.title ? file + " › " + p.title : file;
    const metadata = { _id: all.length > 1 ? path + "#" + n : path, title, text: passage, path };
    if (all.length > 1) metadata._passage = { of: path, n, start: bytesTo(p.start), end: bytesTo(p.end) };
    return { text: title + " " + passage, metadata };
  })] };
}

// dropped returns the files of a drop, including those in folders: [{path, file}].
export async function dropped(transfer) {
  const found = [];
  const walk = async (entry, path) => {
    if (entry.name.startsWith(".")) return;
    if (entry.isFile) {
      found.push({ path: path + entry.name, file: await new Promise((ok, no) => entry.file(ok, no)) });
      return;
    }
    const reader = entry.createReader();
    for (;;) { // readEntries returns a batch at a time
      const some = await new Promise((ok, no) => reader.readEntries(ok, no));
      if (!some.length) break;
      for (const e of some) await walk(e, path + entry.name + "/");
    }
  };
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((e) => e);
  if (!entries.length) return [...transfer.files].map((file) => ({ path: file.name, file }));
  for (const e of entries) await walk(e, "");
  return found;
}
