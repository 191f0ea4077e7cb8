package keywords

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// children are what the test binary does when a test runs it as a process of its
// own, by the name in the environment.
var children = map[string]func() error{}

const childVariable = "PLAID_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childVariable); name != "" {
		if err := children[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ramDir is a folder for tests that commit often: in memory, where there is one.
func ramDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "plaid-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// documents makes documents with ids from first on, which differ in their payloads; nil is
// none.
func documents(t require.TestingT, first int, payloads ...[]byte) vectors.Source {
	docs := make([]vectors.Document, len(payloads))
	for i, p := range payloads {
		docs[i] = vectors.Document{ID: fmt.Sprintf("d%d", first+i), Tokens: []float32{1, float32(i%7) / 7}, Payload: p}
	}
	src, err := vectors.FromDocuments(2, docs)
	require.NoError(t, err)
	return src
}

func texts(s ...string) [][]byte {
	b := make([][]byte, len(s))
	for i := range s {
		b[i] = []byte(s[i])
	}
	return b
}

// build makes an index of payloads and opens it for writing.
func build(t testing.TB, path string, payloads ...[]byte) *index.Index {
	_, err := index.Build(context.Background(), path, documents(t, 0, payloads...), &index.BuildOptions{Centroids: 1, Iterations: 1, Force: true, Threads: 1})
	require.NoError(t, err)
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	return ix
}

func snapshot(t require.TestingT, ix *index.Index) *index.Snapshot {
	s, err := ix.Snapshot()
	require.NoError(t, err)
	return s
}

func syncWith(t require.TestingT, kw *Index, ix *index.Index) {
	s := snapshot(t, ix)
	defer s.Close()
	require.NoError(t, kw.Sync(context.Background(), s))
}

func open(t testing.TB, path string, o *Options) *Index {
	kw, err := Open(context.Background(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kw.Close()) })
	return kw
}

// made is an index of payloads with its keywords.
func made(t testing.TB, s Settings, payloads ...[]byte) (*Index, *index.Index) {
	path := filepath.Join(ramDir(t), "docs.plaid")
	ix := build(t, path, payloads...)
	kw := open(t, Path(path), &Options{Settings: &s, Write: true})
	syncWith(t, kw, ix)
	return kw, ix
}

func search1(t require.TestingT, kw *Index, q Query) []Hit {
	if q.K == 0 {
		q.K = 1000
	}
	hits, err := kw.Search(context.Background(), q)
	require.NoError(t, err)
	return hits
}

func ordinals(hits []Hit) []uint32 {
	o := []uint32{}
	for _, h := range hits {
		o = append(o, h.Ordinal)
	}
	return o
}

// The oracle: the definition, over words of ASCII letters with blanks between.

type oracleDoc struct {
	ordinal uint32
	words   []string
}

// counter says how often something is in a document.
type counter func(words []string) int

func wordCount(w string) counter {
	return func(words []string) (n int) {
		for _, x := range words {
			if x == w {
				n++
			}
		}
		return n
	}
}

func prefixCount(p string) counter {
	return func(words []string) (n int) {
		for _, x := range words {
			if strings.HasPrefix(x, p) {
				n++
			}
		}
		return n
	}
}

func phraseCount(p []string) counter {
	return func(words []string) (n int) {
		for i := 0; i+len(p) <= len(words); i++ {
			if slices.Equal(words[i:i+len(p)], p) {
				n++
			}
		}
		return n
	}
}

// part is a part of a query: how it is written, and what it means.
type part struct {
	text  string
	count counter
	occur occur
}

// oracle is the definition of the score, in the plainest way.
func oracle(docs []oracleDoc, parts []part, p BM25, filter *roaring.Bitmap, k int) []Hit {
	n, total := 0, 0
	for _, d := range docs {
		if len(d.words) > 0 {
			n++
			total += len(d.words)
		}
	}
	avg := float64(total) / float64(n)
	df := make([]int, len(parts))
	for _, d := range docs {
		for i, q := range parts {
			if q.count(d.words) > 0 {
				df[i]++
			}
		}
	}
	var hits []Hit
	for _, d := range docs {
		score, out := 0.0, filter != nil && !filter.Contains(d.ordinal)
		for i, q := range parts {
			tf := float64(q.count(d.words))
			switch {
			case q.occur == mustNot:
				out = out || tf > 0
				continue
			case q.occur == must && tf == 0:
				out = true
			}
			if tf > 0 {
				idf := math.Log(1 + (float64(n)-float64(df[i])+.5)/(float64(df[i])+.5))
				score += idf * tf / (tf + p.K1*(1-p.B+p.B*float64(len(d.words))/avg))
			}
		}
		if score > 0 && !out {
			hits = append(hits, Hit{d.ordinal, float32(score)})
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}
		return int(a.Ordinal) - int(b.Ordinal)
	})
	return hits[:min(k, len(hits))]
}

// sameHits compares rankings; scores may differ in their last digits, and only
// documents of nearly the same score may have changed places.
func sameHits(t require.TestingT, want, got []Hit) {
	require.Len(t, got, len(want))
	for i := range want {
		require.InEpsilon(t, want[i].Score, got[i].Score, 1e-5, "place %d: %v %v", i, want, got)
		if want[i].Ordinal != got[i].Ordinal {
			near := func(j int) bool {
				return j >= 0 && j < len(want) && math.Abs(float64(want[i].Score-want[j].Score)) <= 1e-5*float64(want[i].Score)
			}
			require.True(t, near(i-1) || near(i+1) || i == len(want)-1, "place %d: %v %v", i, want, got)
		}
		if i > 0 {
			require.True(t, got[i-1].Score > got[i].Score || got[i-1].Score == got[i].Score && got[i-1].Ordinal < got[i].Ordinal, "order: %v", got)
		}
	}
}

var vocabulary = []string{"a", "ab", "abc", "abd", "b", "ba", "bab", "c", "cab", "dab"}

func drawWords(t *rapid.T, label string, most int) []string {
	return rapid.SliceOfN(rapid.SampledFrom(vocabulary), 0, most).Draw(t, label)
}

func drawParts(t *rapid.T) (text string, parts []part) {
	known := map[string]bool{}
	for range rapid.IntRange(1, 4).Draw(t, "parts") {
		var p part
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			w := rapid.SampledFrom(vocabulary).Draw(t, "word")
			p = part{text: w, count: wordCount(w)}
		case 1:
			w := rapid.SampledFrom(vocabulary).Draw(t, "prefix")
			p = part{text: w + "*", count: prefixCount(w)}
		default:
			ws := rapid.SliceOfN(rapid.SampledFrom(vocabulary), 1, 3).Draw(t, "phrase")
			p = part{text: `"` + strings.Join(ws, " ") + `"`, count: phraseCount(ws)}
		}
		p.occur = occur(rapid.IntRange(0, 2).Draw(t, "occur"))
		if len(parts) == 0 && p.occur == mustNot {
			p.occur = may // something has to be found
		}
		p.text = []string{"", "+", "-"}[p.occur] + p.text
		if known[p.text] { // that is one part with a weight: another test
			continue
		}
		known[p.text] = true
		parts = append(parts, p)
		text += " " + p.text
	}
	return text, parts
}
