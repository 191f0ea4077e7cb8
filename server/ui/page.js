// The page: the form, the searches, and their results.

import { addView } from "./add.js";
import * as api from "./api.js";
import { asCode } from "./code.js";
import { byId, figure, make } from "./dom.js";
import * as fields from "./fields.js";
import { heatMap, outcomeOf } from "./heat.js";
import { groupsOf, hit } from "./hits.js";
import { manageView, stopRefreshing } from "./manage.js";
import { timesOf } from "./panels.js";
import * as search from "./search.js";

// last is the search whose results are shown. If the query is a document, it gets the pieces of that
// document when a result is explained.
let last = null;
let running = new AbortController();
let page = 0;
let feedback = { like: [], unlike: [] };
let view = "search";
let names = [], health = {}, access = { needed: false };

// searchKinds has the label and the placeholder of the query for each kind of search.
const searchKinds = {
  text: ["Query", "Ask a question, or leave this empty to browse"],
  hybrid: ["Query", "Ask a question, or leave this empty to browse"],
  keywords: ["Keywords", "Words of the documents, or empty to browse"],
  id: ["Id of the document", "The _id of a document"],
};

// typingPause is the pause in typing, in milliseconds, after which a search begins by itself.
const typingPause = 250;

const chosen = () => byId("index").value;
const kind = () => document.querySelector("input[name=kind]:checked").value;

// may reports whether the token has a permission on an index, or on all indexes ("*").
function may(permission, index) {
  if (!access.needed) return true;
  const order = ["none", "read", "write", "admin"], own = access.own || { permission: "none" };
  const fits = (pattern) => index === "*" ? /^\*+$/.test(pattern)
    : new RegExp("^" + pattern.replace(/[\\^$.+()[\]{}|]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".") + "$", "s").test(index);
  return [own, ...(own.grants || []).filter((g) => fits(g.pattern))].some((g) => order.indexOf(g.permission) >= order.indexOf(permission));
}

function showError(err) {
  if (err.name === "AbortError") return;
  const box = byId("error");
  box.hidden = false;
  const more = [];
  if (err.retryAfter) more.push("Try again in " + err.retryAfter + " s.");
  if (err.requestID) more.push("Request " + err.requestID);
  box.replaceChildren(make("strong", { class: "code" }, err.code || "ERROR"), " ", err.message || String(err), more.length ? make("br") : "", more.join(" "));
  byId("status").textContent = "";
  if (err.code === "UNAUTHORIZED" || err.code === "FORBIDDEN") askToken(err.message);
}

function clearError() {
  byId("error").hidden = true;
  for (const e of document.querySelectorAll("[aria-invalid]")) e.removeAttribute("aria-invalid");
}

// guarded runs a function, and shows its error.
async function guarded(work) {
  try {
    return await work();
  } catch (err) {
    showError(err);
  }
}

function askToken(reason) {
  const dialog = byId("token-dialog");
  if (reason) byId("token-reason").textContent = reason[0].toUpperCase() + reason.slice(1) + ". The page sends the token with every request and keeps it until this tab is closed.";
  byId("token").value = "";
  if (!dialog.open) dialog.showModal();
}

// refused marks a field as wrong, opens the options if it is one of them, and returns the error. The
// browser's own checks do not reach hidden fields. While the user is typing the focus stays.
function refused(id, message, typing) {
  const field = byId(id);
  field.setAttribute("aria-invalid", "true");
  if (byId("options").contains(field)) byId("options").open = true;
  if (!typing) field.focus();
  return new api.Problem("BAD_REQUEST", message);
}

// ownCondition returns the user's condition as fields of a request.
function ownCondition(typing) {
  const condition = byId("condition").value.trim(), text = byId("parameters").value.trim();
  if (!condition && !text) return {};
  let parameters = [];
  try {
    parameters = JSON.parse(text.startsWith("[") ? text : "[" + text + "]");
  } catch {
    throw refused("parameters", "the values of the condition are not JSON; texts are in double quotes, and commas between values", typing);
  }
  return { filter_condition: condition, filter_parameters: parameters };
}

