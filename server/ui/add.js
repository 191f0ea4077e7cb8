// Adding documents: the sample, files and folders, with what the queue of the index does
// meanwhile; and what to do where there is nothing yet.

import * as api from "./api.js";
import { figure, make } from "./dom.js";
import { documentsOf, dropped, kinds, readable } from "./files.js";

// The largest batch of documents that is sent at once, unless a single group is larger.
const batchDocuments = 16, batchCharacters = 64 << 10;
const maxFileBytes = 64 << 20;

let busy = false; // while files are stored

// batches yields groups of documents that are sent together. A group is never split.
function* batches(groups) {
  let batch = [], size = 0;
  for (const g of groups) {
    const characters = g.reduce((n, d) => n + d.text.length, 0);
    if (batch.length && (batch.length + g.length > batchDocuments || size + characters > batchCharacters)) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(...g);
    size += characters;
  }
  if (batch.length) yield batch;
}

// queueOf describes the changes that wait to be written.
export const queueOf = (st) => st.queue.requests
  ? figure(st.queue.requests) + (st.queue.requests === 1 ? " change waits" : " changes wait") + ", with " + figure(st.queue.documents) + " documents"
  : "Nothing waits to be written";

// store reads files and adds their documents to an index, which is created if isNew is true. It calls
// report with its progress, {done, of, documents, passages, skipped, empty, cut, note}, and returns it.
async function store(index, files, model, isNew, report, signal) {
  if (isNew) {
    try {
      await api.declare(index);
    } catch (err) {
      if (err.code !== "INDEX_ALREADY_EXISTS") throw err;
    }
  }
  // A passage has about as many characters as the model has tokens for.
  const passageLength = Math.max(300, Math.min(4000, ((model && model.document_length) || 180) * 3));
  const progress = { done: 0, of: files.length, documents: 0, passages: 0, skipped: 0, empty: 0, cut: 0, note: "" };
  const seen = new Set();
  for (const { path, file } of files) {
    if (!readable(path) || file.size > maxFileBytes) {
      progress.skipped++;
      progress.done++;
      report(progress);
      continue;
    }
    let groups;
    try {
      const read = documentsOf(path, await file.text(), passageLength);
      groups = read.groups;
      progress.empty += read.empty;
      for (const d of groups.flat()) {
        if (seen.has(d.metadata._id)) throw new Error("the id " + d.metadata._id + " is there twice");
        seen.add(d.metadata._id);
      }
    } catch (err) {
      throw new api.Problem("BAD_FILE", path + ": " + err.message + (progress.documents ? ". " + figure(progress.documents) + " documents of other files are stored" : ""));
    }
    for (const batch of batches(groups)) {
      progress.note = path;
      report(progress);
      const stored = await api.addTexts(index, { documents: batch.map((d) => d.text), metadata: batch.map((d) => d.metadata) }, signal);
      progress.documents += stored.documents;
      progress.passages += stored.passages;
      progress.cut += stored.truncated;
      report(progress);
    }
    progress.done++;
    report(progress);
  }
  return progress;
}

const counted = (n, what) => figure(n) + " " + what + (n === 1 ? "" : "s");

// storedOf returns the number of documents, and of the passages that some of them are stored in.
const storedOf = (st) => counted(st.documents, "document") + (st.passages ? " in " + counted(st.passages, "passage") : "");

// summaryOf describes the result of store in a sentence.
const summaryOf = (end, index) => [
  storedOf(end) + (end.documents === 1 ? " is" : " are") + " stored in " + index,
  end.empty && counted(end.empty, "row") + " without a text skipped", end.skipped && counted(end.skipped, "file") + " skipped",
  end.cut && counted(end.cut, "passage") + " cut: the model does not read all of " + (end.cut === 1 ? "it" : "them"),
].filter((x) => x).join("; ") + ".";

