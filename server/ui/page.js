// The page: what is chosen, what is asked, and where the answers go.

import * as api from "./api.js";
import { byId, figure, make } from "./dom.js";
import { fate, heatMap } from "./heat.js";
import { statsOf, timesOf } from "./panels.js";

// last is the search whose results are shown: its index, what its explanations ask, and
// for a document as the query its pieces, once they are known.
let last = null;
let running = new AbortController();

// asks are the kinds of searches: what is typed, and an example of it.
const asks = {
  text: ["Query", "a question or a statement"],
  both: ["Query", "a question or a statement"],
  words: ["Words", "words of the metadata"],
  id: ["Id of the document", "_id of the document"],
};

const chosen = () => byId("index").value;
const kind = () => document.querySelector("input[name=kind]:checked").value;

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

// guarded runs something, and shows its error.
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

// refused marks a field, and is the error of what it holds. The browser's own checks
// do not reach what is folded away.
function refused(id, message) {
  const field = byId(id);
  field.setAttribute("aria-invalid", "true");
  if (byId("options").contains(field)) byId("options").open = true;
  field.focus();
  return new api.Problem("BAD_REQUEST", message);
}

// restriction is what the filter says, in the fields of a request.
function restriction() {
  const condition = byId("condition").value.trim(), text = byId("parameters").value.trim();
  if (!condition && !text) return {};
  let parameters = [];
  try {
    parameters = JSON.parse(text.startsWith("[") ? text : "[" + text + "]");
  } catch {
    throw refused("parameters", "the values of the condition are not JSON; texts are in double quotes, and commas between values");
  }
  return { filter_condition: condition, filter_parameters: parameters };
}

function textFields() {
  const names = byId("text-fields").value.split(",").map((s) => s.trim()).filter((s) => s);
  return names.length ? { text_fields: names } : {};
}

// remember puts the search into the address, so that it can be kept and sent on.
function remember() {
  const p = new URLSearchParams({ index: chosen(), [kind()]: byId("query").value });
  if (byId("condition").value) p.set("condition", byId("condition").value);
  if (byId("parameters").value) p.set("parameters", byId("parameters").value);
  history.replaceState(null, "", "#" + p);
}

async function search() {
  running.abort();
  const signal = (running = new AbortController()).signal;
  clearError();
  byId("results").setAttribute("aria-busy", "true");
  const found = await guarded(async () => {
    const index = chosen(), words = byId("query").value;
    if (!index) throw refused("index", "choose an index");
    if (!words) throw refused("query", "there is nothing to search for");
    if (!byId("top-k").checkValidity()) throw refused("top-k", "how many results? 1 to " + byId("top-k").max);
    const limits = restriction();
    const params = { top_k: byId("top-k").valueAsNumber };
    if (byId("mode").value) params.mode = byId("mode").value;
    remember();
    byId("status").textContent = "Searching …";
    const began = performance.now();
    const asked = { index, kind: kind(), id: kind() === "id" ? words : "", question: { params, ...limits, ...textFields() } };
    let answer;
    if (asked.kind === "words") {
      answer = await api.searchVectors(index, { text_query: [words], params: { top_k: params.top_k }, ...limits }, signal);
    } else if (asked.kind === "both") {
      asked.question.text = words;
      answer = await api.searchTexts(index, { queries: [words], text_query: [words], params, ...limits, stats: true }, signal);
    } else if (asked.id) {
      asked.question.query = await api.vectorsOf(index, words, signal);
      answer = await api.searchVectors(index, { queries: [asked.question.query], params, ...limits, stats: true }, signal);
    } else {
      asked.question.text = words;
      answer = await api.searchTexts(index, { queries: [words], params, ...limits, stats: true }, signal);
    }
    const whole = performance.now() - began;
    if (signal.aborted) return;
    last = asked.kind === "words" ? null : asked; // there are no tokens to explain
    const result = answer.results[0];
    byId("why-answer").replaceChildren();
    byId("hits").replaceChildren(...result.document_ids.map((_, i) => hit(asked, result, i)));
    byId("times").replaceChildren(...timesOf(result.stats, whole));
    byId("status").textContent = result.document_ids.length + (result.document_ids.length === 1 ? " result in " : " results in ") + whole.toFixed(0) + " ms";
    return true;
  });
  if (signal.aborted) return; // another search goes on
  byId("results").setAttribute("aria-busy", "false");
  if (!found && byId("hits").firstChild) byId("status").textContent = "The results are those of the search before.";
}

