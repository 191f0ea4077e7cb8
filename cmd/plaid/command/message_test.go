package command

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/search"
)

// Names of files and documents may be of any bytes; none that a terminal would
// obey reaches it, in errors, warnings and reports.
func TestMessagesAreSafe(t *testing.T) {
	dir := t.TempDir()
	ix, source := filepath.Join(dir, "x\x1b[31m\u009b\u202ey.plaid"), source(t, dir, 2, []float32{1, 0, 0, 1}, 1, 1)
	safe := func(text string) {
		t.Helper()
		require.NotEmpty(t, text)
		for _, r := range text {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%q", text)
		}
		require.True(t, utf8.ValidString(text))
	}
	code, stdout, _ := try(t, append([]string{"index", ix, "-q"}, source...)...)
	require.Equal(t, exitOK, code)
	safe(stdout)
	require.Contains(t, stdout, `x\x1b[31m\u009b\u202ey.plaid`)
	for _, args := range [][]string{
		{"info", "a\n\x1b[31mb\xff"},
		{"verify", "--json", "\u009b31m"},
		{"index", filepath.Join(dir, "y.plaid"), "--vectors=\x1b[31m\n.npy"},
		{"get", ix, "\x1b[31m"},
		{"delete", ix, "\x1b[31m", "\u009b"},
		{"search", ix, "--queries", source[1], "--query-lengths", source[3], "--candidates", "\x1b"},
		{"eval", "--qrels", "\x1b", "\x1b"},
	} {
		code, _, stderr := try(t, args...)
		require.Contains(t, []int{exitFailed, exitNotFound}, code, args)
		safe(stderr)
		require.Equal(t, 1, strings.Count(stderr, "\n"), "a line break in a name is not one of the message: %q", stderr)
	}

	// Nor does a name make a message that nobody can read.
	long := strings.Repeat("é", 50_000)
	for _, args := range [][]string{{"get", ix, long}, {"delete", ix, long, long + "x"}, {"info", long}, {"nosuch" + long}} {
		code, _, stderr := try(t, args...)
		require.NotEqual(t, exitOK, code)
		safe(stderr)
		require.Less(t, len(stderr), 4000)
	}
	_, _, stderr := try(t, "get", ix, long)
	require.Contains(t, stderr, "… (100000 bytes)")
}

// What goes out as JSON is JSON to every reader, whatever an index holds.
func TestPayloadIsUTF8(t *testing.T) {
	for payload, want := range map[string]string{
		"{\"a\":\"\xff\"}": `{"base64":"eyJhIjoi/yJ9"}`, "\xff": `{"base64":"/w=="}`, `{"a": "<1>"}`: `{"a":"<1>"}`, "<text>": `"<text>"`, "3": "3", "": `""`,
	} {
		line, err := out.JSONLine(hitJSON{Payload: search.Payload(payload)})
		require.NoError(t, err)
		require.True(t, utf8.Valid(line), "%q", line)
		require.Equal(t, `{"rank":0,"id":"","score":0,"metadata":`+want+"}\n", string(line))
	}
	line, err := out.JSONLine(hitJSON{})
	require.NoError(t, err)
	require.NotContains(t, string(line), "metadata")
}

// TestModelNamesFiles checks that files of a model are named as within its folder, heads too.
func TestModelNamesFiles(t *testing.T) {
	dir := "../../../encode/testdata/golden/pylate-bert"
	code, text, stderr := try(t, "model", dir)
	require.Equal(t, exitOK, code, stderr)
	require.Regexp(t, `(?m)^head 1 +32 to 16, identity +1_Dense/model.safetensors$`, text)
	require.Equal(t, 1, strings.Count(text, dir))
}
