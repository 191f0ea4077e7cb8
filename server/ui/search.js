// Searches: their requests and answers. A search without a query lists documents.

import * as api from "./api.js";
import { conditionOf } from "./fields.js";

// An index of up to maxListed documents and passages can be browsed to its end, a larger one up to
// document maxPaged.
const maxListed = 200000;
export const maxPaged = 1000;

// browse lists the documents for which a condition holds.
async function browse(asked, signal) {
  const { index, own, page, size } = asked;
  const condition = conditionOf(own);
  const where = condition.filter_condition ? { condition: condition.filter_condition, parameters: condition.filter_parameters || [] } : {};
  let body, all;
  const there = await api.stats(index, signal);
  if (there.documents + there.passages <= maxListed) {
    all = await api.numbersOf(index, where.condition ? where : { condition: "1=1" }, signal);
    body = { document_ids: all.document_ids.slice(page * size, (page + 1) * size) };
  } else {
    body = { ...where, limit: Math.min((page + 1) * size + 1, maxPaged) };
  }
  let metadata = [];
  if (!all || body.document_ids.length) metadata = (await api.metadata(index, body, signal)).metadata;
  const more = all ? all.count > (page + 1) * size : metadata.length > (page + 1) * size;
  if (!all) metadata = metadata.slice(page * size, (page + 1) * size);
  return {
    path: "indices/" + encodeURIComponent(index) + "/metadata/get", body,
    result: { document_ids: metadata.map((m) => m._subset_), metadata }, more, total: all ? all.count : undefined, took: {},
  };
}

// bodyOf returns the body of a search for documents, each with its best passages.
function bodyOf(asked) {
  const { kind, words, params, own, feedback, page, size } = asked;
  const body = { params: { ...params, top_k: size + 1, offset: page * size }, group: "best", ...conditionOf(own) };
  if (kind === "keywords" || kind === "hybrid") body.text_query = [words];
  if (kind === "text" || kind === "hybrid") body.queries = [words];
  if (kind === "id") body.queries = [asked.question.query];
  if (kind === "keywords") delete body.params.mode;
  else body.stats = true;
  if (kind === "text") body.highlight = true;
  if (kind === "text" && (feedback.like.length || feedback.unlike.length)) body.feedback = feedback;
  return body;
}

// ask runs a search and returns {path, body, result, more, total, took, whole}. whole is the time in
// milliseconds that it took.
export async function ask(asked, signal) {
  const began = performance.now();
  if (!asked.words) {
    const found = await browse(asked, signal);
    return { ...found, whole: performance.now() - began };
  }
  if (asked.kind === "id") {
    const of = await api.vectorsOf(asked.index, asked.words, signal);
    asked.ids = of.ids;
    asked.question.query = of.query;
  }
  const path = api.searchPath(asked.index, asked.kind === "text" || asked.kind === "hybrid");
  const body = bodyOf(asked), found = await api.search(path, body, signal);
  const whole = performance.now() - began;
  const all = found.answer.results[0], to = asked.size;
  const result = { ...all };
  for (const list of ["document_ids", "ids", "scores", "metadata", "passages", "spans"]) if (all[list]) result[list] = all[list].slice(0, to);
  return { path, body, result, more: all.document_ids.length > to, took: found.took, whole };
}
