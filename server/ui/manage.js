// The statistics, the queue and the snapshots of an index; tokens, nodes and shards for admins.

import * as api from "./api.js";
import { queueOf } from "./add.js";
import { byId, figure, make, table } from "./dom.js";
import { bytes, statsOf } from "./panels.js";

// refreshInterval is how often the queue is read while it is shown, in milliseconds.
const refreshInterval = 1000;
let timer = 0;

export const stopRefreshing = () => clearInterval(timer);

const cell = (text) => make("td", {}, text);

function section(title, ...rest) {
  return make("section", { class: "card" }, make("h3", {}, title), ...rest);
}

// manageView shows the view Manage. about: {index, may, guarded, done()}.
export async function manageView(about) {
  const place = byId("manage"), { index, may, guarded } = about;
  stopRefreshing();
  const cards = make("div", { class: "cards" });
  place.replaceChildren(cards);
  if (index) {
    const stats = make("div", { id: "stats" });
    const queue = make("p", { role: "status" });
    cards.append(section("The index " + index, stats), section("Queue", queue, make("p", { class: "quiet" }, "Changes that are sent and not stored yet. Updated every second.")));
    const refresh = async () => {
      const st = await api.stats(index);
      const text = queueOf(st) + (st.growth.training ? ". It is being trained" : "") + ".";
      if (queue.textContent !== text) queue.textContent = text; // readers of screens hear of changes only
      return st;
    };
    timer = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, refreshInterval); // before anything is awaited: showing another view clears it
    await guarded(async () => stats.replaceChildren(...statsOf(await refresh())));
    if (may("admin", index)) cards.append(snapshots(about));
  }
  if (may("admin", "*")) cards.append(newIndex(about));
  await guarded(async () => {
    const access = await api.access();
    cards.append(section("Tokens", ...tokensOf(access)));
    if (access.nodes && may("admin", "*")) cards.append(section("Nodes and shards", ...layoutOf(await api.nodes())));
  });
}

function snapshots({ index, guarded, done }) {
  const statusLine = make("p", { role: "status", class: "quiet" });
  const actionButton = (label, action, options = {}) => {
    const b = make("button", { type: "button", class: "plain", ...options, onclick: () => guarded(async () => {
      b.disabled = true;
      statusLine.textContent = label + " …";
      try {
        statusLine.textContent = await action();
      } catch (err) {
        statusLine.textContent = "";
        throw err;
      } finally {
        b.disabled = false;
      }
    }) }, label);
    return b;
  };
  return section("Snapshots and care",
    make("p", {}, "A snapshot is the index as it is now, as one file. Every plaid command takes it, and so does a service."),
    make("div", { class: "buttons" },
      actionButton("Download a snapshot", async () => {
        const blob = await api.backup(index);
        const url = URL.createObjectURL(blob);
        make("a", { href: url, download: index + ".plaid" }).click();
        setTimeout(() => URL.revokeObjectURL(url), 60000);
        return "A snapshot of " + bytes(blob.size) + " was downloaded.";
      }, { id: "snapshot" }),
      actionButton("Check every byte", async () => {
        await api.verify(index);
        return "It is sound.";
      }, { id: "verify" }),
      actionButton("Train it again", async () => {
        await api.retrain(index);
        await done();
        return "It was trained on its present documents.";
      }, { id: "retrain" }),
      make("button", { type: "button", class: "bad", id: "drop", onclick: () => {
        byId("drop-name").textContent = index;
        byId("drop-again").value = "";
        byId("drop-dialog").showModal();
      } }, "Delete …")), statusLine);
}

function newIndex({ guarded, done }) {
  const name = make("input", { id: "new-index", autocomplete: "off", spellcheck: "false", required: true });
  const file = make("input", { type: "file", id: "new-file", accept: ".plaid" });
  return section("A new index", make("form", { id: "new", onsubmit: (e) => {
    e.preventDefault();
    guarded(async () => {
      const wanted = name.value.trim();
      if (!wanted) throw new api.Problem("BAD_REQUEST", "give the index a name");
      if (file.files[0]) await api.restore(wanted, file.files[0]);
      else await api.declare(wanted);
      await done(wanted);
    });
  } },
  make("div", { class: "field" }, make("label", { for: "new-index" }, "Name"), name),
  make("div", { class: "field" }, make("label", { for: "new-file" }, "From a snapshot (optional)"), file),
  make("div", { class: "buttons" }, make("button", { type: "submit" }, "Create"))));
}

function tokensOf({ needed, own, tokens }) {
  if (!needed) return [make("p", {}, "None is needed: everybody who reaches this address may do everything.")];
  const rows = (tokens || [own]).map((t) => make("tr", {}, cell(t.name + (own && t.name === own.name ? " (yours)" : "")), cell(t.permission),
    cell((t.grants || []).map((g) => g.permission + ": " + g.pattern).join(", ")),
    cell([t.indexes && figure(t.indexes) + (t.indexes === 1 ? " index" : " indexes"), t.rate && figure(t.rate) + " a second"].filter((x) => x).join(", "))));
  return [scrolling("Tokens", table("Tokens", ["Name", "All indexes", "Some indexes", "Limits"], rows)),
    make("p", { class: "quiet" }, "Tokens are made in the file that --tokens-file names. Secrets are never shown.")];
}

function layoutOf({ nodes, collections }) {
  const out = [make("p", {}, figure(nodes.filter((n) => n.heard).length) + " of " + figure(nodes.length) + " nodes were heard of lately.")];
  const silent = nodes.filter((n) => !n.heard);
  if (silent.length) out.push(make("p", { class: "error" }, "Silent: " + silent.map((n) => n.name).join(", ") + "."));
  for (const c of collections) {
    out.push(make("h4", {}, c.name), scrolling("Shards of " + c.name, table("Shards of " + c.name, ["Shard", "Documents", "Replicas"], c.shards.map((s, i) => make("tr", {},
      cell(String(i)), make("td", { class: "number" }, figure(s.documents)),
      make("td", {}, ...s.replicas.flatMap((r) => [make("span", { class: "replica" + (r.state === "ready" ? "" : " amiss") }, r.node + (r.state === "ready" ? "" : ": " + r.state)), " "])))))));
  }
  return out;
}

// scrolling lets a wide table be scrolled, also by keyboard.
const scrolling = (name, e) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, e);
