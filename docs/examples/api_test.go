package examples

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// pets is an index of three documents.
func pets(ctx context.Context, path string) {
	docs, err := vectors.FromDocuments(2, []vectors.Document{
		{ID: "cat", Tokens: []float32{1, 0, 0.8, 0.6}, Payload: []byte(`{"year": 2019}`)},
		{ID: "dog", Tokens: []float32{0, 1}, Payload: []byte(`{"year": 2021}`)},
		{ID: "owl", Tokens: []float32{0.6, 0.8}, Payload: []byte(`{"year": 2024}`)},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := index.Build(ctx, path, docs, nil); err != nil {
		log.Fatal(err)
	}
}

// model is the small one of the repository.
const model = "quickstart/colbert-nano"

func temporary(name string) (path string, remove func()) {
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	return filepath.Join(dir, name), func() { os.RemoveAll(dir) }
}

// A search among the documents of which a condition is true.
func Example_condition() {
	ctx := context.Background()
	path, remove := temporary("pets.plaid")
	defer remove()
	pets(ctx, path)
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

	// docs/api.md begins
	parsed, err := condition.Parse("year >= ?")
	if err != nil {
		log.Fatal(err)
	}
	recent, err := parsed.Bind(2020)
	if err != nil {
		log.Fatal(err)
	}
	res, err := engine.Search(ctx, search.Query{Vectors: []float32{1, 0}},
		search.Options{K: 10, Filter: search.Where(recent)})
	if err != nil {
		log.Fatal(err)
	}
	// docs/api.md ends
	for _, hit := range res.Hits {
		fmt.Printf("%s %.1f\n", hit.ID, hit.Score)
	}
	// Output:
	// owl 0.6
	// dog 0.0
}

// Documents are added and deleted.
func Example_change() {
	ctx := context.Background()
	path, remove := temporary("pets.plaid")
	defer remove()
	pets(ctx, path)

	// docs/api.md begins
	ix, err := index.Open(ctx, path, &index.Options{Write: true})
	if err != nil {
		log.Fatal(err)
	}
	defer ix.Close()
	more, err := vectors.FromDocuments(2, []vectors.Document{{ID: "bird", Tokens: []float32{0.6, 0.8}}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ix.Add(ctx, more, nil); err != nil {
		log.Fatal(err)
	}
	deleted, missing, err := ix.Delete(ctx, []string{"dog", "fish"})
	if err != nil {
		log.Fatal(err)
	}
	// docs/api.md ends
	fmt.Println(deleted, missing)
	// Output:
	// 1 document [fish]
}

// Texts become vectors, and these an index.
func Example_texts() {
	ctx := context.Background()
	path, remove := temporary("scifact.plaid")
	defer remove()

	// docs/api.md begins
	model, err := encode.Open("quickstart/colbert-nano", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	texts := encode.JSONL(ctx, "quickstart/scifact-sample/corpus.jsonl")
	docs, _, err := encode.Spool(ctx, model, texts, "", nil) // a vectors.Source, in a temporary file
	if err != nil {
		log.Fatal(err)
	}
	defer docs.Close()
	report, err := index.Build(ctx, path, docs, nil)
	if err != nil {
		log.Fatal(err)
	}
	question, err := model.Query(ctx, "do proteins outside the cell serve as nutrients?")
	if err != nil {
		log.Fatal(err)
	}
	// docs/api.md ends
	fmt.Println(report.Docs, "documents,", len(question.Vectors), "numbers of a question")
	// Output:
	// 46 documents, 4096 numbers of a question
}

// Texts in, hits out.
func Example_collection() {
	ctx := context.Background()
	path, remove := temporary("docs.plaid")
	defer remove()

	// docs/api.md begins
	// plaid.Open opens an index that is there.
	docs, err := plaid.Create(ctx, path, &plaid.Options{Model: model}) // the folder of one
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

// What else there is of a collection: an index that is opened again, a document, passages as hits,
// words that match, and documents that go.
func Example_opened() {
	ctx := context.Background()
	path, remove := temporary("docs.plaid")
	defer remove()
	made, err := plaid.Create(ctx, path, &plaid.Options{Model: model})
	if err != nil {
		log.Fatal(err)
	}
	if _, err = made.Add(ctx,
		plaid.Document{ID: "owl", Text: "Owls hunt at night.", Payload: []byte(`{"year": 2024}`)},
		plaid.Document{ID: "bee", Text: "Bees make honey.", Payload: []byte(`{"year": 2019}`)}); err != nil {
		log.Fatal(err)
	}
	if err := made.Close(); err != nil {
		log.Fatal(err)
	}

	// docs/api.md begins
	// The same file later. The index names its model, so no options are needed.
	docs, err := plaid.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer docs.Close()
	bee, err := docs.Get(ctx, "bee") // plaid.ErrNotFound if it is not there
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bee.Text, string(bee.Payload))

	// Each passage may be a hit; the usual hits are documents. Spans are the words that match.
	question := plaid.Query{Text: "who makes honey?", K: 1, Group: plaid.EachPassage, Highlight: true}
	hits, err := docs.Search(ctx, question)
	if err != nil {
		log.Fatal(err)
	}
	for _, span := range hits[0].Spans {
		fmt.Println(span.Word, "is found by", span.Text)
	}

	// Documents are selected by ids or by a condition.
	deleted, err := docs.Delete(ctx, plaid.Selection{IDs: []string{"owl"}})
	if err != nil {
		log.Fatal(err)
	}
	left, err := docs.Len(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// docs/api.md ends
	fmt.Println(deleted, left)
	// Output:
	// Bees make honey. {"year":2019}
	// who is found by Bees
	// makes is found by make
	// honey is found by honey
	// 1 document 1
}

func Example() {
	ctx := context.Background()
	path, remove := temporary("pets.plaid")
	defer remove()

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
