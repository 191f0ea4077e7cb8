package replica

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage/objects"
)

const testDim = 16

// flat is the first generation of a collection.
var flat = Generation{Number: 1, Dim: testDim, Nbits: 8, Stage: collection.StageFlat, Begun: true}

func shardOf(g Generation) Shard { return Shard{Collection: "notes.x1", Number: 0, Generation: g} }

func openReplica(t testing.TB, s objects.Store, dir string, shard Shard) *Replica {
	t.Helper()
	return openWith(t, s, dir, shard, "")
}

// openWith opens a replica with a backend of the kernels.
func openWith(t testing.TB, s objects.Store, dir string, shard Shard, backend string) *Replica {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	r, err := Open(&Config{Store: s, Dir: dir, Index: store.Options{Threads: 1, Backend: backend}, Logger: log}, shard)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// randomDoc makes a document of some tokens.
func randomDoc(rng *rand.Rand, id string) collection.DocumentInput {
	d := collection.DocumentInput{ID: id, Dim: testDim, Metadata: fmt.Appendf(nil, `{"n":%d}`, rng.IntN(10))}
	for range testDim * (1 + rng.IntN(3)) {
		d.Vectors = append(d.Vectors, float32(rng.NormFloat64()))
	}
	return d
}

// content is what a replica has, to the bit.
func content(t testing.TB, r *Replica, after uint64) (*index.Contents, map[string]string) {
	t.Helper()
	v, _, err := r.Snapshot(t.Context(), after)
	require.NoError(t, err)
	defer v.Close()
	c, err := v.Snapshot().Contents(t.Context(), 1)
	require.NoError(t, err)
	docs := map[string]string{}
	for d, err := range v.Documents(t.Context(), collection.Selection{}, collection.ReadOptions{Metadata: true}) {
		require.NoError(t, err)
		docs[d.ID] = fmt.Sprintf("%d %s", d.Number, d.Metadata)
	}
	return c, docs
}
