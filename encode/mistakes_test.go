package encode

import (
	"bytes"
	"compress/gzip"
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/registry"
)

// Each file that cannot be read says why, and what to do about it.
func TestMistakesInFiles(t *testing.T) {
	for _, m := range []struct {
		name, content string
		r             Reader
		says          string
	}{
		{"a.jsonl", `{"id": "1", "body": "x"}` + "\n" + `{"body": "y"}`, Reader{}, "a.jsonl: line 1: no text field: no object has text, this one has body"},
		{"a.jsonl", `{"id": "1"}`, Reader{}, "line 1: no text field: no object has text, this one has id"},
		{"a.jsonl", `{"text": "x"}`, Reader{Fields: Fields{Text: "body"}}, "no object has body, this one has text"},
		{"a.jsonl", `[{"text": "x"}]`, Reader{}, "line 1: not a JSON object but the start of an array: write one object a line, as jq -c '.[]' does"},
		{"a.jsonl", `hello`, Reader{}, "line 1: not a JSON object: a file with a text on each line has another format, lines"},
		{"a.jsonl", `{"text": 3}`, Reader{}, "text is not a string"},
		{"a.jsonl", "\xff\xfe{\x00", Reader{}, "it is UTF-16: iconv -f UTF-16 -t UTF-8"},
		{"a.jsonl", "{\"text\": \"caf\xe9\"}", Reader{}, "byte 0xe9; if it is Latin-1, iconv"},
		{"a.txt", "%PDF-1.7\n", Reader{}, "a.txt: it is a PDF: make text of it first, as pdftotext does"},
		{"a.pdf", "%PDF-1.7\n", Reader{}, `a.pdf: unknown suffix ".pdf": it is a PDF: make text of it first, as pdftotext does`},
		{"a.xyz", "x", Reader{}, `a.xyz: unknown suffix: ".xyz" is none of .jsonl, .ndjson, .json, .csv, .tsv, .txt, .html, .htm and .ipynb`},
		{"a.parquet", "PAR1", Reader{}, "the program of the formats module reads it"},
		{"a.csv", "PAR1", Reader{}, "it is Parquet"},
		{"a.csv", "id,body\n1,x\n", Reader{}, "no text field: there is no column text, only id, body"},
		{"a.csv", "id,text\n1,x\n", Reader{Fields: Fields{Title: "head"}}, "there is no column head, only id, text"},
		{"a.docx", "PK\x03\x04", Reader{}, "pandoc -t plain"},
		{"a.html", "<p>caf\xe9", Reader{}, "not valid UTF-8"},
		{"nosuch.jsonl", "", Reader{}, "nosuch.jsonl: no such file"},
	} {
		t.Run(m.says, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), m.name)
			if m.name != "nosuch.jsonl" {
				require.NoError(t, os.WriteFile(path, []byte(m.content), 0o666))
			}
			_, err := all(m.r.Texts(t.Context(), path))
			require.ErrorContains(t, err, m.says)
		})
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.pdf"), nil, 0o666))
	var passed []string
	r := Reader{OnSkipped: func(name string) { passed = append(passed, filepath.Base(name)) }}
	_, err := all(r.Texts(t.Context(), dir))
	require.ErrorIs(t, err, ErrNoTexts)
	require.ErrorContains(t, err, "no text files: none is one of text, Markdown, web pages (.html), notebooks (.ipynb) and source code by its name; other files: 1")
	require.ErrorContains(t, err, "; of one of these: it is a PDF")
	require.Equal(t, []string{"a.pdf"}, passed)
}

