// Searches: their requests and answers. A search without a query lists documents.

import * as api from "./api.js";
import { conditionOf } from "./fields.js";

// An index of up to maxListed documents and passages can be browsed to its end, a larger one up to
// document maxPaged.
const maxListed = 200000;
export const maxPaged = 1000;

// browse lists the documents for which a condition holds.
async function browse(request, signal) {
  const { index, userCondition, page, size } = request;
  const condition = conditionOf(userCondition);
  const where = condition.filter_condition ? { condition: condition.filter_condition, parameters: condition.filter_parameters || [] } : {};
  let body, all;
  const stats = await api.stats(index, signal);
  if (stats.documents + stats.passages <= maxListed) {
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
function bodyOf(request) {
  const { kind, words, params, userCondition, feedback, page, size } = request;
  const body = { params: { ...params, top_k: size + 1, offset: page * size }, group: "best", ...conditionOf(userCondition) };
  if (kind === "keywords" || kind === "hybrid") body.text_query = [words];
  if (kind === "text" || kind === "hybrid") body.queries = [words];
  if (kind === "id") body.queries = [request.question.query];
  if (kind === "keywords") delete body.params.mode;
  else body.stats = true;
  if (kind === "text") body.highlight = true;
  if (kind === "text" && (feedback.like.length || feedback.unlike.length)) body.feedback = feedback;
  return body;
}

// ask runs a search and returns {path, body, result, more, total, took, whole}. whole is the time in
// milliseconds that it took.
export async function ask(request, signal) {
  const began = performance.now();
  if (!request.words) {
    const found = await browse(request, signal);
    return { ...found, whole: performance.now() - began };
  }
  if (request.kind === "id") {
    const document = await api.vectorsOf(request.index, request.words, signal);
    request.ids = document.ids;
    request.question.query = document.query;
  }
  const path = api.searchPath(request.index, request.kind === "text" || request.kind === "hybrid");
  const body = bodyOf(request), found = await api.search(path, body, signal);
  const whole = performance.now() - began;
  const all = found.answer.results[0], size = request.size;
  const result = { ...all };
  for (const list of ["document_ids", "ids", "scores", "metadata", "passages", "spans"]) if (all[list]) result[list] = all[list].slice(0, size);
  return { path, body, result, more: all.document_ids.length > size, took: found.took, whole };
}
