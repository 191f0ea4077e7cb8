// The routes of the service that the page uses.

const tokenKey = "plaid-token";

// The page is at …/ui, the routes beside it; a proxy may have put both below a path.
export const base = new URL(".", document.baseURI);

// Problem is an error with a code, as the service answers them.
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

// token is the bearer token of this tab; "": none.
export const token = {
  get: () => sessionStorage.getItem(tokenKey) || "",
  set: (secret) => secret ? sessionStorage.setItem(tokenKey, secret) : sessionStorage.removeItem(tokenKey),
};

// send sends a request and returns the response, whatever its status.
async function send(method, path, body, signal, media = "application/json") {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = "Bearer " + token.get();
  if (body !== undefined) headers["Content-Type"] = media;
  try {
    return await fetch(new URL(path, base), { method, headers, signal, cache: "no-store", body });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem("UNREACHABLE", "the service does not answer");
  }
}

// read reads the JSON of a response, and throws what is an error.
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

const of = (index) => "indices/" + encodeURIComponent(index);

export const indices = () => call("GET", "indices");
export const health = () => call("GET", "health");
export const access = () => call("GET", "tokens");
export const nodes = () => call("GET", "nodes");
export const declare = (name) => call("POST", "indices", { name });
export const drop = (index) => call("DELETE", of(index));
export const stats = (index, signal) => call("GET", of(index) + "/stats", undefined, signal);
export const explain = (index, body, signal) => call("POST", of(index) + "/explain", body, signal);
export const facets = (index, body, signal) => call("POST", of(index) + "/facets", body, signal);
export const numbersOf = (index, body, signal) => call("POST", of(index) + "/metadata/query", body, signal);
export const metadata = (index, body, signal) => call("POST", of(index) + "/metadata/get", body, signal);
export const addTexts = (index, body, signal) => call("POST", of(index) + "/update_with_encoding", body, signal);
export const verify = (index) => call("POST", of(index) + "/verify");
export const retrain = (index) => call("POST", of(index) + "/retrain");

// searchPath is the route of a search: texts need to be encoded.
export const searchPath = (index, texts) => of(index) + (texts ? "/search_with_encoding" : "/search");

// search returns the answer with how long the service took for its stages, in milliseconds.
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

// vectorsOf is a document as a query: its vectors as they are stored.
export async function vectorsOf(index, id, signal) {
  const answer = await call("GET", of(index) + "/documents?vectors=base64&id=" + encodeURIComponent(id), undefined, signal);
  const { embeddings_b64, shape } = answer.documents[0];
  return { embeddings_b64, shape };
}

// blobOf is what a path below the service sends, such as a backup or a picture.
async function blobOf(path) {
  const response = await send("GET", path);
  if (!response.ok) await read(response);
  try {
    return await response.blob();
  } catch {
    throw new Problem("UNREACHABLE", "the answer of the service broke off");
  }
}

export const backup = (index) => blobOf(of(index) + "/backup");
export const picture = (index, id) => blobOf(of(index) + "/image?id=" + encodeURIComponent(id));
export const restore = async (index, file) => read(await send("PUT", of(index) + "/backup", file, undefined, "application/octet-stream"));

// sample is the collection that the page brings along.
export async function sample() {
  const response = await send("GET", "ui/sample.jsonl");
  return response.text();
}