function textFields() {
  const list = byId("text-fields").value.split(",").map((s) => s.trim()).filter((s) => s);
  return list.length ? { text_fields: list } : {};
}

// remember puts the search into the address, so that it can be bookmarked and shared.
function remember() {
  const p = new URLSearchParams({ index: chosen() });
  if (view !== "search") p.set("view", view);
  p.set(kind(), byId("query").value);
  if (byId("condition").value) p.set("condition", byId("condition").value);
  if (byId("parameters").value) p.set("parameters", byId("parameters").value);
  if (fields.chosen.length) p.set("filters", JSON.stringify(fields.chosen));
  if (page) p.set("page", page + 1);
  history.replaceState(null, "", "#" + p);
}

// recall sets the form from the address.
function recall() {
  const p = new URLSearchParams(location.hash.slice(1));
  const wanted = Object.keys(searchKinds).find((k) => p.has(k)) || "text";
  document.querySelector("input[name=kind][value=" + wanted + "]").checked = true;
  byId("query").value = p.get(wanted) || "";
  byId("condition").value = p.get("condition") || "";
  byId("parameters").value = p.get("parameters") || "";
  byId("options").open = p.has("condition");
  try {
    fields.choose(JSON.parse(p.get("filters") || "[]"));
  } catch {
    fields.choose([]);
  }
  page = Math.max(0, Math.min(1000, Number.parseInt(p.get("page"), 10) || 1) - 1);
  view = ["add", "manage"].includes(p.get("view")) ? p.get("view") : "search";
  kindChanged();
}

function kindChanged() {
  const [label, hint] = searchKinds[kind()];
  byId("query-label").textContent = label;
  byId("query").placeholder = hint;
}

// find runs the search of the form. typing is true while the user may go on typing, and keep keeps the page.
async function find({ typing = false, keep = false } = {}) {
  running.abort();
  const signal = (running = new AbortController()).signal;
  clearError();
  if (!keep) page = 0;
  byId("results").setAttribute("aria-busy", "true");
  const found = await guarded(async () => {
    const index = chosen(), words = byId("query").value.trim();
    if (!index) throw refused("index", "choose an index", typing);
    if (!words && kind() === "id") throw refused("query", "which document? Give its id", typing);
    if (!byId("top-k").checkValidity()) throw refused("top-k", "how many results? 1 to " + byId("top-k").max, typing);
    const userCondition = ownCondition(typing);
    const params = byId("mode").value ? { mode: byId("mode").value } : {};
    remember();
    const size = byId("top-k").valueAsNumber;
    const question = { params: { ...params, top_k: Math.min((page + 1) * size, search.maxPaged) }, ...fields.conditionOf(userCondition), ...textFields() };
    const request = { index, kind: kind(), words, id: words && kind() === "id" ? words : "", userCondition, page, size, params, feedback, question };
    if (words && request.kind !== "id") question.text = words;
    if (!typing) byId("status").textContent = "Searching …";
    const facets = fields.showFacets(index, userCondition, () => find());
    let answer;
    try {
      answer = await search.ask(request, signal);
    } catch (err) {
      if (err.code !== "INDEX_NOT_FOUND" || words || !names.includes(index)) throw err;
      answer = null; // it has no documents yet
    }
    if (signal.aborted) return;
    byId("start").replaceChildren();
    if (answer) show(request, answer);
    else nothingYet(index);
    await facets;
    return true;
  });
  if (signal.aborted) return; // another search goes on
  byId("results").setAttribute("aria-busy", "false");
  if (!found && byId("hits").firstChild) byId("status").textContent = "The results are those of the search before.";
}

