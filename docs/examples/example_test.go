package examples

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pets.plaid")

	// docs/api.md begins
	// Documents are token vectors of one dimension; here 2, from memory. vectors.Open reads files.
	docs, err := vectors.FromDocuments(2, []vectors.Document{
		{ID: "cat", Tokens: []float32{1, 0, 0.8, 0.6}, Payload: []byte(`{"title": "About cats"}`)},
		{ID: "dog", Tokens: []float32{0, 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := index.Build(ctx, path, docs, nil); err != nil {
		log.Fatal(err)
	}

	ix, err := index.Open(ctx, path, nil) // &index.Options{Write: true} to add and delete
	if err != nil {
		log.Fatal(err)
	}
	defer ix.Close()

	engine, err := search.New(ctx, ix, nil) // any number of goroutines may share it
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	query := search.Query{Vectors: []float32{0.6, 0.8}}
	res, err := engine.Search(ctx, query, search.Options{K: 10, Payload: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, hit := range res.Hits {
		fmt.Printf("%s %.2f %s\n", hit.ID, hit.Score, hit.Payload)
	}
	// docs/api.md ends
	// Output:
	// cat 0.96 {"title": "About cats"}
	// dog 0.80
}
