package encode

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSameBytes: the bits of a text's vectors depend on nothing but the text and
// the model: not on threads, chunks, order or company.
func TestSameBytes(t *testing.T) {
	c := load(t, "scifact-sample")
	c.docs = append(c.docs[:8:8], Text{ID: "empty"}, Text{ID: "short", Text: "cells"})
	bits := func(x []float32) []uint32 {
		b := make([]uint32, len(x))
		for i, v := range x {
			b[i] = math.Float32bits(v)
		}
		return b
	}
	for _, p := range []Precision{F32, Int8} {
		want := map[string][]uint32{}
		for _, k := range []struct {
			threads, chunk int
			backwards      bool
		}{{1, 1500, false}, {1, 1, false}, {2, 100, true}, {3, 500, false}, {2, 1500, true}} {
			e := open(t, nano(t), &Options{Precision: p, Threads: k.threads})
			docs := slices.Clone(c.docs)
			if k.backwards {
				slices.Reverse(docs)
			}
			i := 0
			for doc, err := range chunked(e, k.chunk).Documents(t.Context(), Texts(docs...)) {
				require.NoError(t, err)
				require.Equal(t, docs[i].ID, doc.ID)
				i++
				if len(want) < len(docs) {
					want[doc.ID] = bits(doc.Tokens)
				}
				require.True(t, slices.Equal(want[doc.ID], bits(doc.Tokens)), "%v %+v %s", p, k, doc.ID)
			}
			require.Equal(t, len(docs), i)
			q, err := e.Query(t.Context(), c.queries[0].Text)
			require.NoError(t, err)
			if want["query"] == nil {
				want["query"] = bits(q.Vectors)
			}
			require.Equal(t, want["query"], bits(q.Vectors))
		}
	}
}
