package keywords

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/storage"
)

// smallLimits has every branch met by a few documents, until the test ends.
func smallLimits(t *testing.T) {
	set := func(v *int, to int) {
		before := *v
		*v = to
		t.Cleanup(func() { *v = before })
	}
	set(&blockDocs, 3)
	set(&blockBytes, 3)
	set(&inlineBytes, 3)
	set(&maxStems, 3)
	set(&maxKeptBytes, 3)
	set(&stepsPerCheck, 3)
	set(&pageSize, 1024) // the least that bbolt reads
	before := segmentMerges
	segmentMerges = storage.MergePolicy{Largest: 3000, Full: 3000} // a segment of a document has some 300
	t.Cleanup(func() { segmentMerges = before })
}

// world is an index, its keywords, and what must be in them.
type world struct {
	t       *rapid.T
	path    string
	options Options
	ix      *index.Index
	next    int    // id
	seen    uint32 // ordinals given out
	docs    map[int]worldDoc

	kw *Index
	showing
	beside showing // the file next to the index
	bytes  []byte  // of that file, if it was opened to be read
	// other is another reader, as another process may have one; nil: there is none.
	other *Index
}

// showing is what keywords show.
type showing struct {
	settings Settings    // or the usual ones
	shown    []oracleDoc // nil: nothing
}

// worldDoc is a document as the index has it.
type worldDoc struct {
	ordinal      uint32
	title, texts []string // words of the field, and of what is below another one; title is nil for plain text
	plain        []string
}

func (w *world) drawPayloads(n int) (payloads [][]byte, docs []worldDoc) {
	for range n {
		var d worldDoc
		var payload []byte
		switch rapid.IntRange(0, 3).Draw(w.t, "payload") {
		case 0: // none
		case 1:
			d.plain = drawWords(w.t, "plain", 12)
			payload = []byte(strings.Join(append(d.plain, "—"), " — "))
		default:
			d.title, d.texts = drawWords(w.t, "title", 4), drawWords(w.t, "texts", 12)
			var err error
			payload, err = json.Marshal(map[string]any{"title": strings.Join(d.title, " "), "body": map[string]any{"text": []any{strings.Join(d.texts, "; "), nil}}})
			require.NoError(w.t, err)
		}
		payloads, docs = append(payloads, payload), append(docs, d)
	}
	return payloads, docs
}

// meant is what is to be found of the documents now.
func (w *world) meant() []oracleDoc {
	meant, language := []oracleDoc{}, language(w.settings)
	for _, d := range w.docs {
		values := [][]string{language.terms(d.texts), language.terms(d.title)}
		switch {
		case d.plain != nil:
			values = [][]string{language.terms(d.plain)}
		case w.settings.Fields != nil:
			values = values[:1]
		}
		meant = append(meant, oracleDoc{d.ordinal, values})
	}
	return meant
}

func (w *world) build() {
	n := rapid.IntRange(1, 12).Draw(w.t, "documents")
	payloads, docs := w.drawPayloads(n)
	if w.ix != nil {
		require.NoError(w.t, w.ix.Close())
	}
	_, err := index.Build(context.Background(), w.path, documents(w.t, 0, payloads...), &index.BuildOptions{Centroids: 1, Iterations: 1, Force: true, Threads: 1})
	require.NoError(w.t, err)
	w.openIndex()
	w.docs, w.next, w.seen = map[int]worldDoc{}, n, uint32(n)
	for i, d := range docs {
		d.ordinal = uint32(i)
		w.docs[i] = d
	}
}

func (w *world) openIndex() {
	var err error
	w.ix, err = index.Open(context.Background(), w.path, &index.Options{Write: true})
	require.NoError(w.t, err)
}

// openKeywords opens them, to write or to read, with other settings at times.
func (w *world) openKeywords() {
	w.closeKeywords()
	o := w.options
	o.Write = rapid.Bool().Draw(w.t, "write")
	w.showing = w.beside
	w.bytes, _ = os.ReadFile(Path(w.path))
	if rapid.IntRange(0, 3).Draw(w.t, "settings") == 0 {
		o.Settings = &Settings{Tokenizer: Unicode61}
		if rapid.Bool().Draw(w.t, "English") {
			o.Settings.Stemmer, o.Settings.StopWords = English, English
		}
		if rapid.Bool().Draw(w.t, "fields") {
			o.Settings.Fields = []string{"body.text"}
		}
	}
	var err error
	w.kw, err = Open(context.Background(), Path(w.path), &o)
	require.NoError(w.t, err)
}

// closeKeywords closes them. Whoever only read has written nothing.
func (w *world) closeKeywords() {
	w.stopOther()
	if w.kw == nil {
		return
	}
	require.NoError(w.t, w.kw.Close())
	if !w.kw.options.Write {
		now, _ := os.ReadFile(Path(w.path))
		require.Equal(w.t, w.bytes, now)
	}
	w.kw = nil
}

