package quality_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/vectors"
)

var ctx = context.Background()

// exampleIndex has 200 documents of two tokens each, spread over a circle, and eight
// queries.
func exampleIndex() (e *search.Engine, snap *index.Snapshot, queries []search.Query, done func()) {
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	at := func(turn float64) []float32 {
		return []float32{float32(math.Cos(2 * math.Pi * turn)), float32(math.Sin(2 * math.Pi * turn))}
	}
	var docs []vectors.Document
	for i := range 200 {
		docs = append(docs, vectors.Document{Tokens: append(at(float64(i)/200), at(float64(i)/100)...)})
	}
	for i := range 8 {
		queries = append(queries, search.Query{Vectors: at(float64(i) / 8.5)})
	}
	src, err := vectors.FromDocuments(2, docs)
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "x.plaid")
	if _, err := index.Build(ctx, path, src, &index.BuildOptions{Nbits: 8, Centroids: 32}); err != nil {
		log.Fatal(err)
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	if snap, err = ix.Snapshot(); err != nil {
		log.Fatal(err)
	}
	if e, err = search.NewAt(ctx, snap, nil); err != nil {
		log.Fatal(err)
	}
	return e, snap, queries, func() {
		_, _, _, _ = e.Close(), snap.Close(), ix.Close(), os.RemoveAll(dir)
	}
}

// What pruning loses against the exhaustive search.
func ExampleMeasureRecall() {
	e, _, queries, done := exampleIndex()
	defer done()
	reference, err := quality.Reference(ctx, e, queries, 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	r, err := quality.MeasureRecall(ctx, e, queries, search.Options{K: 3}, reference, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("recall %.2f of %d queries\n", r.Mean(), len(r.Queries))
	// Output: recall 1.00 of 8 queries
}

// Speed against recall, over settings.
func ExampleSweep() {
	e, _, queries, done := exampleIndex()
	defer done()
	points, err := quality.Sweep(ctx, e, queries, quality.SweepOptions{K: 3, Settings: []quality.Setting{{Probes: 1, Exact: 3}, {Exhaustive: true}}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range points {
		fmt.Println(p.Setting, p.Recall > 0, p.Latency.P50 > 0)
	}
	// Output:
	// probes 1, exact 3 true true
	// exhaustive true true
}

// The cheapest setting that reaches a recall; SetDefaults stores it in the index.
func ExampleTune() {
	e, snap, queries, done := exampleIndex()
	defer done()
	tuning, err := quality.Tune(ctx, e, snap, queries, quality.TuneOptions{Recall: 0.9, K: []int{3}})
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range tuning.Classes {
		fmt.Println("k up to", c.K, "recall", c.HeldOut.Recall >= 0.9, "confirmed", c.Confirmed)
	}
	// Output: k up to 3 recall true confirmed true
}
