package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// times are measured searches of one shard: [query][repetition].
type times [][]float64 // ms

// model draws times of shards: their distribution, and how much of a time is the
// query's, which all shards of it share and hedging cannot help; the rest is the
// moment's. The two are joined as normal variables are (a Gaussian copula).
type model struct {
	at    func(p float64) float64 // quantiles, ms
	share float64                 // of the variance of the logarithm that is the query's
}

// modelOf is the model of measured times.
func modelOf(measured times) *model {
	var all []float64
	between, n := 0.0, 0.0
	mean, square := 0.0, 0.0
	for _, q := range measured {
		own := 0.0
		for _, t := range q {
			l := math.Log(t)
			own += l / float64(len(q))
			mean += l
			square += l * l
			n++
		}
		between += own * own
		all = append(all, q...)
	}
	mean /= n
	slices.Sort(all)
	share := (between/float64(len(measured)) - mean*mean) / (square/n - mean*mean)
	return &model{func(p float64) float64 { return all[min(int(p*float64(len(all))), len(all)-1)] }, min(max(share, 0), 1)}
}

// modelBetween interpolates quantiles of times, on a logarithmic scale.
func modelBetween(p, ms []float64, share float64) *model {
	return &model{func(x float64) float64 {
		i := min(max(sort.SearchFloat64s(p, x), 1), len(p)-1)
		part := (x - p[i-1]) / (p[i] - p[i-1])
		return ms[i-1] * math.Pow(ms[i]/ms[i-1], part)
	}, share}
}

// draw is the time of a shard for a query of which the part z is known.
func (m *model) draw(z float64, rng *rand.Rand) float64 {
	x := math.Sqrt(m.share)*z + math.Sqrt(1-m.share)*rng.NormFloat64()
	return m.at(math.Erfc(-x/math.Sqrt2) / 2)
}

// setup is a simulated cluster.
type setup struct {
	shards, nodes int
	slow          float64 // chance that an answer of a node is late
	late          float64 // by so many ms
	hedge         bool
}

// result of a simulation: latencies of whole queries, ms.
type result struct {
	setup
	p50, p99  float64
	extra     float64 // requests that were made twice, of all
	within3   float64 // part of the queries of which all nodes answer within 3 medians
	coverage3 float64 // part of the shards that answer within 3 medians
}

const transport = 0.15 // ms for a request and its answer, measured on loopback

// simulate draws queries: each node has a core for each of its shards, so that its
// slowest shard decides, and of the nodes the slowest. A hedged request goes to a second
// replica when a node exceeds the 95th percentile of its times, within the budget.
func simulate(m *model, s setup, queries int, rng *rand.Rand) result {
	perNode := (s.shards + s.nodes - 1) / s.nodes
	draw := func(z float64) float64 {
		most := 0.0
		for range perNode { // a core a shard
			most = max(most, m.draw(z, rng))
		}
		if rng.Float64() < s.slow {
			most += s.late
		}
		return most + transport
	}
	var own []float64
	for range 4000 {
		own = append(own, draw(rng.NormFloat64()))
	}
	slices.Sort(own)
	p95 := own[len(own)*95/100]
	r := result{setup: s}
	var all, each []float64
	asked, twice := 0, 0
	tokens := 10.0
	for range queries {
		z := rng.NormFloat64()
		slowest := 0.0
		for range s.nodes {
			asked++
			tokens = min(tokens+0.05, 10+0.05*float64(s.nodes))
			t := draw(z)
			if s.hedge && t > p95 && tokens >= 1 {
				tokens--
				twice++
				t = min(t, p95+draw(z))
			}
			each = append(each, t)
			slowest = max(slowest, t)
		}
		all = append(all, slowest)
	}
	slices.Sort(all)
	median := own[len(own)/2]
	for i := range queries {
		in := 0
		for _, t := range each[i*s.nodes : (i+1)*s.nodes] {
			if t <= 3*median {
				in++
			}
		}
		r.coverage3 += float64(in) / float64(s.nodes*queries)
		if in == s.nodes {
			r.within3 += 1 / float64(queries)
		}
	}
	r.p50, r.p99 = all[len(all)/2], all[len(all)*99/100]
	r.extra = float64(twice) / float64(asked)
	return r
}

// table prints the simulations of docs/scale.md.
func table(ctx context.Context, w io.Writer, m *model, seed uint64) error {
	fmt.Fprintln(w, "| shards | nodes | late answers | p50 / p99, ms | hedged: p50 / p99, ms | made twice | all in 3 medians | coverage |")
	fmt.Fprintln(w, "|--:|--:|---|--:|--:|--:|--:|--:|")
	for _, late := range []struct{ chance, ms float64 }{{0, 0}, {0.01, 50}, {0.001, 200}} {
		for _, size := range []struct{ shards, nodes int }{{4, 4}, {16, 16}, {100, 25}, {1000, 40}, {1000, 250}, {1000, 1000}} {
			if err := ctx.Err(); err != nil {
				return err
			}
			s := setup{shards: size.shards, nodes: size.nodes, slow: late.chance, late: late.ms}
			queries := min(20000, 2_000_000/size.shards)
			plain := simulate(m, s, queries, rand.New(rand.NewPCG(seed, 1)))
			s.hedge = true
			hedged := simulate(m, s, queries, rand.New(rand.NewPCG(seed, 1)))
			what := "none"
			if late.chance > 0 {
				what = fmt.Sprintf("%.1f %%, %.0f ms", 100*late.chance, late.ms)
			}
			fmt.Fprintf(w, "| %d | %d | %s | %.1f / %.1f | %.1f / %.1f | %.1f %% | %.2f | %.4f |\n", s.shards, s.nodes, what, plain.p50, plain.p99, hedged.p50, hedged.p99,
				100*hedged.extra, plain.within3, plain.coverage3)
		}
	}
	return nil
}

// spread describes measured times.
func spread(measured times) string {
	var all []float64
	for _, q := range measured {
		all = append(all, q...)
	}
	slices.Sort(all)
	at := func(p float64) float64 { return all[min(int(math.Floor(p*float64(len(all)))), len(all)-1)] }
	return fmt.Sprintf("%d searches: p50 %.2f, p95 %.2f, p99 %.2f, p99.9 %.2f ms", len(all), at(0.5), at(0.95), at(0.99), at(0.999))
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

// median of some times; they are sorted.
func median(d []float64) float64 {
	slices.SortFunc(d, cmp.Compare[float64])
	return d[len(d)/2]
}
