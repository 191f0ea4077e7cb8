package replica

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
)

// Two replicas write in turns and have the same; one that starts again, and one that begins with a
// checkpoint when the log is cut, have it as well.
func TestReplicas(t *testing.T) {
	ctx, s, rng := t.Context(), newMemory(), rand.New(rand.NewPCG(1, 2))
	dirs := []string{t.TempDir(), t.TempDir()}
	a, b := openReplica(t, s, dirs[0], shardOf(flat)), openReplica(t, s, dirs[1], shardOf(flat))
	var last uint64
	for i := range 20 {
		w := []*Replica{a, b}[i/3%2]
		r, entry, err := w.Update(ctx, Batch{}, []collection.Document{randomDoc(rng, fmt.Sprint("d", i)), randomDoc(rng, "")}, collection.UpdateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, i+1, entry)
		require.Equal(t, []uint64{uint64(2 * i), uint64(2*i + 1)}, r.Numbers)
		last = entry
	}
	n, last, err := b.Delete(ctx, Batch{}, collection.Selection{IDs: []string{"d1", "d2"}})
	require.NoError(t, err)
	require.Equal(t, 2, n.Documents)
	n, last, err = a.UpdateMetadata(ctx, Batch{}, collection.Selection{IDs: []string{"d3", "d2"}}, map[string]json.RawMessage{"x": []byte(`"<y>"`)})
	require.NoError(t, err)
	require.Equal(t, 1, n.Documents)
	ca, da := content(t, a, last)
	cb, db := content(t, b, last)
	require.Equal(t, da, db)
	require.Equal(t, ca, cb)
	require.Len(t, da, 38)
	require.Contains(t, da["d3"], `"x":"<y>"`)
	require.EqualValues(t, 22, last)

	require.NoError(t, b.Close(ctx))
	b = openReplica(t, s, dirs[1], shardOf(flat))
	cb, _ = content(t, b, 0)
	require.Equal(t, ca, cb)
	require.NoError(t, b.Checkpoint(ctx))
	_, last, err = a.Update(ctx, Batch{}, []collection.Document{randomDoc(rng, "d1")}, collection.UpdateOptions{})
	require.NoError(t, err)
	_, err = a.journal.Cut(ctx, 22)
	require.NoError(t, err)
	c := openReplica(t, s, t.TempDir(), shardOf(flat))
	cc, _ := content(t, c, last)
	ca, _ = content(t, a, last)
	require.Equal(t, ca, cc)
}
