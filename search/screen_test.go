package search

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
	"github.com/plaid-ir/plaid/vectors"
)

// manyCentroids is a codec with so many that S is screened: tokens of documents with
// noise.
func manyCentroids(t *testing.T, docs []vectors.Document, dim int) *codec.Quantizer {
	t.Helper()
	const k = 1<<16 + 77
	rng := rand.New(rand.NewPCG(9, 9))
	rows := kerneltest.UnitVectors(rng, k, dim)
	for c := range k {
		tokens := docs[c%len(docs)].Tokens
		if len(tokens) == 0 {
			continue
		}
		from := rng.IntN(len(tokens)/dim) * dim
		for j := range dim {
			rows[c*dim+j] = 0.3*rows[c*dim+j] + tokens[from+j]
		}
	}
	codec.Normalize(rows, dim)
	c, err := codec.New(kernels.Codec{
		Centroids: kernels.Centroids{K: k, Dim: dim, Type: kernels.BF16, Data: kerneltest.EncodeCentroids(rows, kernels.BF16)},
		Codebook:  kernels.Codebook{Nbits: 2, Step: 0.1}, FactorMax: 2,
	})
	require.NoError(t, err)
	return c
}

// With many centroids a search computes of S what it needs: it finds what one
// does that has all of S, and scores as a search of all documents does, to the bit, on every tier, with any number of
// threads and over several indexes.
func TestManyCentroids(t *testing.T) {
	const dim = 16
	m := newMaker(31, dim, 60)
	docs := m.Docs("d", 1200, 9)
	path := filepath.Join(t.TempDir(), "whole.plaid")
	_, err := index.Build(t.Context(), path, searchtest.Source(t, dim, docs), &index.BuildOptions{Codec: manyCentroids(t, docs, dim)})
	require.NoError(t, err)
	report, err := cpu.Describe("")
	require.NoError(t, err)
	var engines []*Engine
	for i, tier := range report.Tiers {
		ix, err := index.Open(t.Context(), path, &index.Options{Backend: tier})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ix.Close()) })
		engines = append(engines, on(t, ix, 1+2*(i%2)))
	}
	several := multi(t, sharded(t, engines[0].ix, docs, 2, false), 2)
	few := Only(docs[3].ID, docs[4].ID, docs[700].ID)
	found, wanted := 0, 0
	for range 6 {
		q := m.query(8)
		all := search(t, engines[0], q, Options{K: 1200, Mode: Exhaustive})
		scores := map[string]float32{}
		for _, h := range all.Hits {
			scores[h.ID] = h.Score
		}
		probing, plain := Options{K: 10, Probes: insertProbes, Approx: 200}, Options{K: 10, Probes: insertProbes + 1, Approx: 200}
		first := search(t, engines[0], q, probing)
		require.Equal(t, map[string]int{"probe": 1}, first.Stats.Plans)
		for _, e := range engines {
			require.Equal(t, first.Hits, search(t, e, q, probing).Hits)
			res := search(t, e, q, Options{K: 10, Filter: few})
			require.Equal(t, map[string]int{"exact": 1}, res.Stats.Plans)
			require.Len(t, res.Hits, 3)
			for _, h := range res.Hits {
				require.Equal(t, scores[h.ID], h.Score)
			}
		}
		for _, h := range first.Hits {
			require.Equal(t, scores[h.ID], h.Score)
		}
		res, err := several.Search(t.Context(), q, probing)
		require.NoError(t, err)
		require.Equal(t, ids(first.Hits), ids(res.Hits))
		found, wanted = found+overlap(search(t, engines[0], q, plain).Hits, first.Hits), wanted+10
		stage, err := engines[0].Trace(context.Background(), q, first.Hits[0].ID, probing)
		require.NoError(t, err)
		require.Equal(t, StageReturned, stage)
	}
	require.GreaterOrEqual(t, float64(found), 0.9*float64(wanted), "of what is found with all of S")
}

// A document of many passages is scored by all of them, also by those that the search has
// not scored, whose rows of S are not there yet.
func TestManyCentroidsOfPassages(t *testing.T) {
	const dim = 16
	m := newMaker(33, dim, 60)
	docs := m.Docs("d", 1200, 9)
	for i := range docs {
		p := vectors.Passage{Of: fmt.Sprint("w", i/40), Number: i % 40, Start: i, End: i + 1}
		payload, err := p.Payload(nil)
		require.NoError(t, err)
		docs[i].ID, docs[i].Payload = p.ID(), payload
	}
	path := filepath.Join(t.TempDir(), "passages.plaid")
	_, err := index.Build(t.Context(), path, searchtest.Source(t, dim, docs), &index.BuildOptions{Codec: manyCentroids(t, docs, dim)})
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	q := m.query(8)
	for _, group := range []Grouping{GroupBest, GroupSum, GroupMaxSim} {
		// Engines of their own, whose buffers have nothing of another search.
		all := search(t, on(t, ix, 1), q, Options{K: 30, Mode: Exhaustive, Group: group, Passages: 5, Matches: true})
		want := map[string]Hit{}
		for _, h := range all.Hits {
			want[h.ID] = h
		}
		res := search(t, on(t, ix, 2), q, Options{K: 3, Probes: 2, Approx: 200, Group: group, Passages: 5, Matches: true})
		require.Contains(t, res.Stats.Plans, "probe")
		require.Len(t, res.Hits, 3)
		for _, h := range res.Hits {
			require.Equal(t, want[h.ID].Score, h.Score, group)
			require.Equal(t, want[h.ID].Passages, h.Passages, group)
		}
	}
}