// addView returns the content of the view Add. about: {index, names, model, loading,
// may(permission, index), done(index, note)}.
export function addView(about) {
  const box = make("div", { class: "cards" });
  const canCreate = about.may("admin", "*");
  const canWrite = about.names.some((n) => about.may("write", n)) || canCreate;
  if (!about.model) {
    box.append(card("This service has no model",
      "It stores and finds vectors that programs send, but no texts. To add texts, start it with a model:",
      make("pre", {}, "plaid serve --data ./data --model ./colbert-nano"),
      make("p", { class: "quiet" }, about.loading ? "A model is being loaded: look again in a moment." : "With the address of the service a program can send vectors: POST indices/NAME/update.")));
    return box;
  }
  if (!canWrite) {
    box.append(card("Reading only", "Your token may search. To add documents, give one that may write (Token …, above)."));
    return box;
  }
  const statusLine = make("p", { role: "status" });
  const bar = make("progress", { "aria-label": "Files read", max: "1", value: "0", hidden: true });
  const queue = make("p", { class: "quiet queue" });
  const stop = make("button", { type: "button", class: "plain", hidden: true }, "Stop");
  const problem = make("p", { class: "error", role: "alert", hidden: true });

  const writable = about.names.filter((n) => about.may("write", n));
  const name = make("input", { id: "add-index", list: "add-names", autocomplete: "off", spellcheck: "false", pattern: "[A-Za-z0-9_\\-]([A-Za-z0-9._\\-]{0,126}[A-Za-z0-9_\\-])?", value: writable.includes(about.index) ? about.index : "" });
  const names = make("datalist", { id: "add-names" }, ...writable.map((n) => make("option", { value: n })));

  // run stores files, and shows the queue of the index meanwhile.
  const run = async (index, files) => {
    if (busy) return;
    problem.hidden = true;
    if (!files.length) {
      statusLine.textContent = "The folder has no files.";
      return;
    }
    busy = true;
    const ending = new AbortController();
    stop.hidden = bar.hidden = false;
    stop.onclick = () => ending.abort();
    const poll = setInterval(async () => {
      try {
        queue.textContent = queueOf(await api.stats(index, ending.signal)) + ".";
      } catch { /* it is asked again */ }
    }, 700);
    try {
      const end = await store(index, files, about.model, !about.names.includes(index), (s) => {
        bar.max = s.of;
        bar.value = s.done;
        statusLine.textContent = storedOf(s) + " stored" + (s.of > 1 ? "; " + figure(s.done) + " of " + figure(s.of) + " files" : "") + (s.note ? ": " + s.note : "");
      }, ending.signal);
      statusLine.textContent = summaryOf(end, index);
      queue.textContent = "";
      if (end.documents) await about.done(index, end.empty || end.skipped ? summaryOf(end, index) : "");
    } catch (err) {
      if (err.name === "AbortError") statusLine.textContent = "Stopped. What was stored stays.";
      else {
        problem.hidden = false;
        problem.replaceChildren(make("strong", { class: "code" }, err.code || "ERROR"), " " + err.message);
        statusLine.textContent = "";
      }
    } finally {
      clearInterval(poll);
      busy = false;
      stop.hidden = bar.hidden = true;
    }
  };

  const target = () => {
    const index = name.value.trim();
    if (index && name.checkValidity()) return index;
    problem.hidden = false;
    problem.textContent = index ? "A name of an index has letters, digits, and . _ - between them." : "Which index? Choose one, or name a new one.";
    name.setAttribute("aria-invalid", "true");
    name.focus();
    return "";
  };
  name.addEventListener("input", () => { name.removeAttribute("aria-invalid"); problem.hidden = true; });

  const files = make("input", { type: "file", id: "add-files", multiple: true, accept: kinds.join(","), hidden: true });
  const folder = make("input", { type: "file", id: "add-folder", webkitdirectory: true, hidden: true });
  for (const input of [files, folder]) {
    input.addEventListener("change", () => {
      const all = [...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })).filter((f) => !f.path.split("/").some((p) => p.startsWith(".")));
      input.value = "";
      const index = target();
      if (index) run(index, all);
    });
  }
  const zone = make("div", { class: "drop" },
    make("p", {}, make("strong", {}, "Drop files or a folder here")),
    make("p", { class: "quiet" }, kinds.slice(0, 1).concat(".json", ".csv", ".md", ".txt").join(" ") + ". A line, a row or a section becomes a document."),
    make("div", { class: "buttons" },
      make("button", { type: "button", onclick: () => target() && files.click() }, "Choose files"),
      make("button", { type: "button", class: "plain", onclick: () => target() && folder.click() }, "Choose a folder")));
  zone.addEventListener("dragover", (e) => { e.preventDefault(); zone.classList.add("over"); });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", async (e) => {
    e.preventDefault();
    zone.classList.remove("over");
    const found = dropped(e.dataTransfer); // before anything is waited for
    const index = target();
    const all = await found;
    if (index) await run(index, all);
  });

  if (canCreate && !about.names.includes("sample")) {
    box.append(card("Try the sample", "Thirty short texts about animals, rivers, food and space, with fields to filter by. It takes a few seconds.",
      make("button", { type: "button", id: "try-sample", onclick: async () => {
        const text = await api.sample();
        await run("sample", [{ path: "sample.jsonl", file: new File([text], "sample.jsonl") }]);
      } }, "Try the sample")));
  }
  const add = card("Add your own", "",
    make("div", { class: "field" }, make("label", { for: "add-index" }, canCreate ? "Index (a new name creates a new index)" : "Index"), name, names), zone, files, folder);
  box.prepend(make("div", { class: "progress" }, bar, statusLine, queue, stop, problem));
  box.append(add);
  box.append(card("Send by program", "Any program can add documents. In a shell:",
    make("pre", {}, "curl " + new URL("indices", api.base) + " --json '{\"name\": \"notes\"}'\ncurl " + new URL("indices/notes/update_with_encoding", api.base) + " \\\n  --json '{\"documents\": [\"Cats sleep by day.\"], \"metadata\": [{\"_id\": \"n1\"}], \"text_field\": \"text\"}'")));
  return box;
}

function card(title, text, ...rest) {
  return make("section", { class: "card" }, make("h3", {}, title), text ? make("p", {}, text) : "", ...rest);
}
