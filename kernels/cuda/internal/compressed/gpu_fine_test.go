package compressed

import (
	"fmt"
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
					tgt := target{packed: at.resident, docs: int64(c.docs()), tiles: int64(at.firstTile[c.docs()]), isList: probes > 0}
					if scored = b; probes > 0 {
						defer func() { scored = b.singleQuery(queries - 1) }()
					}
					return b.reserve(tgt, probes > 0, false)
				}))
				n := scored.blocksPerDocument()
				require.Equal(t, b.blocksPerDocument(), n)
				if n == 1 {
					continue
				}
				require.Positive(t, b.tmp.fineParts)
				end := b.tmp.fineParts + 4*int64(scored.queries*b.capacity*n*b.maxGroups*columns)
				for _, next := range []int64{b.tmp.keys, b.tmp.walk, b.tmp.size} {
					require.True(t, next == 0 || end <= next)
				}
			}
		}
	}
	require.NoError(t, a.Close())
}

// BenchmarkGPUFine is the kernel of fine scores alone: queries, each with as many
// documents drawn at random, 32 launches between two waits.
func BenchmarkGPUFine(b *testing.B) {
	d := runtimetest.OpenGPU(b)
	for _, w := range []struct{ docs, short, long, k, queries, listed int }{
		{5183, 150, 310, 16384, 1, 160},
		{5183, 150, 310, 16384, 64, 160},
		{5183, 150, 310, 16384, 300, 160},
		{100_000, 40, 120, 65536, 64, 1000},
	} {
		b.Run(fmt.Sprintf("docs=%d/queries=%d/listed=%d", w.docs, w.queries, w.listed), func(b *testing.B) {
			c := syntheticOnce(w.docs, w.short, w.long, w.k)
			a, err := attach(ctx, d, c, kernels.AttachOptions{}, pieceBytes, false)
			require.NoError(b, err)
			defer a.Close()
			rng := rand.New(rand.NewPCG(5, 5))
			requests := make([]*request, w.queries)
			for i := range requests {
				requests[i] = newRequest(a, c, &kernels.DeviceQuery{Vectors: kerneltest.UnitVectors(rng, 32, 128), K: w.listed}, 1, w.listed, firstSlack)
			}
			ids, found, tokens := []uint32{}, []uint32{}, 0
			for range requests {
				found = append(found, uint32(w.listed), 0, 0, 0)
				for range w.listed {
					doc := rng.IntN(w.docs)
					ids = append(ids, uint32(doc))
					_, off := c.ChunkDocs(doc >> 16)
					tokens += int(off[doc&65535+1] - off[doc&65535])
				}
			}
			require.NoError(b, d.Call(ctx, func(rt *runtime.Runtime) error {
				batch := newBatch(rt, requests)
				t := target{packed: a.resident, docs: int64(w.docs), tiles: int64(a.firstTile[w.docs])}
				for _, err := range []error{
					batch.reserve(t, false, false), batch.uploadQueries(&t), batch.prepareQueries(false),
					rt.Driver.ToDevice(batch.outputPtr(batch.out.ids), runtime.Bytes(ids), rt.Stream),
					rt.Driver.ToDevice(batch.outputPtr(batch.out.found), runtime.Bytes(found), rt.Stream), rt.Sync(),
				} {
					if err != nil {
						return err
					}
				}
				const launches = 32
				for b.Loop() {
					for range launches {
						if err := batch.fineScores(a.resident, false); err != nil {
							return err
						}
					}
					if err := rt.Sync(); err != nil {
						return err
					}
				}
				seconds := b.Elapsed().Seconds() / float64(b.N*launches)
				b.ReportMetric(float64(tokens)/seconds/1e9, "Gtokens/s")
				b.ReportMetric(seconds*1e6, "µs/launch")
				return nil
			}))
		})
	}
}
