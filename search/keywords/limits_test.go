package keywords

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// A query of more words than are wanted is refused, and says so.
func TestTooLong(t *testing.T) {
	kw, _ := made(t, Settings{}, texts("red fox")...)
	trigrams, _ := made(t, Settings{Tokenizer: Trigram}, texts("red fox")...)
	many := strings.Repeat("red ", MaxWords)
	for _, x := range []struct {
		kw   *Index
		q    Query
		what string
	}{
		{kw, Query{Text: many + "fox"}, "4096 words"},
		{kw, Query{Text: `"` + many + `fox"`, Mode: Expression}, "4096 words"},
		{kw, Query{Text: strings.Repeat("red* ", MaxWords) + "-fox", Mode: Expression}, "4096 words"},
		{kw, Query{Text: many + `"red fox"`, Mode: Expression}, "4096 words"},
		{kw, Query{Text: strings.Repeat(" ", MaxQueryBytes) + "x"}, "262144 bytes"},
		{trigrams, Query{Text: strings.Repeat("foxes ", MaxWords/2+1)}, "4096 words"},
	} {
		x.q.K = 1
		_, err := x.kw.Search(context.Background(), x.q)
		require.ErrorIs(t, err, ErrTooLong)
		require.ErrorContains(t, err, x.what)
	}
	require.Len(t, search1(t, kw, Query{Text: many}), 1)
}

// long is documents with the words of long phrases.
func long(t *testing.T) (kw *Index, docs int) {
	var payloads [][]byte
	docs = effort.Cases(1000, 4000)
	for i := range docs {
		payloads = append(payloads, fmt.Appendf(nil, "red fox red fox %d", i%7))
	}
	kw, _ = made(t, Settings{}, payloads...)
	return kw, docs
}

func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The words of a phrase are read once each, however often they are in it, and the lists
// of all are not in memory.
func TestLongPhrases(t *testing.T) {
	kw, _ := long(t)
	one := Query{Text: `"red fox"`, Mode: Expression, K: 10}
	search1(t, kw, one) // tables of documents are read
	once := allocated(func() { search1(t, kw, one) })
	q := Query{Text: `"` + strings.Repeat("red fox ", MaxWords/2) + `"`, Mode: Expression, K: 10}
	var hits []ScoredDocument
	require.Less(t, allocated(func() { hits = search1(t, kw, q) }), once+8<<20)
	require.Empty(t, hits)
	q.Text = `"` + strings.Repeat("red fox ", 2) + `"`
	require.Len(t, search1(t, kw, q), 10)
}

// A search looks at its context for every so many documents and places that it goes over,
// and ends whenever that does.
func TestSearchesEndWithTheirContext(t *testing.T) {
	kw, docs := long(t)
	before := stepsPerCheck
	defer func() { stepsPerCheck = before }()
	stepsPerCheck = 100
	for _, x := range []struct {
		text  string
		steps int // at least
	}{
		{"red", docs},
		{"re* f*", 4 * docs},
		{`"red fox red"`, 3 * docs},
		{`"fox fox"`, 2 * docs},
		{`+"red fox" -"fox red"`, 4 * docs},
	} {
		q := Query{Text: x.text, Mode: Expression, K: 1}
		ended := false
		looks := 0
		for ; !ended; looks++ {
			require.Less(t, looks, 10_000)
			_, err := kw.Search(countdown.New(looks), q)
			if ended = err == nil; !ended {
				require.ErrorIs(t, err, context.Canceled, x.text)
			}
		}
		require.GreaterOrEqual(t, looks, x.steps/(stepsPerCheck+maxBlockDocs), x.text)
	}
}

// A Sync looks at its context for each document, however long these are.
func TestSyncEndsWithItsContext(t *testing.T) {
	var payloads [][]byte
	for i := range 60 {
		payloads = append(payloads, fmt.Appendf(nil, "%s %d", strings.Repeat("red fox ", 100), i))
	}
	ix := build(t, filepath.Join(t.TempDir(), "x.plaid"), payloads...)
	kw := open(t, Path(ix.Path()), nil)
	s := openSnapshot(t, ix)
	defer s.Close()
	require.ErrorIs(t, kw.Sync(countdown.New(30), s), context.Canceled)
	ctx := countdown.New(math.MaxInt)
	require.NoError(t, kw.Sync(ctx, s))
	require.Greater(t, math.MaxInt-ctx.Remaining(), 60)
}
