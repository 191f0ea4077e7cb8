// The time of a search by stages, and the statistics of an index.

import { figure, make, pairs, table } from "./dom.js";

const stageNames = [
  ["wait_ns", "waiting for a turn"],
  ["centroids_ns", "products with centroids"],
  ["probe_ns", "reading their lists"],
  ["approx_ns", "approximate scores"],
  ["exact_ns", "exact scores"],
  ["refine_ns", "refining"],
];

// timesOf returns elements with the times of a search. took has those of the stages in the service
// (Server-Timing), and whole is the time that the page waited, all in milliseconds.
export function timesOf(stats, took, whole) {
  const times = stats ? stats.times : {};
  const rows = [];
  let explainedMS = 0;
  const add = (name, ms, about) => {
    rows.push([name, Math.max(0, ms), about]);
    explainedMS += Math.max(0, ms);
  };
  if (took.encode !== undefined) add("encoding the question", took.encode, "The model turns the text into token vectors.");
  if (took.select !== undefined) add("applying the filter", took.select, "Finding the documents that the condition lets through.");
  if (took.keywords !== undefined) add("searching by keywords", took.keywords, "BM25 over the words of the metadata.");
  if (stats) {
    for (const [key, name] of stageNames) {
      const ms = (times[key] || 0) / 1e6;
      if (ms > 0 || key !== "wait_ns" && key !== "refine_ns") add(name, ms);
    }
    const between = (times.total_ns || 0) / 1e6 - stageNames.reduce((sum, [key]) => sum + (key === "wait_ns" ? 0 : times[key] || 0), 0) / 1e6;
    if (between > 0.001) add("between these stages", between, "Planning, and putting the results in order.");
  }
  if (took.total !== undefined) {
    add("the rest in the service", took.total - explainedMS, "Waiting for a turn, reading the request, finding the words that match, reading metadata, writing the answer.");
    add("on the way", whole - took.total, "The network, and the browser that reads the answer.");
  } else {
    add("the rest", whole - explainedMS, "Encoding, reading and writing JSON, and the network. The service did not tell them apart.");
  }
  const longest = Math.max(...rows.map(([, ms]) => ms), 1e-9);
  const out = [table("Time by stage", ["Stage", "ms", "Share"], rows.map(([name, ms, about]) => {
    const bar = make("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", (ms / longest).toFixed(4));
    return make("tr", {}, make("td", {}, name, about ? make("div", { class: "quiet" }, about) : ""), make("td", { class: "number" }, ms.toFixed(3)), make("td", { class: "wide-bar" }, bar));
  })), pairs([["Whole request", whole.toFixed(1) + " ms"]])];
  if (stats) {
    out.push(pairs([
      ["Plan", Object.keys(stats.plans || {}).join(", ")], ["Tokens of the query", stats.query_tokens], ["Allowed documents", stats.allowed_docs],
      ["Lists read", stats.probed_lists], ["Candidates", stats.candidates], ["Scored approximately", stats.approx_docs], ["Scored exactly", stats.exact_docs],
    ]));
  }
  return out;
}

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return figure(i === 0 ? n : Number(n.toPrecision(4))) + " " + units[i];
}

// statsOf returns elements with the statistics of an index.
export function statsOf(st) {
  const drift = st.growth.drift;
  const out = [pairs([
    ["Documents", st.documents], ["Passages", st.passages || undefined], ["Deleted", st.deleted_documents || undefined], ["Tokens", st.tokens],
    ["Tokens a document", st.documents ? st.tokens / st.documents : undefined], ["With metadata", st.metadata],
    ["Dimension", st.dim || undefined], ["Bits a component", st.nbits || undefined], ["Centroids", st.centroids || undefined],
    ["Generation", st.generation || undefined], ["File", bytes(st.file_bytes)], ["Model", st.model && (st.model.name || st.model.fingerprint)],
    ["Written since the start", st.counts ? st.counts.documents : undefined],
  ]), make("h3", {}, "Growth and drift"), pairs([
    ["Stage", st.growth.stage], ["Training now", st.growth.training ? "yes" : "no"], ["Last training", st.growth.training_failed],
    ["Trained on", drift.trained_tokens ? figure(drift.trained_tokens) + " tokens" : "not known"],
    ["Added since", drift.added_tokens + " tokens"], ["Error of training", drift.train_rmse || undefined],
    ["Error of added documents", drift.added_rmse || undefined], ["Drift (their ratio)", drift.ratio || "not known yet"],
    ["Centroids a build would train", drift.wanted_centroids || undefined],
  ])];
  out.push(make("p", { class: st.growth.advice ? "error" : "quiet" },
    st.growth.advice ? "Training it again would help: " + st.growth.advice + "." : "No retraining needed."));
  out.push(make("details", {}, make("summary", {}, "All figures"), make("pre", {}, JSON.stringify(st, null, 1))));
  return out;
}
