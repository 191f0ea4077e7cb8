package vectors_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/vectors"
)

var ctx = context.Background()

// show prints what a collection has.
func show(src vectors.Source) {
	for doc, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(doc.ID, doc.Tokens)
	}
}

// file writes a file into a folder that goes after the example.
func file(name, text string) (path string, done func()) {
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	return path, func() { _ = os.RemoveAll(dir) }
}

// A file of vectors: .npy and .npz of NumPy, .safetensors, or lines of JSON.
func ExampleOpen() {
	path, done := file("docs.jsonl", `{"_id": "a", "vectors": [[1, 0], [0, 1]]}`+"\n"+`{"_id": "b", "vectors": [[1, 1]]}`+"\n")
	defer done()
	src, err := vectors.Open(ctx, vectors.Files{Vectors: path})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	fmt.Println(src.Len(), "documents of dimension", src.Dim())
	show(src)
	// Output:
	// 2 documents of dimension 2
	// a [1 0 0 1]
	// b [1 1]
}

// Documents in memory: the vectors of each, one after another.
func ExampleFromDocuments() {
	src, err := vectors.FromDocuments(2, []vectors.Document{
		{ID: "a", Tokens: []float32{1, 0, 0, 1}, Payload: []byte(`{"title": "A"}`)},
		{ID: "b", Tokens: []float32{1, 1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(src.Rows(0), "and", src.Rows(1), "tokens")
	// Output: 2 and 1 tokens
}

// Several collections, one after another.
func ExampleConcat() {
	first, err := vectors.FromDocuments(2, []vectors.Document{{ID: "a", Tokens: []float32{1, 0}}})
	if err != nil {
		log.Fatal(err)
	}
	second, err := vectors.FromDocuments(2, []vectors.Document{{ID: "b", Tokens: []float32{0, 1}}})
	if err != nil {
		log.Fatal(err)
	}
	src, err := vectors.Concat(first, second)
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	show(src)
	// Output:
	// a [1 0]
	// b [0 1]
}
