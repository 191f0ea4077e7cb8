// The routes of the service that the page uses.

const tokenKey = "plaid-token";

// The page is at …/ui, next to the routes. A proxy may have both below a path.
export const base = new URL(".", document.baseURI);

// Problem is an error with a code, like the errors that the service answers with.
export class Problem extends Error {
  constructor(code, message, about = {}) {
    super(message);
    this.name = "Problem";
    this.code = code;
    this.details = about.details || {};
    this.retryAfter = about.retry_after_seconds;
    this.requestID = about.request_id;
  }
}

// token is the bearer token of this tab, or "" without one.
export const token = {
  get: () => sessionStorage.getItem(tokenKey) || "",
  set: (secret) => secret ? sessionStorage.setItem(tokenKey, secret) : sessionStorage.removeItem(tokenKey),
};

// send sends a request and returns the response, whatever its status.
async function send(method, path, body, signal, media = "application/json", more = {}) {
  const headers = { Accept: "application/json", ...more };
  if (token.get()) headers.Authorization = "Bearer " + token.get();
  if (body !== undefined) headers["Content-Type"] = media;
  try {
    return await fetch(new URL(path, base), { method, headers, signal, cache: "no-store", body });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem("UNREACHABLE", "the service does not answer");
  }
}

// read returns the JSON of a response, and throws a Problem if the response is an error.
async function read(response) {
  let text, answer;
  try {
    text = await response.text();
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem("UNREACHABLE", "the answer of the service broke off");
  }
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Problem("HTTP " + response.status, "the answer is not JSON: something between here and the service gave it");
  }
  if (!response.ok) throw new Problem(answer.code || "HTTP " + response.status, answer.message || response.statusText, answer);
  return answer;
}

async function call(method, path, body, signal) {
  return read(await send(method, path, body === undefined ? undefined : JSON.stringify(body), signal));
}

const indexPath = (index) => "indices/" + encodeURIComponent(index);

export const indices = () => call("GET", "indices");
export const health = () => call("GET", "health");
export const access = () => call("GET", "tokens");
export const nodes = () => call("GET", "nodes");
export const declare = (name) => call("POST", "indices", { name });
export const drop = (index) => call("DELETE", indexPath(index));
export const stats = (index, signal) => call("GET", indexPath(index) + "/stats", undefined, signal);
export const explain = (index, body, signal) => call("POST", indexPath(index) + "/explain", body, signal);
export const facets = (index, body, signal) => call("POST", indexPath(index) + "/facets", body, signal);
export const numbersOf = (index, body, signal) => call("POST", indexPath(index) + "/metadata/query", body, signal);
export const metadata = (index, body, signal) => call("POST", indexPath(index) + "/metadata/get", body, signal);

// addTexts adds documents and returns the answer as an object, which counts the texts that were cut.
export const addTexts = async (index, body, signal) => read(await send("POST", indexPath(index) + "/update_with_encoding", JSON.stringify(body), signal,
  undefined, { Prefer: "return=representation" }));

export const verify = (index) => call("POST", indexPath(index) + "/verify");
export const retrain = (index) => call("POST", indexPath(index) + "/retrain");

// searchPath returns the route of a search. texts is true if its queries are texts, which are encoded.
export const searchPath = (index, texts) => indexPath(index) + (texts ? "/search_with_encoding" : "/search");

// search returns the answer, and the time in milliseconds that the service took for each stage.
export async function search(path, body, signal) {
  const response = await send("POST", path, JSON.stringify(body), signal);
  const answer = await read(response);
  const took = {};
  for (const part of (response.headers.get("Server-Timing") || "").split(",")) {
    const [name, ...rest] = part.trim().split(";");
    const dur = rest.find((p) => p.startsWith("dur="));
    if (dur) took[name] = Number(dur.slice(4));
  }
  return { answer, took };
}

// The largest number of passages, and of vectors, that a query has if it is a document.
const maxPassages = 8, maxVectors = 2048;

// vectorsOf returns a document as a query, {ids, query}: its stored vectors or, if it has many passages,
// those of some at equal distances, with their ids.
export async function vectorsOf(index, id, signal) {
  const documents = async (query) => (await call("GET", indexPath(index) + "/documents?" + new URLSearchParams(query), undefined, signal)).documents;
  let ids = (await documents([["id", id], ["limit", 10000], ["metadata_bytes", 0]])).map((d) => d.id);
  const n = ids.length;
  if (n > maxPassages) ids = Array.from({ length: maxPassages }, (_, i) => ids[Math.floor(i * n / maxPassages)]);
  const parts = [];
  let rows = 0, dim = 0;
  for (const { embeddings_b64: text, shape } of await documents([["vectors", "base64"], ...ids.map((id) => ["id", id])])) {
    if (rows && rows + shape[0] > maxVectors) break; // only whole passages, whose tokens can be named
    parts.push(atob(text));
    rows += shape[0];
    dim = shape[1];
  }
  return { ids: ids.slice(0, parts.length), query: { embeddings_b64: btoa(parts.join("")), shape: [rows, dim] } };
}

// blobOf returns the bytes that a path of the service answers, such as a backup or a picture.
async function blobOf(path) {
  const response = await send("GET", path);
  if (!response.ok) await read(response);
  try {
    return await response.blob();
  } catch {
    throw new Problem("UNREACHABLE", "the answer of the service broke off");
  }
}

export const backup = (index) => blobOf(indexPath(index) + "/backup");
export const picture = (index, id) => blobOf(indexPath(index) + "/image?id=" + encodeURIComponent(id));
export const restore = async (index, file) => read(await send("PUT", indexPath(index) + "/backup", file, undefined, "application/octet-stream"));

// sample returns the sample documents, which are a file of the page.
export async function sample() {
  const response = await send("GET", "ui/sample.jsonl");
  return response.text();
}