func (w *world) stopOther() {
	if w.other != nil {
		require.NoError(w.t, w.other.Close())
		w.other = nil
	}
}

func (w *world) put(first, n int, replace bool) {
	payloads, docs := w.drawPayloads(n)
	_, err := w.ix.Add(context.Background(), documents(w.t, first, payloads...), &index.AddOptions{Replace: replace})
	require.NoError(w.t, err)
	for i, d := range docs {
		d.ordinal = w.seen
		w.docs[first+i] = d
		w.seen++
	}
	w.next = max(w.next, first+n)
}

// sync brings the keywords up to the index, or fails; then they show what they did before.
func (w *world) sync(ctx context.Context) error {
	s := openSnapshot(w.t, w.ix)
	defer s.Close()
	err := w.kw.Sync(ctx, s)
	if err == nil {
		if asked := w.kw.options.Settings; asked != nil {
			w.settings = *asked
		}
		w.shown = w.meant()
		w.wrote()
	}
	return err
}

// wrote notes the state that the file next to the index shows.
func (w *world) wrote() {
	if w.kw.options.Write {
		w.beside = w.showing
	}
}

func (w *world) syncNow() { require.NoError(w.t, w.sync(context.Background())) }

// check searches what the keywords show; damage, where there may be some, may be found.
func (w *world) check(damaged bool) {
	text, parts := language(w.settings).drawQuery(w.t)
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
	q := Query{Text: text, Mode: Expression, K: k, Filter: filter, BM25: &p}
	hits, err := w.kw.Search(context.Background(), q)
	if damaged && errors.Is(err, ErrDamaged) {
		return
	}
	if asked := w.kw.options.Settings; w.shown == nil || asked != nil && !asked.equalTo(w.settings) {
		require.ErrorIs(w.t, err, ErrNotSynced)
		return
	}
	require.NoError(w.t, err)
	if hits == nil {
		hits = []ScoredDocument{}
	}
	require.Equal(w.t, oracle(w.t, w.shown, parts, p, filter, k), hits, "%s", text)
}

// Whatever happens to the index and to the keywords, and whichever way these hear of it,
// they find what the definition says, rank by rank and bit by bit. The long form, of
// 100,000 steps:
//
//	go test ./search/keywords -run TestRandomChanges -rapid.checks=2000 -rapid.steps=50 -timeout 0
func TestRandomChanges(t *testing.T) {
	smallLimits(t)
	dir := ramDir(t)
	n := 0
	met := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		n++
		w := &world{t: t, path: filepath.Join(dir, fmt.Sprintf("%d.plaid", n)), beside: showing{settings: Settings{Tokenizer: Unicode61}}}
		w.options.Memory = int64(rapid.SampledFrom([]int{1, 3000, defaultMemory}).Draw(t, "memory"))
		w.build()
		w.openKeywords()
		defer func() {
			beforeCommit = nil
			w.closeKeywords()
			require.NoError(t, w.ix.Close())
			for _, f := range []string{w.path, Path(w.path)} {
				require.NoError(t, os.RemoveAll(f))
			}
		}()
		steps := w.steps(met)
		for name, step := range steps {
			steps[name] = func(t *rapid.T) {
				w.t = t
				met[name]++
				step(t)
				w.check(false)
			}
		}
		t.Repeat(steps)
		w.t = t
		w.stopOther()
		w.syncNow()
		w.check(false)
	})
	t.Log(met)
}

