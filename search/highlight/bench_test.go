package highlight_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
)

// What a hit of some 200 tokens and a question of 32 takes beside its matches: to find its text
// again, and to make words of the matches.
func BenchmarkFind(b *testing.B) {
	quick := filepath.Join("..", "..", "docs", "examples", "quickstart")
	e, err := encode.Open(filepath.Join(quick, "colbert-nano"), nil)
	require.NoError(b, err)
	defer e.Close()
	var payload []byte
	var found *highlight.SourceText
	for d := range documents(b, filepath.Join(quick, "scifact-sample", "corpus.jsonl")) {
		var fields struct{ Title, Text string }
		require.NoError(b, json.Unmarshal(d, &fields))
		kept, err := highlight.KeptTokens(e, encode.Document, fields.Title+" "+fields.Text)
		require.NoError(b, err)
		if len(kept) > 195 && len(kept) < 205 {
			payload = d
			found, err = highlight.FindSourceText(e, d, nil, len(kept), 0)
			require.NoError(b, err)
			break
		}
	}
	require.NotNil(b, found)
	question := "do proteins that are outside of the cell serve as nutrients of cells in tumours where blood vessels bring few amino acids?"
	asked, err := highlight.KeptTokens(e, encode.Query, question)
	require.NoError(b, err)
	matches := make([]search.Match, len(asked))
	for i := range matches {
		matches[i] = search.Match{QueryToken: i, DocToken: (i*37 + 5) % len(found.Tokens), Weight: 1, Score: .5}
	}
	b.Run("text", func(b *testing.B) {
		for b.Loop() {
			if _, err := highlight.FindSourceText(e, payload, nil, len(found.Tokens), 0); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(found.Tokens)), "tokens")
	})
	b.Run("words", func(b *testing.B) {
		spans := 0
		for b.Loop() {
			spans = len(found.Spans(question, asked, matches))
		}
		b.ReportMetric(float64(spans), "spans")
	})
}

func documents(b *testing.B, path string) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		f, err := os.Open(path)
		require.NoError(b, err)
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() && yield(lines.Bytes()) {
		}
	}
}
