package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage/objects"
)

// BenchmarkChange measures a single change, over a store that takes no time and over a folder.
func BenchmarkChange(b *testing.B) {
	folder, err := objects.OpenFolder(b.TempDir())
	require.NoError(b, err)
	for name, s := range map[string]objects.Store{"memory": memory.New(), "folder": folder} {
		b.Run(name, func(b *testing.B) {
			g := flat
			g.Dim = 128
			r := openReplica(b, s, b.TempDir(), shardOf(g))
			rng := rand.New(rand.NewPCG(1, 2))
			doc := func(i int) collection.DocumentInput {
				d := collection.DocumentInput{ID: fmt.Sprint("d", i), Dim: g.Dim, Metadata: []byte(`{"title":"a"}`)}
				for range g.Dim * 64 {
					d.Vectors = append(d.Vectors, float32(rng.NormFloat64()))
				}
				return d
			}
			var times []time.Duration
			for i := 0; b.Loop(); i++ {
				d := doc(i)
				begun := time.Now()
				_, _, err := r.Update(b.Context(), Batch{}, []collection.DocumentInput{d}, collection.UpdateOptions{})
				require.NoError(b, err)
				times = append(times, time.Since(begun))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
		})
	}
}
