// Fields of documents as filters: their values with counts, and the chosen values.

import * as api from "./api.js";
import { byId, figure, make } from "./dom.js";

// sampled is the number of documents that are read for the names of fields.
const sampled = 100;
const maxFields = 12, shownValues = 6, moreValues = 50;
const notFields = ["_id", "_subset_", "_passage", "text", "digest", "title", "image", "grid"];

// chosen has the filters: {field, value, list}. list is true if values of the field can be lists.
export let chosen = [];

// choose sets the filters. Those that are not well formed are ignored.
export function choose(filters) {
  chosen = (Array.isArray(filters) ? filters : []).filter((f) => f && typeof f.field === "string" && ["string", "number", "boolean"].includes(typeof f.value));
}

const same = (a, b) => a.field === b.field && a.value === b.value;

// quoted returns the name of a field as conditions write it.
export const quoted = (name) => '"' + name.replaceAll('"', '""') + '"';

const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");

// formsOf returns a pattern for a character in JSON, which may be written as it is or as an escape, as many
// programs do for characters beyond ASCII.
function formsOf(c) {
  const plain = escaped(JSON.stringify(c).slice(1, -1));
  if (/[\w ]/.test(c)) return plain;
  const units = c.split("").map((u) => "\\\\u" + u.charCodeAt(0).toString(16).padStart(4, "0").replace(/[a-f]/g, (h) => "[" + h + h.toUpperCase() + "]"));
  return "(?:" + [plain, units.join(""), ...(c === "/" ? ["\\\\/"] : [])].join("|") + ")";
}

// itemOf returns a pattern for a value in the JSON of a list.
const itemOf = (value) => typeof value === "string" ? '"' + [...value].map(formsOf).join("") + '"'
  : escaped(JSON.stringify(value)) + (Number.isInteger(value) ? "(?:\\.0+)?" : "");

// conditionOf joins the user's condition and filters: filters of one field by OR, fields by AND. To a
// condition a list is the text of its JSON, so a pattern finds the lists that have a value.
export function conditionOf(userCondition, filters = chosen) {
  const tests = [], parameters = [];
  if (userCondition.filter_condition) {
    tests.push("(" + userCondition.filter_condition + ")");
    parameters.push(...userCondition.filter_parameters || []);
  }
  for (const field of new Set(filters.map((f) => f.field))) {
    const any = [];
    for (const f of filters.filter((f) => f.field === field)) {
      any.push(quoted(field) + " = ?");
      parameters.push(f.value);
      if (f.list) {
        any.push(quoted(field) + " REGEXP ?");
        parameters.push("(^\\[|,)" + itemOf(f.value) + "(,|\\]$)");
      }
    }
    tests.push(any.length === 1 ? any[0] : "(" + any.join(" OR ") + ")");
  }
  if (!tests.length) return {};
  const joined = tests.length === 1 && userCondition.filter_condition ? userCondition.filter_condition : tests.join(" AND ");
  return parameters.length ? { filter_condition: joined, filter_parameters: parameters } : { filter_condition: joined };
}

const isScalar = (v) => ["string", "number", "boolean"].includes(typeof v) && !(typeof v === "string" && v.length > 60);

// fieldsByIndex caches the fields of each index that can be filters: [{name, list}].
const fieldsByIndex = new Map();

export const forget = (index) => fieldsByIndex.delete(index);

// fieldsOf returns the fields of an index that can be filters, from a sample of its documents.
async function fieldsOf(index, signal) {
  if (fieldsByIndex.has(index)) return fieldsByIndex.get(index);
  const { metadata } = await api.metadata(index, { limit: sampled }, signal);
  const seen = new Map();
  for (const m of metadata) {
    for (const [name, v] of Object.entries(m)) {
      if (notFields.includes(name) || v === null) continue;
      const f = seen.get(name) || { name, list: false, n: 0, values: new Set(), scalar: true };
      seen.set(name, f);
      f.n++;
      f.list ||= Array.isArray(v);
      for (const x of Array.isArray(v) ? v : [v]) {
        if (isScalar(x)) f.values.add(x);
        else f.scalar = false;
      }
    }
  }
  // A field with a different value in nearly each document is not a useful filter.
  const useful = (f) => f.scalar && f.values.size && (f.values.size <= 20 || f.values.size <= f.n / 2);
  const fields = [...seen.values()].filter(useful).slice(0, maxFields);
  fieldsByIndex.set(index, fields);
  return fields;
}

