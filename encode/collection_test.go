package encode

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

func again(docs []Text) func(context.Context) iter.Seq2[Text, error] {
	return func(context.Context) iter.Seq2[Text, error] { return Texts(docs...) }
}

// A collection gives what a spool of the same texts has, to the bit, in any part.
func TestCollectionIsItsSpool(t *testing.T) {
	effort.SkipBrief(t, "TestSameBytes has its goroutines")
	e := open(t, nano(t), &Options{Threads: 2})
	few := 4
	if effort.Long() {
		few = 20
	}
	named := append(load(t, "scifact-sample").docs[:few:few], Text{ID: "empty", Payload: []byte("{}")}, Text{ID: "last", Text: "cells, divide!"})
	unnamed := slices.Clone(named)
	for i := range unnamed {
		unnamed[i].ID = ""
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, docs := range [][]Text{named, unnamed} {
		s, _, err := Spool(t.Context(), e, Texts(docs...), "", nil)
		require.NoError(t, err)
		defer s.Close()
		c, err := NewCollection(t.Context(), e, again(docs))
		require.NoError(t, err)
		require.Equal(t, []int{s.Dim(), s.Len()}, []int{c.Dim(), c.Len()})
		require.Equal(t, []int64{s.Tokens(), 1}, []int64{c.Report().Vectors, int64(c.Report().Empty)})
		for i := range docs {
			require.Equal(t, s.Rows(i), c.Rows(i))
			require.Equal(t, s.ID(i), c.ID(i))
		}
		same := func(want, got iter.Seq2[vectors.Document, error]) {
			t.Helper()
			next, stop := iter.Pull2(got)
			defer stop()
			for w, err := range want {
				require.NoError(t, err)
				g, err, ok := next()
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, []string{w.ID, string(w.Payload)}, []string{g.ID, string(g.Payload)})
				require.Equal(t, append([]float32{}, w.Tokens...), append([]float32{}, g.Tokens...))
			}
			_, err, ok := next()
			require.NoError(t, err)
			require.False(t, ok)
		}
		same(s.Docs(t.Context(), 0, len(docs)), c.Docs(t.Context(), 0, len(docs)))
		for range 5 {
			from := rng.IntN(len(docs) + 1)
			to := from + rng.IntN(len(docs)+1-from)
			same(s.Docs(t.Context(), from, to), c.Docs(t.Context(), from, to))
			var rows []int
			for i := range docs {
				if rng.IntN(3) == 0 {
					rows = append(rows, i)
				}
			}
			same(func(yield func(vectors.Document, error) bool) {
				for _, i := range rows {
					for d, err := range s.Docs(t.Context(), i, i+1) {
						if !yield(d, err) {
							return
						}
					}
				}
			}, c.Select(t.Context(), rows))
		}
	}
}

// Texts that are not what they were are an error, and so are those that none can encode.
func TestCollectionNotices(t *testing.T) {
	e := open(t, nano(t), nil)
	now := []Text{{ID: "a", Text: "cells"}, {ID: "b", Text: "divide"}}
	c, err := NewCollection(t.Context(), e, func(context.Context) iter.Seq2[Text, error] { return Texts(now...) })
	require.NoError(t, err)
	before := now
	payload := Text{ID: "b", Text: "divide", Payload: []byte("{}")}
	for name, x := range map[string]struct {
		from  int
		texts []Text
	}{
		"fewer": {0, before[:1]}, "more": {0, append(before[:2:2], Text{ID: "c", Text: "x"})}, "longer": {0, []Text{before[0], {ID: "b", Text: "divide often"}}},
		"another id": {0, []Text{before[0], {ID: "c", Text: "divide"}}}, "as many tokens": {0, []Text{before[0], {ID: "b", Text: "cells"}}},
		"another payload": {0, []Text{before[0], payload}}, "not asked for": {1, []Text{{ID: "a", Text: "divide"}, before[1]}},
	} {
		now = x.texts
		var last error
		for _, err := range c.Docs(t.Context(), x.from, 2) {
			last = err
		}
		require.ErrorIs(t, last, vectors.ErrChanged, name)
	}
	for _, err := range c.Docs(t.Context(), 1, 3) {
		require.ErrorIs(t, err, vectors.ErrShape)
	}
	for want, texts := range map[error][]Text{
		tokenizer.ErrText: {{ID: "a", Text: "x"}, {ID: "b", Text: "\xff"}}, vectors.ErrID: {{ID: "a\n", Text: "x"}},
	} {
		_, err := NewCollection(t.Context(), e, again(texts))
		require.ErrorIs(t, err, want)
	}
	_, err = NewCollection(t.Context(), e, again([]Text{{ID: "a"}, {ID: "a"}}))
	require.ErrorContains(t, err, "text 1 has this id too")
	_, err = NewCollection(t.Context(), open(t, nano(t), &Options{Pool: 2}), again(before))
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
