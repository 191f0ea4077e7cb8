package compressed

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
)

// What several blocks find of a document has room of its own, also where probed
// queries of a batch get their fine scores one after another.
func TestSharedDocumentsHaveRoom(t *testing.T) {
	f, _ := newFake()
	cs := kerneltest.New(kerneltest.Config{Dim: 32, CodeBytes: 2, Lengths: lengths(rand.New(rand.NewPCG(7, 7)), 5000, 60)})
	c := newCorpus(cs.Codec, cs.Chunk)
	d := runtimetest.OpenFake(t, f)
	a, err := Attach(ctx, d, c, kernels.AttachOptions{})
	require.NoError(t, err)
	at := a.(*attachment)
	for _, room := range []int{1, 100, 214, 600, 3000} {
		for _, queries := range []int{1, 2, 7, 32} {
			for _, probes := range []int{0, 3} {
				var requests []*request
				for range queries {
					requests = append(requests, newRequest(at, c, &kernels.DeviceQuery{Vectors: cs.Query(40), K: 3, Probes: probes}, 2, room, firstSlack))
				}
				var b, scored *batch
				require.NoError(t, d.Call(ctx, func(rt *runtime.Runtime) error {
					b = newBatch(rt, requests)
					tgt := target{p: at.whole, docs: int64(c.docs()), tiles: int64(at.firstTile[c.docs()]), list: probes > 0}
					if scored = b; probes > 0 {
						defer func() { scored = b.alone(queries - 1) }()
					}
					return b.reserve(tgt, probes > 0, false)
				}))
				n := scored.shares()
				require.Equal(t, b.shares(), n)
				if n == 1 {
					continue
				}
				require.Positive(t, b.tmp.fineParts)
				end := b.tmp.fineParts + 4*int64(scored.queries*b.room*n*b.most*columns)
				for _, next := range []int64{b.tmp.keys, b.tmp.walk, b.tmp.size} {
					require.True(t, next == 0 || end <= next)
				}
			}
		}
	}
	require.NoError(t, a.Close())
}