// show shows the answer to a search.
function show(request, { path, body, result, more, total, took, whole }) {
  const explains = request.words && request.kind !== "keywords";
  last = explains ? request : null; // elsewhere there are no tokens to explain
  const marks = request.kind === "keywords" || request.kind === "hybrid" ? request.words : "";
  const shown = groupsOf(result);
  const actions = {
    guarded,
    explain: explains ? (id) => matchesOf(request, id) : undefined,
    similar,
    judge: request.kind === "text" && request.words ? judge : undefined,
    judged: (id) => feedback.like.includes(id) ? true : feedback.unlike.includes(id) ? false : undefined,
  };
  const from = request.page * request.size;
  byId("why-answer").replaceChildren();
  byId("hits").replaceChildren(...shown.map((g, i) => hit(g, from + i + 1, { index: request.index, id: request.id, words: marks }, actions)));
  const n = shown.length, lastNumber = from + n;
  const judged = feedback.like.length + feedback.unlike.length;
  byId("status").replaceChildren(request.words
    ? (from ? "Results " + figure(from + 1) + " to " + figure(lastNumber) : n + (n === 1 ? " result" : " results")) + " in " + whole.toFixed(0) + " ms"
    : total === 0 ? "No document passes the filter." : n ? (n === result.document_ids.length ? "Documents " : "Passages ") + figure(from + 1) + " to " + figure(from + result.document_ids.length) + (total === undefined ? "" : " of " + figure(total)) + (n === result.document_ids.length ? "" : ", of " + figure(n) + (n === 1 ? " document" : " documents")) : "There is no document on this page.",
  judged ? make("span", {}, ", with " + judged + (judged === 1 ? " judgement " : " judgements "), make("button", { type: "button", class: "link", onclick: () => { feedback = { like: [], unlike: [] }; find(); } }, "forget")) : "");
  if (result.coverage) byId("status").append(" Some shards did not answer.");
  byId("pages").hidden = !more && request.page === 0;
  byId("before").disabled = request.page === 0;
  byId("after").disabled = !more;
  byId("page-number").textContent = "Page " + (request.page + 1) + (total ? " of " + Math.ceil(total / request.size) : "");
  byId("times").replaceChildren(...request.words ? timesOf(result.stats, took, whole) : [make("p", { class: "quiet" }, "The list took " + whole.toFixed(0) + " ms. A search tells its stages.")]);
  showCode(path, body);
}

function showCode(path, body) {
  const all = asCode(new URL(path, api.base).href, body, api.token.get() !== "");
  const statusLine = make("span", { role: "status", class: "quiet" });
  const text = make("pre", { tabindex: "0", "aria-label": "The request as code" }, all.curl);
  const buttons = Object.keys(all).map((name) => make("button", { type: "button", class: "plain", "aria-pressed": String(name === "curl"), "data-code": name, onclick: async (e) => {
    text.textContent = all[name];
    for (const b of buttons) b.setAttribute("aria-pressed", String(b === e.currentTarget));
    try {
      await navigator.clipboard.writeText(all[name]);
      statusLine.textContent = "Copied as " + name + ".";
    } catch { // no permission, or no TLS: it is marked for the keyboard
      getSelection().selectAllChildren(text);
      statusLine.textContent = "Marked: copy it with Ctrl-C.";
    }
  } }, name));
  byId("code").replaceChildren(make("div", { class: "buttons" }, ...buttons, statusLine), text);
}

async function matchesOf(request, id) {
  const x = await explained(request, id);
  return [...request.kind === "hybrid" ? [make("p", { class: "quiet" }, "By meaning alone:")] : [], outcomeOf(x), heatMap(x, x.query_tokens || request.pieces, request.index)];
}

// explained returns the explanation of a document in a search.
async function explained(request, id) {
  if (request.id && !request.pieces) {
    // The pieces of a document that is the query are those of its texts.
    const { query, text_fields } = request.question;
    const all = await Promise.all(request.ids.map((id) => api.explain(request.index, { query, text_fields, id })));
    request.pieces = all.every((x) => x.document_tokens) ? all.flatMap((x) => x.document_tokens) : undefined;
  }
  return api.explain(request.index, { ...request.question, id, similarities: true });
}

