package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPackedLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 127, 128, 129, 1000} {
		for _, gap := range []int{1, 2, 3000} {
			var docs []uint32
			next := uint32(rng.IntN(gap))
			for range n {
				docs = append(docs, next)
				next += 1 + uint32(rng.IntN(gap))
			}
			last := docs[n-1]
			got, err := unpackList(nil, packList(docs), last+1)
			require.NoError(t, err)
			require.Equal(t, docs, got)
			_, err = unpackList(nil, packList(docs), last)
			require.ErrorIs(t, err, errPacked)
			require.GreaterOrEqual(t, float64(eliasFano(n, int(last)+1)), choose(int(last)+1, n))
		}
	}
}
