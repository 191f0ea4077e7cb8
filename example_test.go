package plaid_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// From token vectors to hits.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "docs.plaid")

	// Three documents of vectors of dimension 4, as a model makes them.
	docs, err := vectors.FromDocuments(4, []vectors.Document{
		{ID: "north", Tokens: []float32{1, 0, 0, 0, 0.8, 0.6, 0, 0}, Payload: []byte(`{"title": "North"}`)},
		{ID: "south", Tokens: []float32{0, 1, 0, 0}, Payload: []byte(`{"title": "South"}`)},
		{ID: "west", Tokens: []float32{0, 0, 1, 0, 0, 0, 0, 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := index.Build(ctx, path, docs, &index.BuildOptions{Nbits: 8}); err != nil {
		log.Fatal(err)
	}

	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ix.Close()
	engine, err := search.New(ctx, ix, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	query := search.Query{Vectors: []float32{0, 1, 0, 0}} // one token
	result, err := engine.Search(ctx, query, search.Options{K: 2, Payload: true})
	if err != nil {
		log.Fatal(err)
	}
	for i, hit := range result.Hits {
		fmt.Printf("%d. %s %.2f %s\n", i+1, hit.ID, hit.Score, hit.Payload)
	}

	_, err = ix.Get("east")
	fmt.Println(errors.Is(err, plaid.ErrNotFound))
	// Output:
	// 1. south 1.00 {"title": "South"}
	// 2. north 0.60 {"title": "North"}
	// true
}
