package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
)

// realFiles are tokenizers beside the checkout with the ids that the Python
// package gives for the lines there.
var realFiles = []struct{ kind, file, golden string }{
	{"wordpiece", "colbert-mini/tokenizer.json", "golden-wordpiece.json.gz"},
	{"bpe", "tokenizers/bpe-modernbert-like.json", "golden-bpe.json.gz"},
	{"unigram", "tokenizers/unigram-xlmr-like.json", "golden-unigram.json.gz"},
}

func readGzip(t testing.TB, path string, v any) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(v))
}

// beside is a tokenizer beside the checkout.
func beside(t testing.TB, file string) *Tokenizer {
	t.Helper()
	tok, err := Read(realdata.Path(t, "models", filepath.FromSlash(file)))
	require.NoError(t, err)
	return tok
}

// The tokenizer of the model of the quickstart, on the lines of the fixtures and the
// texts of the quickstart.
func TestQuickstartGolden(t *testing.T) {
	quickstart := filepath.Join("..", "..", "docs", "examples", "quickstart")
	tok, err := Read(filepath.Join(quickstart, "colbert-nano", "tokenizer.json"))
	require.NoError(t, err)
	lines := loadFixtures(t).lines
	for _, file := range []string{"corpus.jsonl", "queries.jsonl"} {
		b, err := os.ReadFile(filepath.Join(quickstart, "scifact-sample", file))
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			var d struct{ Text string }
			require.NoError(t, json.Unmarshal([]byte(line), &d))
			lines = append(lines, d.Text)
		}
	}
	var golden [][]int32
	readGzip(t, filepath.Join("testdata", "golden-nano.json.gz"), &golden)
	compare(t, tok, "quickstart", lines, golden)
}

func TestRealGolden(t *testing.T) {
	for _, c := range realFiles {
		t.Run(c.kind, func(t *testing.T) {
			tok := beside(t, c.file)
			var lines map[string][]string
			var golden map[string][][]int32
			readGzip(t, realdata.Path(t, "models", "tokenizers", "lines.json.gz"), &lines)
			readGzip(t, realdata.Path(t, "models", "tokenizers", c.golden), &golden)
			n := 0
			for set, texts := range lines {
				n += len(texts)
				if !effort.Long() {
					texts = texts[:len(texts)/20]
				}
				compare(t, tok, set, texts, golden[set][:len(texts)])
			}
			require.Equal(t, 18555, n)
		})
	}
}

// compare fails for each of the first lines whose ids are not as wanted.
func compare(t *testing.T, tok *Tokenizer, set string, texts []string, want [][]int32) {
	t.Helper()
	require.Len(t, want, len(texts))
	wrong := 0
	for i, text := range texts {
		ids, err := tok.EncodeIDs(nil, text)
		require.NoError(t, err)
		tokens, err := tok.Encode(text)
		require.NoError(t, err)
		if !slices.Equal(ids, want[i]) || !equalTokens(tokens, want[i]) {
			if wrong++; wrong <= 3 {
				t.Errorf("%s line %d: %q\n got %v\nwith places %v\nwant %v", set, i, text, ids, tokens, want[i])
			}
		}
		checkPlaces(t, text, tokens)
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d lines differ", set, wrong, len(texts))
	}
}

func equalTokens(a []Token, b []int32) bool {
	return slices.EqualFunc(a, b, func(k Token, id int32) bool { return k.ID == id })
}

// checkPlaces fails for places that do not lie in the text or that cut characters.
func checkPlaces(t *testing.T, text string, tokens []Token) {
	t.Helper()
	for _, k := range tokens {
		ok := k.Start >= 0 && k.Start <= k.End && k.End <= len(text)
		for _, at := range []int{k.Start, k.End} {
			ok = ok && (at == len(text) || text[at]&0xC0 != 0x80)
		}
		if !ok {
			t.Fatalf("token %+v of %q", k, text)
		}
	}
}
