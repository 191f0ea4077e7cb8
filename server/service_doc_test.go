package server_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/server"
)

// block is a fenced block of the documentation.
type block struct {
	line       int
	kind, text string
}

func blocksOf(t *testing.T, path string) []block {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var blocks []block
	var in *block
	for i, line := range strings.Split(string(text), "\n") {
		switch kind, fence := strings.CutPrefix(line, "```"); {
		case fence && in == nil:
			in = &block{line: i + 1, kind: kind}
		case fence:
			blocks = append(blocks, *in)
			in = nil
		case in != nil:
			in.text += line + "\n"
		}
	}
	return blocks
}

// like tells whether a value is as an example says: "…" stands for anything, and in an
// object {"…": "…"} for further fields.
func like(want, got any) bool {
	switch want := want.(type) {
	case string:
		return want == "…" || want == got
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return false
		}
		_, open := want["…"]
		for k, w := range want {
			if g, there := got[k]; k != "…" && (!there || !like(w, g)) {
				return false
			}
		}
		return open || len(got) == len(want)
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return false
		}
		for i := range want {
			if !like(want[i], got[i]) {
				return false
			}
		}
		return true
	}
	return want == got
}

var curlLine = regexp.MustCompile(`(?m)^curl `)

// Every example of docs/service.md does what it says, and there is one for each route.
func TestServiceDocumentation(t *testing.T) {
	s := start(t, words{}, nil)
	c := readContract(t, s)
	shown := map[string]bool{
		"PUT /indices/{name}/import": true, // of another engine's folder; TestImport
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "queries.safetensors"), safetensors(f32Tensor(2, 0, 1), lengthsTensor(1)), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rerank.safetensors"),
		safetensors(lengthsTensor(1, 1), named("query", f32Tensor(2, 1, 0)), f32Tensor(2, 0, 1, 1, 0)), 0o666))
	var last *reply
	for _, b := range blocksOf(t, "../docs/service.md") {
		if b.kind == "json" {
			var want, got any
			require.NoError(t, json.Unmarshal([]byte(b.text), &want), "line %d", b.line)
			last.json(t, &got)
			require.True(t, like(want, got), "line %d: %s", b.line, last.body)
			continue
		}
		if b.kind != "sh" || !curlLine.MatchString(b.text) {
			continue
		}
		for _, command := range curlLine.Split(strings.ReplaceAll(b.text, "\\\n", ""), -1)[1:] {
			status := 0
			if before, after, ok := strings.Cut(command, " # "); ok {
				var err error
				status, err = strconv.Atoi(strings.TrimSpace(after))
				require.NoError(t, err, "line %d", b.line)
				command = before
			}
			method, path, out := "", "", ""
			var body any
			var headers []string
			args := testenv.ShellWords(command)
			for i := 0; i < len(args); i++ {
				switch args[i] {
				case "-X":
					i++
					method = args[i]
				case "-H":
					i++
					headers = append(headers, args[i])
				case "--json":
					i++
					body = args[i]
				case "-o":
					i++
					out = filepath.Join(dir, args[i])
				case "--data-binary":
					i++
					text, err := os.ReadFile(filepath.Join(dir, strings.TrimPrefix(args[i], "@")))
					require.NoError(t, err)
					body = text
				default:
					host, rest, _ := strings.Cut(args[i], "/")
					require.Equal(t, "localhost:8080", host, "line %d: %s", b.line, command)
					path = "/" + rest
				}
			}
			if method == "" {
				method = "GET"
				if body != nil {
					method = "POST"
				}
			}
			last = s.send(t, method, path, body, headers...)
			if status == 0 {
				require.Less(t, last.status, 300, "line %d: %s: %s", b.line, command, last.body)
			} else {
				require.Equal(t, status, last.status, "line %d: %s: %s", b.line, command, last.body)
			}
			c.answers(t, method, path, last)
			shown[method+" "+c.route(path)] = true
			if out != "" {
				require.NoError(t, os.WriteFile(out, []byte(last.body), 0o666))
			}
		}
	}
	for _, r := range server.Routes(s.Server) {
		require.True(t, shown[r], "docs/service.md has no example of %s", r)
	}
}