// hit is one result.
function hit(asked, result, i) {
  const fields = (result.metadata || [])[i] || {};
  const text = [fields.text, fields.page_content, fields.content].find((t) => typeof t === "string" && t) || "";
  const title = typeof fields.title === "string" && fields.title ? fields.title : String(fields._id);
  const place = make("div", { hidden: true });
  const short = make("p", { class: "text short" }, text);
  const toggle = make("button", { type: "button", class: "plain", "aria-expanded": "false", onclick: () => guarded(open) }, "Matches");
  const open = async () => {
    const opens = place.hidden;
    place.hidden = !opens;
    short.hidden = opens;
    toggle.setAttribute("aria-expanded", String(opens));
    if (!opens || place.firstChild) return;
    place.append(make("p", { class: "quiet" }, "…"));
    try {
      const x = await explained(asked, fields._id);
      place.replaceChildren(...asked.kind === "both" ? [make("p", { class: "quiet" }, "By meaning alone:")] : [], fate(x), heatMap(x, x.query_tokens || asked.pieces));
    } catch (err) {
      place.replaceChildren(); // the next click asks again
      throw err;
    }
  };
  const title3 = make("h3", { id: "hit-" + i }, title);
  return make("li", {}, make("article", { class: "hit", "aria-labelledby": "hit-" + i },
    make("div", { class: "top" }, make("span", { class: "quiet" }, String(i + 1)), title3,
      make("span", { class: "score", title: "score" }, figure(result.scores[i]))),
    make("p", { class: "quiet" }, String(fields._id) + (asked.id === fields._id ? " (the document itself)" : "")),
    short, place,
    make("div", { class: "buttons" }, asked.kind === "words" ? "" : toggle,
      make("button", { type: "button", class: "plain", onclick: () => similar(String(fields._id)) }, "Similar")),
    make("details", {}, make("summary", {}, "Metadata"), make("pre", {}, JSON.stringify(fields, null, 1)))));
}

// explained asks what became of a document in a search.
async function explained(asked, id) {
  if (asked.id && !asked.pieces) {
    // The pieces of a document that is the query are those of its text.
    const { query, text_fields } = asked.question;
    asked.pieces = (await api.explain(asked.index, { query, text_fields, id: asked.id })).document_tokens;
  }
  return api.explain(asked.index, { ...asked.question, id, similarities: true });
}

function similar(id) {
  document.querySelector("input[name=kind][value=id]").checked = true;
  kindChanged();
  byId("query").value = id;
  byId("query").focus();
  search();
}

async function why() {
  clearError();
  const place = byId("why-answer");
  if (!last) {
    place.replaceChildren(make("p", {}, kind() === "words" ? "A search by words alone is not explained." : "Search first."));
    return;
  }
  place.replaceChildren();
  await guarded(async () => {
    const x = await explained(last, byId("why-id").value.trim());
    place.replaceChildren(fate(x), heatMap(x, x.query_tokens || last.pieces));
  });
}

async function showStats() {
  const index = chosen();
  byId("stats").replaceChildren();
  if (!index) return;
  await guarded(async () => {
    const st = await api.stats(index);
    if (index === chosen()) byId("stats").replaceChildren(...statsOf(st));
  });
}

function kindChanged() {
  const [label, hint] = asks[kind()];
  byId("query-label").textContent = label;
  byId("query").placeholder = hint;
}

// start asks what there is, at the beginning and after the token has changed.
async function start() {
  clearError();
  await guarded(async () => {
    const wanted = chosen() || new URLSearchParams(location.hash.slice(1)).get("index");
    const names = await api.indices();
    byId("index").replaceChildren(...names.map((name) => make("option", { value: name, selected: name === wanted }, name)));
    byId("status").textContent = names.length ? "" : "There are no indexes yet.";
    if (wanted && !names.includes(wanted)) {
      byId("index").value = ""; // none, rather than another
      throw new api.Problem("INDEX_NOT_FOUND", "there is no index " + wanted);
    }
    const about = await api.health();
    byId("service").textContent = ["version " + about.version, about.device, about.model ? "model " + about.model.name : "without a model: finds words and similar documents"].join(" · ");
    await showStats();
  });
}

// recall takes the search from the address.
function recall() {
  const p = new URLSearchParams(location.hash.slice(1));
  const wanted = Object.keys(asks).find((k) => p.get(k)) || "text";
  document.querySelector("input[name=kind][value=" + wanted + "]").checked = true;
  byId("query").value = p.get(wanted) || "";
  byId("condition").value = p.get("condition") || "";
  byId("parameters").value = p.get("parameters") || "";
  byId("options").open = p.has("condition");
  kindChanged();
  return byId("query").value !== "";
}

byId("search").addEventListener("submit", (e) => { e.preventDefault(); search(); });
byId("why").addEventListener("submit", (e) => { e.preventDefault(); why(); });
byId("index").addEventListener("change", () => { clearError(); showStats(); });
byId("refresh").addEventListener("click", () => { clearError(); showStats(); });
byId("open-token").addEventListener("click", () => askToken());
for (const e of document.querySelectorAll("input[name=kind]")) e.addEventListener("change", kindChanged);
byId("token-form").addEventListener("submit", (e) => {
  const what = e.submitter ? e.submitter.value : "use";
  if (what === "cancel") return;
  api.token.set(what === "use" ? byId("token").value.trim() : "");
  byId("token").value = "";
  start();
});

addEventListener("hashchange", async () => {
  const again = recall();
  byId("index").value = "";
  await start();
  if (again && chosen()) await search();
});

const again = recall();
await start();
if (again && chosen()) await search();
document.body.dataset.ready = "yes";
