// A request as a command or a program: curl, Python, Go.

// visible returns a text with escapes for invisible characters, and for those that Go refuses. The text
// must be JSON, or a literal of one of these languages.
const visible = (text) => text.toWellFormed().replace(/[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
  (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

const literal = (text) => visible(JSON.stringify(text));

// python writes a value of JSON as Python does.
function python(v, indent) {
  const inner = indent + "    ";
  if (v === null) return "None";
  if (v === true) return "True";
  if (v === false) return "False";
  if (typeof v !== "object") return literal(v);
  const parts = Array.isArray(v) ? v.map((x) => python(x, inner)) : Object.entries(v).map(([k, x]) => literal(k) + ": " + python(x, inner));
  const [open, close] = Array.isArray(v) ? "[]" : "{}";
  const flat = open + parts.join(", ") + close;
  return flat.length + indent.length < 90 ? flat : open + "\n" + parts.map((p) => inner + p + ",\n").join("") + indent + close;
}

// asCode writes a POST of JSON. The token, where one is used, comes from PLAID_TOKEN.
export function asCode(url, body, withToken) {
  const json = visible(JSON.stringify(body));
  return {
    curl: "curl " + quoted(url) + (withToken ? " -H \"Authorization: Bearer $PLAID_TOKEN\"" : "") + " \\\n  --json " + quoted(json) + "\n",
    Python: `import json
${withToken ? "import os\n" : ""}import urllib.request

body = ${python(body, "")}
request = urllib.request.Request(
    ${literal(url)},
    json.dumps(body).encode(),
    {"Content-Type": "application/json"${withToken ? ", \"Authorization\": \"Bearer \" + os.environ[\"PLAID_TOKEN\"]" : ""}},
)
with urllib.request.urlopen(request) as answer:
    print(json.dumps(json.load(answer), indent=1))
`,
    Go: `package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	body := ${literal(visible(JSON.stringify(body)))}
	r, err := http.NewRequest("POST", ${literal(url)}, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
${withToken ? "\tr.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"PLAID_TOKEN\"))\n" : ""}	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		log.Fatal(err)
	}
}
`,
  };
}
