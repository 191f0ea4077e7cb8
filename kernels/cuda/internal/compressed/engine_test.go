package compressed

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/nearest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// attaching is a device that attaches indexes; streaming in pieces of some bytes
// what would fit, if piece is not 0.
type attaching struct {
	*runtime.Device
	piece int64
}

func (a attaching) Attach(ctx context.Context, c kernels.Corpus, o kernels.AttachOptions) (kernels.Attachment, error) {
	if a.piece == 0 {
		return Attach(ctx, a.Device, c, o)
	}
	return attach(ctx, a.Device, c, o, a.piece, true)
}

func (a attaching) Builder(cpu kernels.Backend) kernels.Builder {
	return nearest.NewBuilder(a.Device, cpu)
}

// An engine on a device finds what one on the processor finds, whatever becomes
// of the index.
func TestEngineOnDeviceFollowsTheIndex(t *testing.T) {
	seeds, steps := uint64(2), 250
	if !effort.Long() {
		seeds, steps = 1, 40
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("resident/%d", seed), func(t *testing.T) {
			f, _ := newFake()
			compareEngines(t, attaching{runtimetest.OpenFake(t, f), 0}, seed, steps)
			require.Empty(t, f.Faults())
		})
		t.Run(fmt.Sprintf("streamed/%d", seed), func(t *testing.T) {
			f, _ := newFake()
			compareEngines(t, attaching{runtimetest.OpenFake(t, f), 1 << 11}, seed, steps)
			require.Empty(t, f.Faults())
		})
	}
}

// Two devices with the same documents follow the index as one does.
func TestEngineOnTwoDevicesFollowsTheIndex(t *testing.T) {
	one, _ := newFake()
	two, _ := newFake()
	compareEngines(t, kernels.CombineDevices(attaching{runtimetest.OpenFake(t, one), 0}, attaching{runtimetest.OpenFake(t, two), 1 << 11}), 5, 60)
	require.Empty(t, one.Faults())
	require.Empty(t, two.Faults())
}

// compareEngines changes an index at random and searches it on the device and
// on the processor.
func compareEngines(t *testing.T, d kernels.Device, seed uint64, steps int) {
	const dim = 32
	rng := rand.New(rand.NewPCG(seed, 2))
	var ids []string // live
	named := 0
	document := func(id string) vectors.Document {
		n := rng.IntN(30)
		if rng.IntN(20) == 0 {
			n = 300
		}
		return vectors.Document{ID: id, Tokens: kerneltest.UnitVectors(rng, n, dim)}
	}
	fresh := func(n int) (docs []vectors.Document) {
		for range n {
			ids = append(ids, fmt.Sprintf("d%d", named))
			docs = append(docs, document(ids[len(ids)-1]))
			named++
		}
		return docs
	}
	source := func(docs []vectors.Document) vectors.Source {
		src, err := vectors.FromDocuments(dim, docs)
		require.NoError(t, err)
		return src
	}
	path := filepath.Join(t.TempDir(), "changing.plaid")
	_, err := index.Build(ctx, path, source(fresh(20)), &index.BuildOptions{Centroids: 30})
	require.NoError(t, err)
	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, ix.Close()) }()
	cpu, err := search.New(ctx, ix, &search.EngineOptions{Threads: 2})
	require.NoError(t, err)
	defer cpu.Close()
	dev, err := search.New(ctx, ix, &search.EngineOptions{Threads: 2, Device: d})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()

	some := func(n int) []string { // of the live ones, each once
		rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		return append([]string{}, ids[:min(n, len(ids))]...)
	}
	var done [5]int
	for step := range steps {
		kind := []int{0, 0, 1, 2, 2, 3, 4, 4, 4, 4}[rng.IntN(10)]
		done[kind]++
		switch kind {
		case 0:
			_, err := ix.Add(ctx, source(fresh(1+rng.IntN(12))), nil)
			require.NoError(t, err)
		case 1:
			var docs []vectors.Document
			for _, id := range some(1 + rng.IntN(4)) {
				docs = append(docs, document(id))
			}
			_, err := ix.Add(ctx, source(append(docs, fresh(rng.IntN(3))...)), &index.AddOptions{Replace: true})
			require.NoError(t, err)
		case 2:
			gone := some(rng.IntN(10))
			if rng.IntN(10) == 0 {
				gone = some(len(ids) - len(ids)/4)
			}
			n, _, err := ix.Delete(ctx, gone)
			require.NoError(t, err)
			require.Len(t, gone, n.Documents)
			ids = ids[n.Documents:]
		case 3:
			require.NoError(t, ix.Compact(ctx, nil))
		case 4:
			requireSameResults(t, rng, cpu, dev, some(1+rng.IntN(40)), dim, fmt.Sprintf("step %d", step))
		}
	}
	for kind, n := range done {
		require.Positive(t, n, "kind %d of step", kind)
	}
}

// requireSameResults searches with random options on both engines. The device
// may put documents that are as good in another order.
func requireSameResults(t *testing.T, rng *rand.Rand, cpu, dev *search.Engine, chosen []string, dim int, what string) {
	t.Helper()
	var qs []search.Query
	for range 1 + rng.IntN(3) {
		qs = append(qs, search.Query{Vectors: kerneltest.UnitVectors(rng, 1+rng.IntN(40), dim)})
	}
	o := search.Options{K: []int{1, 10, 1000}[rng.IntN(3)], Mode: search.Exhaustive}
	switch rng.IntN(4) {
	case 0:
		o.Filter = search.Only(chosen...)
	case 1:
		o.Mode, o.Candidates = search.Candidates, chosen
	case 2:
		o.Mode, o.Probes = search.Pruned, 30 // all lists
	}
	every := o
	every.K = 1 << 20
	if o.Probes > 0 {
		every.Mode, every.Probes = search.Exhaustive, 0
	}
	want, err := cpu.SearchBatch(ctx, qs, every)
	require.NoError(t, err)
	got, err := dev.SearchBatch(ctx, qs, o)
	require.NoError(t, err, what)
	for i := range qs {
		tolerance := 1e-4 * float64(len(qs[i].Vectors)/dim)
		score := map[string]float32{}
		for _, h := range want[i].Hits {
			score[h.ID] = h.Score
		}
		require.Len(t, got[i].Hits, min(o.K, len(want[i].Hits)), what)
		last := math.Inf(1)
		for j, h := range got[i].Hits {
			own, ok := score[h.ID]
			require.True(t, ok, "%s: document %s may not be returned, or is there twice", what, h.ID)
			delete(score, h.ID)
			require.InDelta(t, own, h.Score, tolerance, "%s: document %s", what, h.ID)
			require.InDelta(t, want[i].Hits[j].Score, h.Score, tolerance, "%s: place %d", what, j)
			require.LessOrEqual(t, float64(h.Score), last, what)
			last = float64(h.Score)
		}
		if len(want[i].Hits) > 0 {
			require.NotNil(t, got[i].Stats.Device, what)
		}
	}
}
