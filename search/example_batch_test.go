package search_test

import (
	"context"
	"fmt"
	"log"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
)

// exampleEngine is an engine over exampleIndex.
func exampleEngine(o *search.EngineOptions) (e *search.Engine, done func()) {
	ix, cleanup, err := exampleIndex()
	if err != nil {
		log.Fatal(err)
	}
	if e, err = search.New(context.Background(), ix, o); err != nil {
		log.Fatal(err)
	}
	return e, func() { _ = e.Close(); cleanup() }
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
