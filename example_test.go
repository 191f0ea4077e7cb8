package plaid_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/server"
)

// model is the small model of this repository.
const model = "docs/examples/quickstart/colbert-nano"

// newPath is a path for an index, and how to remove it.
func newPath() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, "docs.plaid"), func() { os.RemoveAll(dir) }
}

// Texts in, hits out.
func Example() {
	ctx := context.Background()
	path, remove := newPath()
	defer remove()

	docs, err := plaid.Create(ctx, path, &plaid.Options{Model: model})
	if err != nil {
		log.Fatal(err)
	}
	defer docs.Close()
	_, err = docs.Add(ctx,
		plaid.Document{ID: "cat", Text: "Cats sleep most of the day.", Payload: []byte(`{"year": 2019}`)},
		plaid.Document{ID: "owl", Text: "Owls hunt at night.", Payload: []byte(`{"year": 2024}`)},
		plaid.Document{ID: "bee", Text: "Bees make honey from nectar.", Payload: []byte(`{"year": 2024}`)})
	if err != nil {
		log.Fatal(err)
	}
	hits, err := docs.Search(ctx, plaid.Query{Text: "animals hunting in the night", K: 2})
	if err != nil {
		log.Fatal(err)
	}
	for i, hit := range hits {
		fmt.Printf("%d. %s: %s\n", i+1, hit.ID, hit.Text)
	}
	_, err = docs.Get(ctx, "dog")
	fmt.Println(errors.Is(err, plaid.ErrNotFound))
	// Output:
	// 1. owl: Owls hunt at night.
	// 2. cat: Cats sleep most of the day.
	// true
}

// animals is a collection of three documents.
func animals(ctx context.Context) (docs *plaid.Collection, end func()) {
	path, remove := newPath()
	docs, err := plaid.Create(ctx, path, &plaid.Options{Model: model})
	if err != nil {
		log.Fatal(err)
	}
	_, err = docs.Add(ctx,
		plaid.Document{ID: "cat", Text: "Cats sleep most of the day.", Payload: []byte(`{"year": 2019}`)},
		plaid.Document{ID: "owl", Text: "Owls hunt at night.", Payload: []byte(`{"year": 2024}`)},
		plaid.Document{ID: "bee", Text: "Bees make honey from nectar.", Payload: []byte(`{"year": 2024}`)})
	if err != nil {
		log.Fatal(err)
	}
	return docs, func() {
		docs.Close()
		remove()
	}
}

// Vectors and words together, among the documents of a year, with the words that were
// found.
func ExampleCollection_Search() {
	ctx := context.Background()
	docs, remove := animals(ctx)
	defer remove()
	hits, err := docs.Search(ctx, plaid.Query{
		Text: "who makes honey?", Hybrid: true, Where: "year >= ?", Args: []any{2020}, K: 1, Highlight: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, span := range hits[0].Spans {
		if span.Word == "honey" {
			fmt.Println(hits[0].ID, string(hits[0].Payload), "has", span.Text)
			break
		}
	}
	// Output:
	// bee {"year":2024} has honey
}

// Long texts are parted into passages; hits are whole documents with the best passages.
func ExampleOptions_passages() {
	ctx := context.Background()
	path, remove := newPath()
	defer remove()
	docs, err := plaid.Create(ctx, path, &plaid.Options{Model: model, Passages: &encode.Splitting{By: encode.BySentences, Window: 12}})
	if err != nil {
		log.Fatal(err)
	}
	defer docs.Close()
	text := "Cats sleep most of the day. Owls hunt at night. Bees make honey from nectar."
	if _, err := docs.Add(ctx, plaid.Document{ID: "animals", Text: text}); err != nil {
		log.Fatal(err)
	}
	hits, err := docs.Search(ctx, plaid.Query{Text: "who makes honey?"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hits[0].ID, "says:", hits[0].Passages[0].Text)
	// Output:
	// animals says: Bees make honey from nectar.
}

// Documents are replaced, changed and deleted.
func ExampleCollection_Update() {
	ctx := context.Background()
	docs, remove := animals(ctx)
	defer remove()
	if _, err := docs.Update(ctx, plaid.Document{ID: "owl", Text: "Owls see well in the dark."}); err != nil {
		log.Fatal(err)
	}
	n, err := docs.UpdatePayload(ctx, plaid.Selection{IDs: []string{"owl"}}, map[string]any{"year": 2025})
	if err != nil {
		log.Fatal(err)
	}
	deleted, err := docs.Delete(ctx, plaid.Selection{Where: "year < ?", Args: []any{2020}})
	if err != nil {
		log.Fatal(err)
	}
	owl, err := docs.Get(ctx, "owl")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s updated, %s deleted: %s %s\n", n, deleted, owl.Text, string(owl.Payload))
	// Output:
	// 1 document updated, 1 document deleted: Owls see well in the dark. {"year":2025}
}

// The HTTP service over a collection that the program goes on using.
func ExampleCollection_Catalog() {
	ctx := context.Background()
	docs, remove := animals(ctx)
	defer remove()
	encoder, err := docs.Encoder(ctx)
	if err != nil {
		log.Fatal(err)
	}
	handler, err := server.New(docs.Catalog(), encoder, nil)
	if err != nil {
		log.Fatal(err)
	}
	service := httptest.NewServer(handler) // or http.ListenAndServe(address, handler)
	defer service.Close()
	answer, err := http.Get(service.URL + "/indices")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status, docs.Catalog().Names())
	// Output:
	// 200 OK [docs]
}
