package encode

import (
	"compress/gzip"
	"context"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// all are the texts of a stream up to its error.
func all(s iter.Seq2[Text, error]) (list []Text, err error) {
	for t, e := range s {
		if e != nil {
			return list, e
		}
		t.From = Place{} // TestPlaces has them
		list = append(list, t)
	}
	return list, nil
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestJSONL(t *testing.T) {
	const lines = "\ufeff" + `{"_id": "a", "title": "T", "text": "x", "metadata": {}}` + "\r\n\n" +
		`{"id": 7, "text": "y", "metadata": {"url": ["a<b", "c&d"]}, "title": null}` + "\n" + `{"_id":"c","id":"other"}`
	want := []Text{
		{ID: "a", Title: "T", Text: "x"}, {ID: "7", Text: "y", Payload: []byte(`{"metadata":{"url":["a<b","c&d"]}}`)},
		{ID: "c", Payload: []byte(`{"id":"other"}`)},
	}
	dir := t.TempDir()
	got, err := all(JSONL(t.Context(), write(t, dir, "a.jsonl", lines)))
	require.NoError(t, err)
	require.Equal(t, want, got)
	var b strings.Builder
	z := gzip.NewWriter(&b)
	z.Write([]byte(lines))
	z.Close()
	got, err = all(JSONL(t.Context(), write(t, dir, "a.jsonl.gz", b.String())))
	require.NoError(t, err)
	require.Equal(t, want, got)
	for line, message := range map[string]string{
		`{"text": "a"`: "ends within the JSON object", `[]`: "not a JSON object", `{"text": 3}`: "text is not a string",
		"{\"text\": \"\xff\"}": "not valid UTF-8", `{"_id": ["a"]}`: "neither a string nor an integer",
	} {
		path := write(t, dir, "bad.jsonl", `{"text": "fine"}`+"\n\n"+line)
		got, err := all(JSONL(t.Context(), path))
		require.Len(t, got, 1)
		var te *TextError
		require.ErrorAs(t, err, &te)
		require.Equal(t, []any{path, 3}, []any{te.Path, te.Line}, line)
		require.ErrorContains(t, err, message)
	}
	_, err = all(JSONL(t.Context(), filepath.Join(dir, "none")))
	require.ErrorIs(t, err, fs.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = all(JSONL(ctx, filepath.Join(dir, "a.jsonl")))
	require.ErrorIs(t, err, context.Canceled)
}

// TestLineOfByteOrderMark reads a line that has only a byte order mark, as where files are concatenated.
func TestLineOfByteOrderMark(t *testing.T) {
	in := strings.NewReader("{\"text\": \"a\"}\n\ufeff\n{\"text\": \"b\"}\n")
	var texts []string
	for text, err := range (&Reader{}).Read(t.Context(), in, "x.jsonl") {
		require.NoError(t, err)
		texts = append(texts, text.Text)
	}
	require.Equal(t, []string{"a", "b"}, texts)
}

func TestLinesAndTables(t *testing.T) {
	got, err := all((&Reader{Format: FormatLines}).Read(t.Context(), strings.NewReader("a b\r\n\nc"), "stdin"))
	require.NoError(t, err)
	require.Equal(t, []Text{{Text: "a b"}, {}, {Text: "c"}}, got)
	_, err = all((&Reader{Format: FormatLines}).Read(t.Context(), strings.NewReader("a\n\xff\n"), "stdin"))
	require.EqualError(t, err, "stdin: line 2: is not valid UTF-8: byte 0xff; if it is Latin-1, iconv -f LATIN1 -t UTF-8 makes UTF-8 of it")

	dir := t.TempDir()
	path := write(t, dir, "a.csv", "\ufeff_id,text,year\n1,\"two\nlines, one comma\",1999\n2,x,\n")
	got, err = all((&Reader{Format: ""}).Texts(t.Context(), path))
	require.NoError(t, err)
	require.Equal(t, []Text{
		{ID: "1", Text: "two\nlines, one comma", Payload: []byte(`{"year":1999}`)}, {ID: "2", Text: "x", Payload: []byte(`{"year":null}`)},
	}, got)
	got, err = all((&Reader{}).Texts(t.Context(), write(t, dir, "a.tsv", "title\ttext\na, b\tc\n")))
	require.NoError(t, err)
	require.Equal(t, []Text{{Title: "a, b", Text: "c"}}, got)
	for content, message := range map[string]string{
		"": "is empty", "id,body\n1,x\n": "no column text, only id, body", "text,text\n": `names column "text" twice`,
		"id,text\n1\n": "wrong number of fields", "id,text\n1,\xff\n": "line 2: column text is not valid UTF-8",
	} {
		_, err := all((&Reader{}).Texts(t.Context(), write(t, dir, "bad.csv", content)))
		var te *TextError
		require.ErrorAs(t, err, &te, content)
		require.ErrorContains(t, err, message)
		require.ErrorContains(t, err, "bad.csv")
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"b.txt": "bee", "a/x.MD": "ex", "a/.hidden.txt": "no", ".git/c.txt": "no", "c.bin": "no", "z.txt": "zed",
	} {
		write(t, dir, name, content)
	}
	got, err := all((&Reader{}).Texts(t.Context(), dir))
	require.NoError(t, err)
	require.Equal(t, []Text{{ID: "a/x.MD", Text: "ex"}, {ID: "b.txt", Text: "bee"}, {ID: "z.txt", Text: "zed"}}, got)
	link := filepath.Join(t.TempDir(), "link")
	if os.Symlink(dir, link) == nil {
		linked, err := all((&Reader{}).Texts(t.Context(), link))
		require.NoError(t, err)
		require.Equal(t, got, linked)
	}
	for range (&Reader{}).Texts(t.Context(), dir) { // may be left early
		break
	}
	write(t, dir, "b.txt", "\xff")
	got, err = all((&Reader{}).Texts(t.Context(), dir))
	require.Len(t, got, 1)
	require.ErrorContains(t, err, "b.txt: is not valid UTF-8")
	_, err = all((&Reader{}).Texts(t.Context(), filepath.Join(dir, "none")))
	require.ErrorIs(t, err, fs.ErrNotExist)
}