function similar(id) {
  document.querySelector("input[name=kind][value=id]").checked = true;
  kindChanged();
  byId("query").value = id;
  byId("query").focus();
  find();
}

// judge marks a document as good or bad, or removes that mark, and searches again.
function judge(id, good) {
  const was = (good ? feedback.like : feedback.unlike).includes(id);
  feedback = { like: feedback.like.filter((x) => x !== id), unlike: feedback.unlike.filter((x) => x !== id) };
  if (!was) (good ? feedback.like : feedback.unlike).push(id);
  find();
}

async function why() {
  clearError();
  byId("why-box").open = true;
  const place = byId("why-answer");
  if (!last) {
    place.replaceChildren(make("p", {}, kind() === "keywords" ? "A search by keywords alone is not explained." : "Search first."));
    return;
  }
  place.replaceChildren();
  await guarded(async () => place.replaceChildren(...await matchesOf(last, byId("why-id").value.trim())));
}

// nothingYet explains how to begin if the index is missing, or has no documents.
function nothingYet(index) {
  for (const id of ["hits", "status", "facet-list"]) byId(id).replaceChildren();
  fields.hideFacets();
  byId("pages").hidden = true;
  last = null;
  byId("start").replaceChildren(
    make("h2", {}, index ? index + " has no documents yet" : "There are no indexes yet"),
    make("p", { class: "quiet" }, index ? "Add some, and search them here." : "An index holds documents that you can search by meaning. Begin with one of these:"),
    adding());
}

const adding = () => addView({
  index: chosen(), names, may, model: health.model, loading: health.loading,
  done: async (index, note) => {
    fields.forget(index);
    view = "search";
    byId("query").value = "";
    await start(index);
    if (note) byId("status").append(" " + note);
  },
});

// showView shows the current view for the index that is chosen.
async function showView() {
  stopRefreshing();
  if (!chosen() && !names.length && view === "manage" && !may("admin", "*")) view = "search";
  for (const name of ["search", "add", "manage"]) byId("view-" + name).hidden = name !== view;
  for (const b of document.querySelectorAll("[data-view]")) {
    if (b.dataset.view === view) b.setAttribute("aria-current", "page");
    else b.removeAttribute("aria-current");
  }
  byId("start").replaceChildren(); // what adds documents is in one place
  byId("add").replaceChildren();
  for (const e of [byId("search"), byId("index").parentNode]) e.hidden = !names.length;
  byId("why-box").hidden = !names.length;
  if (view === "add") byId("add").replaceChildren(adding());
  if (view === "manage") await guarded(() => manageView({ index: chosen(), may, guarded: (work) => { clearError(); return guarded(work); }, done: (index) => start(index || chosen()) }));
  if (view === "search") {
    if (!names.length) nothingYet("");
    else if (chosen()) await find({ keep: true });
  }
}

// start asks what there is, at the beginning and after something has changed.
async function start(wanted) {
  clearError();
  await guarded(async () => {
    wanted ??= chosen() || new URLSearchParams(location.hash.slice(1)).get("index");
    [names, health] = await Promise.all([api.indices(), api.health()]);
    wanted ||= (health.indices[0] || {}).name; // these indexes have documents
    byId("index").replaceChildren(...names.map((name) => make("option", { value: name, selected: name === wanted }, name)));
    try {
      access = await api.access();
    } catch { // the service itself still refuses requests that the token does not permit
      access = { needed: false };
    }
    byId("service").textContent = ["plaid " + health.version, health.device, health.model ? "model " + health.model.name : "without a model: finds keywords and similar documents"].join(" · ");
    if (wanted && !names.includes(wanted)) {
      byId("index").value = ""; // do not show another index in its place
      view = "search";
      await showView();
      throw new api.Problem("INDEX_NOT_FOUND", "there is no index " + wanted);
    }
    await showView();
  });
}