// steps are what may happen. Each is followed by a search.
func (w *world) steps(met map[string]int) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"add": func(t *rapid.T) { w.put(w.next, rapid.IntRange(1, 6).Draw(t, "n"), false) },
		"replace": func(t *rapid.T) {
			first := rapid.IntRange(0, w.next-1).Draw(t, "first")
			w.put(first, rapid.IntRange(1, min(6, w.next-first)).Draw(t, "n"), true)
		},
		"delete": func(t *rapid.T) {
			var ids []string
			for _, i := range slices.Sorted(maps.Keys(w.docs)) {
				if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
					ids = append(ids, fmt.Sprintf("d%d", i))
					delete(w.docs, i)
				}
			}
			_, _, err := w.ix.Delete(context.Background(), ids)
			require.NoError(t, err)
		},
		"update": func(t *rapid.T) {
			set := map[string][]byte{}
			for _, i := range slices.Sorted(maps.Keys(w.docs)) {
				if rapid.IntRange(0, 3).Draw(t, "update") > 0 {
					continue
				}
				payloads, docs := w.drawPayloads(1)
				docs[0].ordinal = w.docs[i].ordinal
				w.docs[i], set[fmt.Sprintf("d%d", i)] = docs[0], payloads[0]
			}
			_, _, err := w.ix.SetPayload(context.Background(), set)
			require.NoError(t, err)
		},
		"compact": func(t *rapid.T) { require.NoError(t, w.ix.Compact(context.Background(), nil)) },
		"retrain": func(t *rapid.T) {
			_, err := w.ix.Retrain(context.Background(), nil)
			if !errors.Is(err, index.ErrNoTokens) {
				require.NoError(t, err)
			}
		},
		"reopen the index":    func(*rapid.T) { require.NoError(w.t, w.ix.Close()); w.openIndex() },
		"another index":       func(*rapid.T) { w.build() },
		"reopen the keywords": func(*rapid.T) { w.openKeywords() },
		"no file": func(t *rapid.T) {
			w.closeKeywords()
			require.NoError(t, os.RemoveAll(Path(w.path)))
			w.beside = showing{settings: Settings{Tokenizer: Unicode61}}
			w.openKeywords()
		},
		"sync":        func(*rapid.T) { w.syncNow() },
		"sync, again": func(*rapid.T) { w.syncNow() },
		"sync that ends": func(t *rapid.T) {
			err := w.sync(countdown.New(rapid.IntRange(0, 60).Draw(t, "looks")))
			if errors.Is(err, context.Canceled) {
				met["that ended"]++
				return
			}
			require.NoError(t, err)
		},
		"sync that fails": func(t *rapid.T) {
			left := rapid.IntRange(0, 4).Draw(t, "commits")
			failed := errors.New("the disk is full")
			beforeCommit = func() error {
				if left--; left < 0 {
					return failed
				}
				return nil
			}
			err := w.sync(context.Background())
			beforeCommit = nil
			if errors.Is(err, failed) {
				met["that failed"]++
				return
			}
			require.NoError(t, err)
		},
		"another reader": func(t *rapid.T) {
			if w.other != nil {
				w.stopOther()
				return
			}
			var err error
			w.other, err = Open(context.Background(), Path(w.path), nil)
			if w.kw.options.Write && errors.Is(err, storage.ErrLocked) {
				met["locked out"]++
				return
			}
			require.NoError(t, err)
		},
		"a flipped bit": func(t *rapid.T) {
			w.closeKeywords()
			at := rapid.IntRange(0, 1<<30).Draw(t, "at")
			flipped := flip(t, Path(w.path), at)
			w.openKeywords()
			if !flipped {
				return
			}
			w.mend()
			if !w.kw.options.Write { // the file is as it was
				w.closeKeywords()
				flip(t, Path(w.path), at)
				w.openKeywords()
			}
		},
	}
}

// mend syncs until no list is damaged. The settings may have been lost.
func (w *world) mend() {
	w.syncNow()
	info, err := w.kw.Info()
	require.NoError(w.t, err)
	if !info.Settings.equalTo(w.settings) {
		require.Equal(w.t, Settings{Tokenizer: Unicode61}, info.Settings)
		w.settings = info.Settings
		w.shown = w.meant()
		w.wrote()
	}
	w.check(true)
	for i := 0; ; i++ {
		require.Less(w.t, i, 3)
		err := w.kw.withSnapshot(readAll)
		if err == nil {
			return
		}
		require.ErrorIs(w.t, err, ErrDamaged)
		w.syncNow()
	}
}

// flip flips a bit of a file, and tells whether there is one.
func flip(t require.TestingT, path string, bit int) bool {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) || len(b) == 0 {
		return false
	}
	require.NoError(t, err)
	bit %= 8 * len(b)
	b[bit/8] ^= 1 << (bit % 8)
	require.NoError(t, os.WriteFile(path, b, 0o666))
	return true
}

// Scores are above 0, and the best document comes first, also by statistics of a moment at which
// the index had fewer documents, or of none.
func TestStatisticsOfAnotherMoment(t *testing.T) {
	ctx := t.Context()
	kw, ix := made(t, Settings{}, texts("owl")...)
	q := Query{Text: "owl fish", K: 10}
	before, err := kw.Statistics(ctx, q)
	require.NoError(t, err)
	_, err = ix.Add(ctx, documents(t, 1, texts("owl", "owl", "owl", "owl fish")...), nil)
	require.NoError(t, err)
	syncWith(t, kw, ix)
	now, err := kw.Statistics(ctx, q)
	require.NoError(t, err)
	more := Statistics{Docs: 2, Tokens: 2, Found: []int{7, 9}} // than there were documents
	for _, st := range []*Statistics{&before, &now, &more, {Found: make([]int, 2)}, {Docs: -9, Found: []int{-5, -1}}} {
		hits, err := kw.Search(ctx, Query{Text: q.Text, K: q.K, Statistics: st})
		require.NoError(t, err)
		require.Len(t, hits, 5)
		require.EqualValues(t, 4, hits[0].Ordinal, "%+v", st)
		for _, h := range hits {
			require.Positive(t, h.Score, "%+v", st)
		}
	}
}
