// What a search took, and what is known of an index.

import { figure, make, pairs, table } from "./dom.js";

const stageNames = [
  ["wait_ns", "waiting for a turn"],
  ["centroids_ns", "products with centroids"],
  ["probe_ns", "reading their lists"],
  ["approx_ns", "approximate scores"],
  ["exact_ns", "exact scores"],
  ["refine_ns", "refining"],
];

// timesOf shows the times of a search; whole is how long its requests took, in
// milliseconds, as the page saw it.
export function timesOf(stats, whole) {
  const times = stats ? stats.times : {};
  const rows = stageNames.map(([key, name]) => [name, (times[key] || 0) / 1e6]).filter(([, ms], i) => ms > 0 || i > 0 && i < 5);
  const known = ((times.total_ns || 0) + (times.wait_ns || 0)) / 1e6;
  rows.push(["the rest: encoding, transfer", Math.max(0, whole - known)]);
  const most = Math.max(...rows.map(([, ms]) => ms), 1e-9);
  const out = [table("Time by stage", ["Stage", "ms", ""], rows.map(([name, ms]) => {
    const bar = make("span", { class: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", (ms / most).toFixed(4));
    return make("tr", {}, make("td", {}, name), make("td", { class: "number" }, ms.toFixed(3)), make("td", { class: "wide-bar" }, bar));
  })), pairs([["Whole request", whole.toFixed(1) + " ms"]])];
  if (stats) {
    out.push(pairs([
      ["Plan", Object.keys(stats.plans || {}).join(", ")], ["Tokens of the query", stats.query_tokens], ["Allowed documents", stats.allowed_docs],
      ["Lists read", stats.probed_lists], ["Candidates", stats.candidates], ["Scored approximately", stats.approx_docs], ["Scored exactly", stats.exact_docs],
    ]));
  }
  return out;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return figure(i === 0 ? n : Number(n.toPrecision(4))) + " " + units[i];
}

// statsOf shows what the service says of an index.
export function statsOf(st) {
  const drift = st.growth.drift;
  const out = [pairs([
    ["Documents", st.documents], ["Deleted", st.deleted_documents || undefined], ["Tokens", st.tokens],
    ["Tokens a document", st.documents ? st.tokens / st.documents : undefined], ["With metadata", st.metadata],
    ["Dimension", st.dim || undefined], ["Bits a component", st.nbits || undefined], ["Centroids", st.centroids || undefined],
    ["Generation", st.generation || undefined], ["File", bytes(st.file_bytes)], ["Model", st.model && (st.model.name || st.model.fingerprint)],
    ["Waiting changes", st.queue.requests],
  ]), make("h3", {}, "Growth and drift"), pairs([
    ["Stage", st.growth.stage], ["Training now", st.growth.training ? "yes" : "no"], ["Last training", st.growth.training_failed],
    ["Trained on", drift.trained_tokens ? figure(drift.trained_tokens) + " tokens" : "not known"],
    ["Added since", drift.added_tokens + " tokens"], ["Error of training", drift.train_rmse || undefined],
    ["Error of what was added", drift.added_rmse || undefined], ["Drift (their ratio)", drift.ratio || "not known yet"],
    ["Centroids a build would train", drift.wanted_centroids || undefined],
  ])];
  out.push(make("p", { class: st.growth.advice ? "error" : "quiet" },
    st.growth.advice ? "Training anew would pay: " + st.growth.advice + "." : "Nothing says that training anew would pay."));
  out.push(make("details", {}, make("summary", {}, "All figures"), make("pre", {}, JSON.stringify(st, null, 1))));
  return out;
}