// count returns the values of fields with their counts. Fields that cannot be counted are left out.
async function count(index, fields, condition, values, signal) {
  try {
    const answer = await api.facets(index, { fields: fields.map((f) => quoted(f.name)), values, ...condition }, signal);
    return answer.facets.map((facet, i) => ({ ...facet, name: fields[i].name, list: fields[i].list }));
  } catch (err) {
    if (err.name === "AbortError" || err.code !== "BAD_REQUEST" || fields.length === 1) return [];
    return (await Promise.all(fields.map((f) => count(index, [f], condition, values, signal)))).flat();
  }
}

let running = new AbortController();

// showFacets shows the fields with the counts of their values, for the documents that the user's condition
// and the filters allow. The counts of a field ignore its own filters, so that others can be added. changed
// is called when a filter is clicked.
export async function showFacets(index, userCondition, changed) {
  running.abort();
  const signal = (running = new AbortController()).signal;
  const aside = byId("facets"), list = byId("facet-list");
  byId("chosen").replaceChildren(...chosen.map((f) => make("button", {
    type: "button", class: "pill", "aria-label": "Remove the filter " + f.field + ": " + f.value,
    onclick: () => { chosen = chosen.filter((g) => g !== f); changed(); },
  }, f.field + ": " + f.value, make("span", { "aria-hidden": "true" }, " ×"))));
  let facets = [];
  try {
    const fields = await fieldsOf(index, signal);
    const free = fields.filter((f) => !chosen.some((c) => c.field === f.name));
    const taken = fields.filter((f) => !free.includes(f));
    const asks = taken.map((f) => count(index, [f], conditionOf(userCondition, chosen.filter((c) => c.field !== f.name)), shownValues, signal));
    if (free.length) asks.push(count(index, free, conditionOf(userCondition), shownValues, signal));
    facets = (await Promise.all(asks)).flat().sort((a, b) => fields.findIndex((f) => f.name === a.name) - fields.findIndex((f) => f.name === b.name));
  } catch (err) {
    if (err.name === "AbortError") return;
  }
  if (signal.aborted) return;
  const focused = document.activeElement?.dataset?.facet;
  const block = (facet) => {
    const values = make("ul");
    const fill = (f) => {
      values.replaceChildren(...f.values.filter((v) => isScalar(v.value) || typeof v.value === "string").map((v) => {
        const filter = { field: f.name, value: v.value, list: f.list };
        const on = chosen.some((c) => same(c, filter));
        const box = make("input", {
          type: "checkbox", checked: on, "data-facet": JSON.stringify([f.name, v.value]),
          onchange: () => { chosen = on ? chosen.filter((c) => !same(c, filter)) : [...chosen, filter]; changed(); },
        });
        return make("li", {}, make("label", {}, box, make("span", { class: "value" }, String(v.value)), " ", make("span", { class: "count" }, figure(v.docs))));
      }));
      if (f.others > 0 && f.values.length < moreValues) {
        values.append(make("li", {}, make("button", {
          type: "button", class: "link", onclick: async () => {
            const [all] = await count(index, [f], conditionOf(userCondition, chosen.filter((c) => c.field !== f.name)), moreValues);
            if (all) fill(all);
          },
        }, figure(f.others) + " more")));
      }
      if (f.missing > 0) values.append(make("li", { class: "quiet" }, figure(f.missing) + " without it"));
    };
    fill(facet);
    return make("fieldset", {}, make("legend", {}, facet.name), values);
  };
  list.replaceChildren(...facets.map(block));
  aside.hidden = !facets.length && !chosen.length;
  document.body.classList.toggle("with-facets", !aside.hidden);
  if (focused) [...list.querySelectorAll("[data-facet]")].find((e) => e.dataset.facet === focused)?.focus();
}

// hideFacets hides the filters if an index is missing or empty.
export function hideFacets() {
  running.abort();
  byId("facets").hidden = true;
  document.body.classList.remove("with-facets");
}
