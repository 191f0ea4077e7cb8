// The routes of the service that the page uses.

const tokenKey = "plaid-token";

// The page is at …/ui, the routes beside it; a proxy may have put both below a path.
const base = new URL(".", document.baseURI);

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

async function call(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = "Bearer " + token.get();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response, text;
  try {
    response = await fetch(new URL(path, base), {
      method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body),
    });
    text = await response.text();
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem("UNREACHABLE", "the service does not answer");
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Problem("HTTP " + response.status, "the answer is not JSON: something between here and the service gave it");
  }
  if (!response.ok) {
    throw new Problem(answer.code || "HTTP " + response.status, answer.message || response.statusText, answer);
  }
  return answer;
}

const of = (index) => "indices/" + encodeURIComponent(index);

export const indices = () => call("GET", "indices");
export const health = () => call("GET", "health");
export const stats = (index) => call("GET", of(index) + "/stats");
export const explain = (index, body, signal) => call("POST", of(index) + "/explain", body, signal);
export const searchTexts = (index, body, signal) => call("POST", of(index) + "/search_with_encoding", body, signal);
export const searchVectors = (index, body, signal) => call("POST", of(index) + "/search", body, signal);

// vectorsOf is a document as a query: its vectors as they are stored.
export async function vectorsOf(index, id, signal) {
  const answer = await call("GET", of(index) + "/documents?vectors=base64&id=" + encodeURIComponent(id), undefined, signal);
  const { embeddings_b64, shape } = answer.documents[0];
  return { embeddings_b64, shape };
}
