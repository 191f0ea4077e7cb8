package search

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plaid-ir/plaid/internal/topk"
)

// BenchmarkReached collects the 110,000 or so of 302,688 documents that 24 probes of 32 query
// tokens reached, and keeps the best 13,063 of them: what a search for a hundred of 48.6 M
// tokens does. It takes what the lists have said as given. "quickselect" is the choice alone,
// in the way of [topk.Best]. Queries differ, since processors learn from those before.
func BenchmarkReached(b *testing.B) {
	const docs, budget, first, queries = 302_688, 13_063, 1000, 16
	const all = (docs + reachBlock - 1) / reachBlock * reachBlock
	rng := rand.New(rand.NewPCG(1, 2))
	var state [queries][]uint64
	for q := range state {
		state[q] = make([]uint64, all)
		for i := range state[q] {
			stamp := rng.Uint64N(first) // of an earlier block
			if rng.Float64() < 0.36 {
				stamp = first
			}
			tokens := 0.0
			for range 8 {
				tokens += max(rng.NormFloat64()*0.02, 0)
			}
			state[q][i] = stamp<<32 | uint64(gainSum*tokens)
		}
	}
	allowed := make([]uint64, all/64)
	for i := range docs / 64 {
		allowed[i] = math.MaxUint64
	}
	r := &run{plan: plan{approx: budget}}
	collect := func(q int) {
		r.reached = r.reached[:0]
		for block := range uint32(all / reachBlock) {
			r.prober.reached = state[q][block*reachBlock : (block+1)*reachBlock]
			r.collect(allowed, 0, block, first)
		}
	}
	b.Run("collect", func(b *testing.B) {
		for i := range b.N {
			collect(i % queries)
		}
		b.ReportMetric(float64(len(r.reached)), "candidates")
	})
	var reached [queries][]candidate
	var scored [queries][]topk.Scored
	for q := range queries {
		collect(q)
		reached[q] = append([]candidate(nil), r.reached...)
		scored[q] = r.prober.scored(reached[q])
	}
	b.Run("cut", func(b *testing.B) {
		for i := range b.N {
			r.cutReached(reached[i%queries])
		}
	})
	b.Run("quickselect", func(b *testing.B) {
		some := make([]topk.Scored, len(scored[0])+all)
		for i := range b.N {
			some = append(some[:0], scored[i%queries]...)
			topk.Best(some, budget)
		}
	})
}
