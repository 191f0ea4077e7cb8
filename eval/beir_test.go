package eval_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
)

const (
	corpusText = `{"_id": "1", "title": "A title", "text": "and text", "metadata": {"x": [1]}}` + "\r\n" +
		`{"_id": "b", "title": "", "text": " only text "}` + "\r\n\r\n" +
		`{"_id": "007", "title": null, "text": ""}` + "\r\n" +
		`{"_id": "\u00e4 1", "text": "caf\u00e9"}`
	queriesText = `{"_id": "1", "text": "first", "metadata": {}}` + "\n" +
		`{"_id": "unjudged", "text": "second"}` + "\n" +
		`{"_id": "q3", "text": ""}` + "\n"
	qrelsText = "query-id\tcorpus-id\tscore\r\nq3\tb\t1\r\n1\t1\t2\r\n1\tgone\t1\r\nlost\tgone\t0\r\n"
)

// folder writes a collection; an empty content leaves a file out.
func folder(t *testing.T, corpus, queries, qrels, gz string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "qrels"), 0o755))
	for name, text := range map[string]string{"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels/test.tsv": qrels} {
		if text == "" {
			continue
		}
		data := []byte(text)
		if gz != "" {
			data = gzipped(t, text)
		}
		if gz == "suffix" {
			name += ".gz"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return dir
}

func documents(t *testing.T, c *eval.Collection) (docs []eval.Document) {
	t.Helper()
	for d, err := range c.Documents(t.Context()) {
		require.NoError(t, err)
		docs = append(docs, d)
	}
	return docs
}

func TestLoadBEIR(t *testing.T) {
	for _, gz := range []string{"", "magic", "suffix"} {
		t.Run("gzip "+gz, func(t *testing.T) {
			c, err := eval.LoadBEIR(folder(t, corpusText, queriesText, qrelsText, gz), "test")
			require.NoError(t, err)
			require.Equal(t, []eval.Query{{"1", "first"}, {"unjudged", "second"}, {"q3", ""}}, c.Queries)
			require.Equal(t, []eval.Query{{"1", "first"}, {"q3", ""}}, c.JudgedQueries())
			require.Equal(t, []string{"q3", "1", "lost"}, c.Qrels.Queries())

			docs := documents(t, c)
			require.Equal(t, []eval.Document{
				{"1", "A title", "and text"}, {"b", "", " only text "}, {"007", "", ""}, {"ä 1", "", "café"},
			}, docs)
			var texts []string
			for _, d := range docs {
				texts = append(texts, d.FullText())
			}
			require.Equal(t, []string{"A title and text", "only text", "", "café"}, texts)
			require.Equal(t, docs, documents(t, c), "a second pass")
		})
	}
}

func TestDocumentsStopsEarly(t *testing.T) {
	c, err := eval.LoadBEIR(folder(t, corpusText+"\nbroken", queriesText, qrelsText, ""), "test")
	require.NoError(t, err)
	n := 0
	for d, err := range c.Documents(t.Context()) {
		require.NoError(t, err)
		if n++; d.ID == "b" {
			break
		}
	}
	require.Equal(t, 2, n)
}

func TestDocumentsCancelled(t *testing.T) {
	c, err := eval.LoadBEIR(folder(t, corpusText, queriesText, qrelsText, ""), "test")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	n := 0
	for _, err := range c.Documents(ctx) {
		last = err
		n++
		cancel()
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Equal(t, 2, n)
}

func TestBEIRCorpusErrors(t *testing.T) {
	first := `{"_id": "1", "text": "x"}` + "\n"
	for name, tt := range map[string]struct {
		line string
		want error
		msg  string
	}{
		"not JSON":   {"text", eval.ErrFormat, "corpus.jsonl:2: malformed line: invalid character"},
		"cut":        {`{"_id": "2", "te`, eval.ErrFormat, "corpus.jsonl:2: malformed line: unexpected end"},
		"two values": {`{"_id": "2"} {"_id": "3"}`, eval.ErrFormat, "corpus.jsonl:2: "},
		"array":      {`["2"]`, eval.ErrFormat, "corpus.jsonl:2: malformed line: the line is a JSON array, not an object"},
		"no id":      {`{"text": "x"}`, eval.ErrFormat, "corpus.jsonl:2: malformed line: no _id"},
		"null":       {`null`, eval.ErrFormat, "corpus.jsonl:2: malformed line: no _id"},
		"empty id":   {`{"_id": "", "text": "x"}`, eval.ErrFormat, "corpus.jsonl:2: malformed line: no _id"},
		"number id":  {`{"_id": 2, "text": "x"}`, eval.ErrFormat, `corpus.jsonl:2: malformed line: field "_id" is a JSON number, not a string`},
		"text":       {`{"_id": "2", "text": {}}`, eval.ErrFormat, `corpus.jsonl:2: malformed line: field "text" is a JSON object, not a string`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := eval.LoadBEIR(folder(t, first+tt.line+"\n", queriesText, qrelsText, ""), "test")
			require.NoError(t, err)
			n := 0
			for _, err = range c.Documents(t.Context()) {
				n++
			}
			require.Equal(t, 2, n)
			require.ErrorIs(t, err, tt.want)
			require.ErrorContains(t, err, tt.msg)
		})
	}
}

// The same for queries.jsonl, at which LoadBEIR itself stops.
func TestBEIRQueriesErrors(t *testing.T) {
	for name, tt := range map[string]struct{ line, msg string }{
		"not JSON":  {"text", "queries.jsonl:4: malformed line: invalid character"},
		"cut":       {`{"_id": "2", "te`, "queries.jsonl:4: malformed line: unexpected end"},
		"array":     {`["2"]`, "queries.jsonl:4: malformed line: the line is a JSON array, not an object"},
		"number id": {`{"_id": 2}`, `queries.jsonl:4: malformed line: field "_id" is a JSON number, not a string`},
		"text":      {`{"_id": "2", "text": []}`, `queries.jsonl:4: malformed line: field "text" is a JSON array, not a string`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := eval.LoadBEIR(folder(t, corpusText, queriesText+tt.line+"\n", qrelsText, ""), "test")
			require.ErrorIs(t, err, eval.ErrFormat)
			require.ErrorContains(t, err, tt.msg)
		})
	}
}

func TestLoadBEIRErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		dir, split, msg string
	}{
		"no corpus":     {folder(t, "", queriesText, qrelsText, ""), "test", "corpus.jsonl"},
		"no queries":    {folder(t, corpusText, "", qrelsText, ""), "test", "queries.jsonl"},
		"no split":      {folder(t, corpusText, queriesText, qrelsText, ""), "dev", "dev.tsv"},
		"empty split":   {folder(t, corpusText, queriesText, qrelsText, ""), "", "split"},
		"path":          {folder(t, corpusText, queriesText, qrelsText, ""), "../qrels/test", "split"},
		"query twice":   {folder(t, corpusText, queriesText+queriesText, qrelsText, ""), "test", `queries.jsonl:4: duplicate: query id "1"`},
		"bad query":     {folder(t, corpusText, "{}", qrelsText, ""), "test", "queries.jsonl:1: malformed line: no _id"},
		"bad judgement": {folder(t, corpusText, queriesText, "q\td\n", ""), "test", "test.tsv:1: malformed line"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := eval.LoadBEIR(tt.dir, tt.split)
			require.ErrorContains(t, err, tt.msg)
		})
	}
}

func TestDocumentsFileGone(t *testing.T) {
	dir := folder(t, corpusText, queriesText, qrelsText, "")
	c, err := eval.LoadBEIR(dir, "test")
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "corpus.jsonl")))
	for _, err := range c.Documents(t.Context()) {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}

// A corpus that changes while it is streamed is an error, unless nobody listens any more.
func TestDocumentsFileChanges(t *testing.T) {
	dir := folder(t, corpusText, queriesText, qrelsText, "")
	c, err := eval.LoadBEIR(dir, "test")
	require.NoError(t, err)
	for _, stop := range []bool{false, true} {
		changed := false
		for _, err = range c.Documents(t.Context()) {
			if !changed {
				changed = true
				f, err := os.OpenFile(filepath.Join(dir, "corpus.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
				require.NoError(t, err)
				_, err = f.WriteString("\n")
				require.NoError(t, errors.Join(err, f.Close()))
			}
			if stop {
				break
			}
		}
		if !stop {
			require.ErrorContains(t, err, "corpus.jsonl: changed while it was read")
		}
	}
}

func TestRealCollections(t *testing.T) {
	type size struct{ docs, queries, judged int }
	for set, want := range map[string]struct {
		split string
		size
	}{
		"arguana":        {"test", size{8674, 1406, 1406}},
		"cranfield":      {"test", size{1400, 225, 225}},
		"cacm":           {"test", size{3204, 64, 52}},
		"cosqa":          {"dev", size{6267, 500, 500}},
		"scifact":        {"test", size{5183, 1109, 300}},
		"scifact-sample": {"test", size{46, 24, 24}},
	} {
		t.Run(set, func(t *testing.T) {
			c, err := eval.LoadBEIR(shared(t, "data", set), want.split)
			require.NoError(t, err)
			require.Equal(t, want.size, size{len(documents(t, c)), len(c.Queries), len(c.JudgedQueries())})
		})
	}
}
