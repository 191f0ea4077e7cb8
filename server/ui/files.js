// Files into documents: JSON lines, CSV, Markdown and text.

import { bytesOf } from "./texts.js";

const idNames = ["_id", "id", "docid", "doc_id"];
const textNames = ["text", "contents", "content", "body", "page_content", "passage", "abstract"];
const titleNames = ["title", "name", "heading"];
const reserved = ["_subset_", "_content_id_", "_id", "_passage"];

// kinds are the ends of names that are read.
export const kinds = [".jsonl", ".ndjson", ".json", ".csv", ".md", ".markdown", ".txt", ".rst"];

export const readable = (name) => kinds.some((end) => name.toLowerCase().endsWith(end));

// fieldName is a name that metadata may have: letters, digits and underscores.
function fieldName(name) {
  const clean = name.replace(/[^A-Za-z0-9_]+/g, "_").replace(/^(?=[0-9])/, "_").slice(0, 200) || "_";
  return reserved.includes(clean.toLowerCase()) ? "field" + clean : clean;
}

const named = (o, names) => names.find((n) => typeof o[n] === "string" && o[n].trim() || typeof o[n] === "number");

// fromObject is the document of an object; where names the object in errors.
function fromObject(o, where, fallback) {
  if (o === null || typeof o !== "object" || Array.isArray(o)) throw new Error(where + " is no object");
  const textName = named(o, textNames);
  if (!textName) throw new Error(where + " has no text. It has " + (Object.keys(o).slice(0, 8).join(", ") || "no fields") + "; the text is to be in one of " + textNames.join(", "));
  const idName = named(o, idNames), titleName = named(o, titleNames);
  const metadata = { _id: String(idName ? o[idName] : fallback) };
  for (const [name, value] of Object.entries(o)) {
    if (value === null || name === idName || name === textName || name === titleName) continue;
    metadata[fieldName(name)] = value;
  }
  if (titleName) metadata.title = String(o[titleName]);
  metadata.text = String(o[textName]);
  return { text: (metadata.title ? metadata.title + " " : "") + metadata.text, metadata };
}

// csvRows parts a text by RFC 4180: fields in double quotes may have commas and line ends.
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

// parts parts a text at headings and empty lines into passages of about most characters:
// [{start, end, title}], in characters.
export function parts(text, most, markdown) {
  const found = [], headings = [];
  let start = 0, end = 0, title = "", at = 0;
  const close = () => {
    if (text.slice(start, end).trim()) found.push({ start, end, title });
    start = end;
  };
  for (const block of text.split(/(?<=\n[ \t]*\r?\n)/)) {
    const heading = markdown && /^(#{1,6})\s+(.+?)\s*#*\s*(?:\n|$)/.exec(block);
    if (heading) {
      close();
      headings.length = Math.min(headings.length, heading[1].length - 1);
      headings.push(heading[2]);
      title = headings.join(" › ");
    } else if (at + block.length - start > most) close();
    for (let from = 0; from < block.length;) { // one that is too long is parted by sentences
      let size = Math.min(block.length - from, most);
      if (from + size < block.length) {
        const cut = Math.max(...[". ", "\n", " "].map((s) => block.lastIndexOf(s, from + size - 1)));
        if (cut > from + most / 2) size = cut + 1 - from;
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

// documentsOf reads a file: groups of documents that have to be stored together, since
// they are passages of one text.
export function documentsOf(path, text, most) {
  text = text.replace(/^\ufeff/, "").toWellFormed();
  const name = path.toLowerCase();
  if (name.endsWith(".jsonl") || name.endsWith(".ndjson")) {
    return text.split("\n").map((line, i) => [line.trim(), i + 1]).filter(([line]) => line).map(([line, n]) => {
      let o;
      try {
        o = JSON.parse(line);
      } catch {
        throw new Error("line " + n + " is not JSON");
      }
      return [fromObject(o, "line " + n, path + ":" + n)];
    });
  }
  if (name.endsWith(".json")) {
    const all = JSON.parse(text);
    return (Array.isArray(all) ? all : [all]).map((o, i) => [fromObject(o, "object " + (i + 1), path + ":" + (i + 1))]);
  }
  if (name.endsWith(".csv")) {
    const [heads, ...rows] = csvRows(text);
    return rows.map((row, i) => {
      const o = Object.fromEntries(heads.map((h, j) => [h.trim(), /^-?(0|[1-9]\d{0,14})(\.\d+)?$/.test(row[j] ?? "") ? Number(row[j]) : row[j] || null]));
      return [fromObject(o, "row " + (i + 2), path + ":" + (i + 2))];
    });
  }
  const file = path.split("/").pop();
  const all = parts(text, most, name.endsWith(".md") || name.endsWith(".markdown"));
  if (!all.length) return [];
  return [all.map((p, n) => {
    const passage = text.slice(p.start, p.end).trim();
    const title = p.title ? file + " › " + p.title : file;
    const metadata = { _id: all.length > 1 ? path + "#" + n : path, title, text: passage, path };
    if (all.length > 1) metadata._passage = { of: path, n, start: bytesOf(text.slice(0, p.start)), end: bytesOf(text.slice(0, p.end)) };
    return { text: title + " " + passage, metadata };
  })];
}

// dropped are the files of a drop, those of folders included: [{path, file}].
export async function dropped(transfer) {
  const found = [];
  const walk = async (entry, path) => {
    if (entry.name.startsWith(".")) return;
    if (entry.isFile) {
      found.push({ path: path + entry.name, file: await new Promise((ok, no) => entry.file(ok, no)) });
      return;
    }
    const reader = entry.createReader();
    for (;;) { // it gives some at a time
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