// move handles the keys that move the focus from result to result, and back to the query.
function move(e) {
  if (byId("view-search").hidden || e.altKey || e.ctrlKey || e.metaKey || e.shiftKey || document.querySelector("dialog[open]")) return;
  const at = document.activeElement, hits = [...document.querySelectorAll(".hit")];
  if (e.key === "/" && !at.matches("input, select, textarea")) {
    byId("query").focus();
    byId("query").select();
  } else if ((e.key === "ArrowDown" || e.key === "ArrowUp") && (at === byId("query") || at.matches(".hit"))) {
    const next = hits.indexOf(at) + (e.key === "ArrowDown" ? 1 : -1);
    if (next >= hits.length || at === byId("query") && e.key === "ArrowUp") return;
    (next < 0 ? byId("query") : hits[next]).focus();
  } else {
    return;
  }
  e.preventDefault();
}

// tooShort matches a query that is not searched for while it is typed: a single letter, except in scripts
// that write words with one.
const tooShort = /^(?![\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}]).$/u;

let typed = 0;
const forgetTyping = () => clearTimeout(typed);

byId("query").addEventListener("input", () => {
  forgetTyping();
  running.abort(); // its results would be of another query
  if (kind() === "id" || tooShort.test(byId("query").value.trim())) {
    byId("results").setAttribute("aria-busy", "false");
    return;
  }
  feedback = { like: [], unlike: [] };
  typed = setTimeout(() => find({ typing: true }), typingPause);
});
byId("search").addEventListener("submit", (e) => {
  e.preventDefault();
  forgetTyping();
  if (!last || last.words !== byId("query").value.trim()) feedback = { like: [], unlike: [] };
  find();
});
byId("why").addEventListener("submit", (e) => { e.preventDefault(); why(); });
byId("index").addEventListener("change", () => {
  clearError();
  fields.choose([]);
  feedback = { like: [], unlike: [] };
  page = 0;
  last = null;
  showView();
});
for (const [id, by] of [["before", -1], ["after", 1]]) {
  byId(id).addEventListener("click", async () => {
    page = Math.max(0, page + by);
    await find({ keep: true });
    byId("results").focus();
    byId("results").scrollIntoView();
  });
}
for (const b of document.querySelectorAll("[data-view]")) {
  b.addEventListener("click", () => {
    view = b.dataset.view;
    clearError();
    remember();
    showView();
  });
}
byId("open-token").addEventListener("click", () => askToken());
for (const e of document.querySelectorAll("input[name=kind]")) {
  e.addEventListener("change", () => {
    kindChanged();
    if (byId("query").value.trim() && kind() !== "id") find();
  });
}
byId("token-form").addEventListener("submit", (e) => {
  const what = e.submitter ? e.submitter.value : "use";
  if (what === "cancel") return;
  api.token.set(what === "use" ? byId("token").value.trim() : "");
  byId("token").value = "";
  start();
});
byId("drop-form").addEventListener("submit", (e) => {
  if (!e.submitter || e.submitter.value !== "drop") return;
  const name = byId("drop-name").textContent;
  clearError();
  if (byId("drop-again").value !== name) {
    showError(new api.Problem("BAD_REQUEST", "the name was another one: nothing is deleted"));
    return;
  }
  guarded(async () => {
    await api.drop(name);
    fields.choose([]);
    fields.forget(name);
    view = "search";
    history.replaceState(null, "", "#");
    byId("index").value = "";
    byId("query").value = "";
    await start("");
  });
});
addEventListener("keydown", move);
addEventListener("hashchange", async () => {
  recall();
  byId("index").value = "";
  await start();
});

recall();
await start();
document.body.dataset.ready = "yes";