// What another package reads is read by its name, unless a format is given, and held to
// what holds for all texts.
func TestRegisterFormat(t *testing.T) {
	say := Text{Text: "x"}
	var asked Fields
	RegisterFormat(TextFormat{
		Suffixes: []string{".registered"},
		Folder:   func(path string) bool { return filepath.Base(path) == "registered" },
		Texts: func(_ context.Context, path string, fields Fields) iter.Seq2[Text, error] {
			asked = fields
			return func(yield func(Text, error) bool) { _ = yield(Text{ID: filepath.Base(path)}, nil) && yield(say, nil) }
		},
	})
	dir := filepath.Join(t.TempDir(), "registered")
	require.NoError(t, os.Mkdir(dir, 0o777))
	r := Reader{Fields: Fields{Text: "body"}}
	for _, path := range []string{dir, write(t, dir, "a.Registered", "")} {
		got, err := all(r.Texts(t.Context(), path))
		require.NoError(t, err)
		require.Equal(t, []Text{{ID: filepath.Base(path)}, say}, got)
		require.Equal(t, r.Fields, asked)
	}
	got, err := all((&Reader{Format: FormatLines}).Texts(t.Context(), write(t, dir, "b.registered", "y\n")))
	require.NoError(t, err)
	require.Equal(t, []Text{{Text: "y"}}, got)
	say.Text = "caf\xe9"
	_, err = all(r.Texts(t.Context(), dir))
	require.ErrorContains(t, err, "registered: text 2: is not valid UTF-8")
	say.Text = strings.Repeat("x", maxTextLine+1)
	_, err = all(r.Texts(t.Context(), dir))
	require.ErrorContains(t, err, "registered: text 2: has more than")
	_, err = all(r.Texts(t.Context(), write(t, dir, "c.unknown", "")))
	require.ErrorContains(t, err, ".html, .htm, .ipynb and .registered")
	require.Panics(t, func() { RegisterFormat(TextFormat{Suffixes: []string{".registered"}}) })
	require.Panics(t, func() { RegisterFormat(TextFormat{Suffixes: []string{".csv"}}) })
	registeredFormats = registry.Formats[TextFormat]{}
}

// Fields and columns may have any names, and gzip is known by its first bytes.
func TestFieldsByName(t *testing.T) {
	dir := t.TempDir()
	r := Reader{Fields: Fields{ID: "docid", Title: "head", Text: "contents"}}
	want := []Text{{ID: "1", Title: "T", Text: "x", Payload: []byte(`{"id":"other","text":"no"}`)}}
	for name, content := range map[string]string{
		"a.jsonl": `{"docid": 1, "head": "T", "contents": "x", "id": "other", "text": "no"}`,
		"a.tsv":   "docid\thead\tcontents\tid\ttext\n1\tT\tx\tother\tno\n",
	} {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err := z.Write([]byte(content))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		for _, bytes := range [][]byte{[]byte(content), packed.Bytes()} {
			got, err := all(r.Texts(t.Context(), write(t, dir, name, string(bytes))))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

func TestPages(t *testing.T) {
	page := "\ufeff<!doctype html><html><head><title>A &amp; B</title><style>p{}</style></head><body><h1>Owls</h1><p>hunt <b>at\nnight</b>." +
		"<script>if (a < b) {}</script><svg><title>no</title></svg><ul><li>one</li><li>two &lt;3</li></ul></body></html>"
	dir := t.TempDir()
	got, err := all((&Reader{}).Texts(t.Context(), write(t, dir, "a.html", page)))
	require.NoError(t, err)
	want := Text{ID: "a.html", Title: "A & B", Text: "Owls\nhunt at night.\none\ntwo <3"}
	require.Equal(t, []Text{want}, got)
	got, err = all((&Reader{}).Texts(t.Context(), dir))
	require.NoError(t, err)
	require.Equal(t, []Text{want}, got)
}

func FuzzPage(f *testing.F) {
	f.Add("<title>a</title><p>b</p>")
	f.Add("<svg><title>a<svg></title></svg></svg>b")
	f.Fuzz(func(t *testing.T, page string) {
		title, text, err := pageText(page)
		if err != nil {
			return
		}
		require.Equal(t, collapseSpace(title), title)
		require.Equal(t, collapseSpace(text), text)
	})
}
