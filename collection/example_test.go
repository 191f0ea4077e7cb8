package collection_test

import (
	"context"
	"fmt"
	"log"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage/objects"
)

// A program that asks the services of an object store (plaid serve --store) has no shards itself: it
// gives no address.
func ExampleNewSearcher() {
	ctx := context.Background()
	s, err := objects.Open("s3://bucket/plaid?region=eu-central-1")
	if err != nil {
		log.Fatal(err)
	}
	c, err := cluster.Open(ctx, cluster.Config{Store: s, Dir: "cache"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	wiki, err := c.Get("wiki")
	if err != nil {
		log.Fatal(err)
	}
	searcher := collection.NewSearcher(wiki) // as of an index file
	defer searcher.Close()
	r, err := searcher.Search(ctx, search.Query{Vectors: []float32{0, 1}, Dim: 2}, search.Options{K: 10, Payload: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range r.Hits {
		fmt.Println(h.ID, h.Score, string(h.Payload))
	}
}
