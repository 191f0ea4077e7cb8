package keywords

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
)

// world is an index, its keywords, and what must be in them.
type world struct {
	t    *rapid.T
	path string
	ix   *index.Index
	kw   *Index
	next int // id
	docs map[int]oracleDoc
	seen uint32 // ordinals given out
}

func (w *world) payloads(n int) (payloads [][]byte, words [][]string) {
	for i := range n {
		ws := drawWords(w.t, fmt.Sprint("words", i), 12)
		switch {
		case len(ws) == 0:
			payloads = append(payloads, nil)
		case rapid.Bool().Draw(w.t, "JSON"):
			payloads = append(payloads, fmt.Appendf(nil, `{"text": %q}`, strings.Join(ws, " ")))
		default:
			payloads = append(payloads, []byte(strings.Join(ws, " — ")))
		}
		words = append(words, ws)
	}
	return payloads, words
}

func (w *world) build() {
	n := rapid.IntRange(1, 12).Draw(w.t, "documents")
	payloads, words := w.payloads(n)
	if w.ix != nil {
		require.NoError(w.t, w.ix.Close())
	}
	_, err := index.Build(context.Background(), w.path, documents(w.t, 0, payloads...), &index.BuildOptions{Centroids: 1, Iterations: 1, Force: true, Threads: 1})
	require.NoError(w.t, err)
	w.open()
	w.docs, w.next, w.seen = map[int]oracleDoc{}, n, uint32(n)
	for i, ws := range words {
		w.docs[i] = oracleDoc{uint32(i), ws}
	}
}

func (w *world) open() {
	var err error
	w.ix, err = index.Open(context.Background(), w.path, &index.Options{Write: true})
	require.NoError(w.t, err)
}

func (w *world) put(first, n int, replace bool) {
	payloads, words := w.payloads(n)
	_, err := w.ix.Add(context.Background(), documents(w.t, first, payloads...), &index.AddOptions{Replace: replace})
	require.NoError(w.t, err)
	for i, ws := range words {
		w.docs[first+i] = oracleDoc{w.seen, ws}
		w.seen++
	}
	w.next = max(w.next, first+n)
}

func (w *world) check() {
	syncWith(w.t, w.kw, w.ix)
	var docs []oracleDoc
	for _, d := range w.docs {
		docs = append(docs, d)
	}
	text, parts := drawParts(w.t)
	p := BM25{K1: rapid.Float64Range(0, 2).Draw(w.t, "k1"), B: rapid.Float64Range(0, 1).Draw(w.t, "b")}
	k := rapid.IntRange(1, 10).Draw(w.t, "k")
	var filter *roaring.Bitmap
	if rapid.Bool().Draw(w.t, "filtered") {
		filter = roaring.New()
		for o := range w.seen + 2 {
			if rapid.Bool().Draw(w.t, "in") {
				filter.Add(o)
			}
		}
	}
	sameHits(w.t, oracle(docs, parts, p, filter, k), search1(w.t, w.kw, Query{Text: text, Mode: Expression, K: k, Filter: filter, BM25: &p}))
}

// Whatever happens to the index, and whichever way the keywords hear of it, they find
// what the definition says.
func TestRandomChanges(t *testing.T) {
	dir := ramDir(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		if n++; n > 20 && testing.Short() {
			return
		}
		w := &world{t: t, path: filepath.Join(dir, fmt.Sprintf("%d.plaid", n))}
		memory := int64(rapid.SampledFrom([]int{1, 3000, DefaultMemory}).Draw(t, "memory"))
		write := rapid.Bool().Draw(t, "write")
		open := func() {
			var err error
			w.kw, err = Open(context.Background(), Path(w.path), &Options{Write: write, Memory: memory})
			require.NoError(t, err)
		}
		w.build()
		open()
		defer func() {
			require.NoError(t, w.kw.Close())
			require.NoError(t, w.ix.Close())
			for _, f := range []string{w.path, Path(w.path)} {
				require.NoError(t, os.RemoveAll(f))
			}
		}()
		w.check()
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) { w.t = t; w.put(w.next, rapid.IntRange(1, 6).Draw(t, "n"), false) },
			"replace": func(t *rapid.T) {
				w.t = t
				first := rapid.IntRange(0, w.next-1).Draw(t, "first")
				w.put(first, rapid.IntRange(1, w.next-first).Draw(t, "n"), true)
			},
			"delete": func(t *rapid.T) {
				w.t = t
				var ids []string
				for i := range w.next {
					if _, ok := w.docs[i]; ok && rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
						ids = append(ids, fmt.Sprintf("d%d", i))
						delete(w.docs, i)
					}
				}
				_, _, err := w.ix.Delete(context.Background(), ids)
				require.NoError(t, err)
			},
			"update": func(t *rapid.T) {
				w.t = t
				set := map[string][]byte{}
				for i := range w.next {
					d, ok := w.docs[i]
					if !ok || rapid.IntRange(0, 2).Draw(t, "update") > 0 {
						continue
					}
					payload, words := w.payloads(1)
					d.words = words[0]
					w.docs[i], set[fmt.Sprintf("d%d", i)] = d, payload[0]
				}
				_, _, err := w.ix.SetPayload(context.Background(), set)
				require.NoError(t, err)
			},
			"compact": func(t *rapid.T) {
				w.t = t
				err := w.ix.Compact(context.Background(), nil)
				require.NoError(t, err)
			},
			"retrain": func(t *rapid.T) {
				w.t = t
				_, err := w.ix.Retrain(context.Background(), nil)
				if !errors.Is(err, index.ErrNoTokens) {
					require.NoError(t, err)
				}
			},
			"reopen the index": func(t *rapid.T) { w.t = t; require.NoError(t, w.ix.Close()); w.open() },
			"reopen the keywords": func(t *rapid.T) {
				w.t = t
				require.NoError(t, w.kw.Close())
				open()
			},
			"another index": func(t *rapid.T) { w.t = t; w.build() },
			"no file": func(t *rapid.T) {
				w.t = t
				require.NoError(t, w.kw.Close())
				require.NoError(t, os.RemoveAll(Path(w.path)))
				open()
			},
			"search": func(t *rapid.T) { w.t = t; w.check() },
		})
		w.t = t
		w.check()
	})
}
