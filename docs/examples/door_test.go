package examples

import (
	"context"
	"fmt"
	"log"

	"github.com/plaid-ir/plaid"
)

// Texts in, hits out.
func Example_collection() {
	ctx := context.Background()
	path, remove := temporary("docs.plaid")
	defer remove()

	// docs/api.md begins
	// plaid.Open opens an index that is there.
	docs, err := plaid.Create(ctx, path, &plaid.Options{Model: "quickstart/colbert-nano"})
	if err != nil {
		log.Fatal(err)
	}
	defer docs.Close()
	_, err = docs.Add(ctx,
		plaid.Document{ID: "owl", Text: "Owls hunt at night.", Payload: []byte(`{"year": 2024}`)},
		plaid.Document{ID: "bee", Text: "Bees make honey.", Payload: []byte(`{"year": 2019}`)})
	if err != nil {
		log.Fatal(err)
	}
	question := plaid.Query{Text: "what hunts in the dark?", Hybrid: true, Where: "year > 2020"}
	hits, err := docs.Search(ctx, question)
	if err != nil {
		log.Fatal(err)
	}
	for _, hit := range hits {
		fmt.Println(hit.ID, hit.Text, string(hit.Payload))
	}
	// docs/api.md ends

	// Output:
	// owl Owls hunt at night. {"year":2024}
}
