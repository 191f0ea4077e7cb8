package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// times are measured searches of one shard: [query][repetition].
type times [][]float64 // ms

// model takes them apart: what is the query's, and what is the moment's. Shards of one
// query share the first, which hedging cannot help.
type model struct {
	query  []float64 // median of each query
	moment []float64 // factors to it
}

func modelOf(measured times) *model {
	m := &model{}
	for _, q := range measured {
		own := median(slices.Clone(q))
		m.query = append(m.query, own)
		for _, t := range q {
			m.moment = append(m.moment, t/own)
		}
	}
	return m
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

// simulate draws queries: each node works off its shards one after another on as many
// cores, and the slowest node decides. A hedged request goes to a second replica when a
// node exceeds the 95th percentile of its times.
func simulate(m *model, s setup, queries int, rng *rand.Rand) result {
	perNode := (s.shards + s.nodes - 1) / s.nodes
	draw := func(q int) float64 {
		most := 0.0
		for range perNode { // a core a shard
			most = max(most, m.query[q]*m.moment[rng.IntN(len(m.moment))])
		}
		if rng.Float64() < s.slow {
			most += s.late
		}
		return most + transport
	}
	var own []float64
	for range 4000 {
		own = append(own, draw(rng.IntN(len(m.query))))
	}
	slices.Sort(own)
	p95 := own[len(own)*95/100]
	r := result{setup: s}
	var all, each []float64
	asked, twice := 0, 0
	tokens := 10.0
	for range queries {
		q := rng.IntN(len(m.query))
		slowest := 0.0
		for range s.nodes {
			asked++
			tokens = min(tokens+0.05, 10+0.05*float64(s.nodes))
			t := draw(q)
			if s.hedge && t > p95 && tokens >= 1 {
				tokens--
				twice++
				t = min(t, p95+draw(q))
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
func table(ctx context.Context, w io.Writer, measured times, seed uint64) error {
	m := modelOf(measured)
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
