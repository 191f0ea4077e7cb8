package search_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// exampleIndex builds an index of three documents of 4-d vectors.
func exampleIndex() (ix *index.Index, cleanup func()) {
	dir, err := os.MkdirTemp("", "plaid")
	if err != nil {
		log.Fatal(err)
	}
	src, err := vectors.FromDocuments(4, []vectors.Document{
		{ID: "north", Tokens: []float32{1, 0, 0, 0, 0.8, 0.6, 0, 0}},
		{ID: "south", Tokens: []float32{0, 1, 0, 0}, Payload: []byte(`{"title":"South"}`)},
		{ID: "west", Tokens: []float32{0, 0, 1, 0, 0, 0, 0, 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "points.plaid")
	if _, err := index.Build(context.Background(), path, src, &index.BuildOptions{Nbits: 8}); err != nil {
		log.Fatal(err)
	}
	if ix, err = index.Open(context.Background(), path, nil); err != nil {
		log.Fatal(err)
	}
	return ix, func() { _ = ix.Close(); _ = os.RemoveAll(dir) }
}

// exampleEngine is an engine over exampleIndex.
func exampleEngine(o *search.EngineOptions) (e *search.Engine, done func()) {
	ix, cleanup := exampleIndex()
	e, err := search.New(context.Background(), ix, o)
	if err != nil {
		log.Fatal(err)
	}
	return e, func() { _ = e.Close(); cleanup() }
}

func ExampleNew() {
	ix, cleanup := exampleIndex()
	defer cleanup()
	e, err := search.New(context.Background(), ix, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	res, err := e.Search(context.Background(), search.Query{Vectors: []float32{0, 1, 0, 0}}, search.Options{K: 2, Payload: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range res.Hits {
		fmt.Printf("%s %.2f %s\n", h.ID, h.Score, h.Payload)
	}
	// Output:
	// south 1.00 {"title":"South"}
	// north 0.60
}

func ExampleEngine_Search() {
	e, done := exampleEngine(&search.EngineOptions{Threads: 1})
	defer done()
	q := search.Query{
		Vectors: []float32{1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
		Mask:    []bool{true, true, false}, // the third token is padding
		Weights: []float32{1, 2, 1},
	}
	res, err := e.Search(context.Background(), q, search.Options{Filter: search.Only("north", "west")})
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range res.Hits {
		fmt.Printf("%s %.2f\n", h.ID, h.Score)
	}
	fmt.Println(res.Stats.Allowed, "documents allowed")
	// Output:
	// west 2.00
	// north 1.00
	// 2 documents allowed
}

// A filter by a condition is made once and used by any number of searches.
func ExampleWhere() {
	e, done := exampleEngine(nil)
	defer done()
	expr, err := condition.Parse("title LIKE ? OR _id = ?")
	if err != nil {
		log.Fatal(err)
	}
	cond, err := expr.Bind("s%", "west")
	if err != nil {
		log.Fatal(err)
	}
	filter := search.Where(cond)
	for _, v := range [][]float32{{0, 1, 0, 0}, {0, 0, 1, 0}} {
		res, err := e.Search(context.Background(), search.Query{Vectors: v, Filter: filter}, search.Options{})
		if err != nil {
			log.Fatal(err)
		}
		for _, h := range res.Hits {
			fmt.Printf("%s %.2f\n", h.ID, h.Score)
		}
	}
	// Output:
	// south 1.00
	// west 0.00
	// west 1.00
	// south 0.00
}

func ExampleEngine_Explain() {
	e, done := exampleEngine(nil)
	defer done()
	q := search.Query{Vectors: []float32{0, 1, 0, 0}}
	x, err := e.Explain(context.Background(), q, "north", search.Options{K: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s, score %.2f, best token %d\n", x.ID, x.Stage, x.Score, x.Matches[0].DocToken)
	// Output:
	// north: outranked, score 0.60, best token 1
}

// Queries with the same options go in together. Each may have a filter of its own.
func ExampleEngine_SearchBatch() {
	e, done := exampleEngine(nil)
	defer done()
	queries := []search.Query{
		{Vectors: []float32{1, 0, 0, 0}},
		{Vectors: []float32{1, 0, 0, 0}, Filter: search.Only("south", "west")},
	}
	results, err := e.SearchBatch(context.Background(), queries, search.Options{K: 1})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.Hits[0].ID)
	}
	// Output:
	// north
	// south
}

// A filter that many searches use remembers what it lets through.
func ExampleFilter_Prepared() {
	e, done := exampleEngine(nil)
	defer done()
	filter := (&search.Filter{IDs: []string{"south", "gone"}, AllowMissing: true}).Prepared()
	for range 2 {
		r, err := e.Search(context.Background(), search.Query{Vectors: []float32{1, 0, 0, 0}}, search.Options{Filter: filter})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(r.Hits), r.Hits[0].ID)
	}
	// Output:
	// 1 south
	// 1 south
}

// An engine on a device: import kernels/cuda, and name "cuda:0" or "auto". A device that
// is asked for by name and cannot be used is an error.
func ExampleEngineOptions_device() {
	device, _, err := kernels.OpenDevice(context.Background(), "cpu")
	if err != nil {
		log.Fatal(err)
	}
	if device != nil { // nil is the processor
		defer device.Close()
	}
	e, done := exampleEngine(&search.EngineOptions{Device: device})
	defer done()
	about, err := e.Describe(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d documents, device %q\n", about.Docs, about.Device)
	// Output: 3 documents, device ""
}
