package index_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

var ctx = context.Background()

// threeDocuments are token vectors of dimension 2, as an encoder makes them.
func threeDocuments() vectors.Source {
	src, err := vectors.FromDocuments(2, []vectors.Document{
		{ID: "north", Tokens: []float32{0, 1, 0.1, 0.9}, Payload: []byte(`{"text":"up we go"}`)},
		{ID: "east", Tokens: []float32{1, 0}},
		{ID: "empty"},
	})
	if err != nil {
		log.Fatal(err)
	}
	return src
}

// eightDimensions are two documents whose vectors have whole bytes of residuals.
func eightDimensions() vectors.Source {
	src, err := vectors.FromDocuments(8, []vectors.Document{
		{Tokens: []float32{0, 1, 0, 0, 0, 0, 0, 0, 0.1, 0.9, 0, 0, 0, 0, 0, 0}},
		{Tokens: []float32{1, 0, 0, 0, 0, 0, 0, 0}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return src
}

func newFolder() (dir string, done func()) {
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

func newIndex() (path string, done func()) {
	dir, done := newFolder()
	path = filepath.Join(dir, "example.plaid")
	if _, err := index.Build(ctx, path, threeDocuments(), nil); err != nil {
		log.Fatal(err)
	}
	return path, done
}

func ExampleBuild() {
	dir, done := newFolder()
	defer done()
	report, err := index.Build(ctx, filepath.Join(dir, "example.plaid"), threeDocuments(), &index.BuildOptions{Nbits: 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Docs, "documents,", report.Empty, "of them empty,", report.Tokens, "tokens")
	// Output: 3 documents, 1 of them empty, 3 tokens
}

func ExampleOpen() {
	path, done := newIndex()
	defer done()

	ix, err := index.Open(context.Background(), path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ix.Close()
	snap, err := ix.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snap.Close()

	ordinal, found, err := snap.Ordinal("north")
	if err != nil || !found {
		log.Fatal(found, err)
	}
	payload, err := snap.Payload(ordinal)
	if err != nil {
		log.Fatal(err)
	}
	v, err := snap.Vectors(ordinal)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %d vectors of dimension %d\n", payload, len(v)/snap.Dim(), snap.Dim())
	// Output: {"text":"up we go"}, 2 vectors of dimension 2
}

func ExampleIndex_Add() {
	path, done := newIndex()
	defer done()

	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	if err != nil {
		log.Fatal(err)
	}
	defer ix.Close()
	more, err := vectors.FromDocuments(2, []vectors.Document{
		{ID: "west", Tokens: []float32{-1, 0}},
		{ID: "east", Tokens: []float32{1, 0, 0.9, 0.1}},
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = ix.Add(ctx, more, nil)
	fmt.Println(err)
	report, err := ix.Add(ctx, more, &index.AddOptions{Replace: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Docs, "added,", report.Replaced, "in the place of others")
	// Output:
	// document 1: id is taken: "east"
	// 2 added, 1 in the place of others
}

func ExampleIndex_Delete() {
	path, done := newIndex()
	defer done()

	ix, err := index.Open(context.Background(), path, &index.Options{Write: true})
	if err != nil {
		log.Fatal(err)
	}
	defer ix.Close()
	deleted, missing, err := ix.Delete(ctx, []string{"east", "south"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("deleted %s, missing: %v\n", deleted, missing)
	if err := ix.Compact(ctx, nil); err != nil { // gives the space back
		log.Fatal(err)
	}
	// Output: deleted 1 document, missing: [south]
}

// opened is the index of newIndex, to be changed.
func opened() (ix *index.Index, dir string, done func()) {
	path, remove := newIndex()
	ix, err := index.Open(ctx, path, &index.Options{Write: true})
	if err != nil {
		log.Fatal(err)
	}
	return ix, filepath.Dir(path), func() { _ = ix.Close(); remove() }
}

func ExampleIndex_Get() {
	ix, _, done := opened()
	defer done()
	doc, err := ix.Get("north")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(doc.Tokens, "tokens,", string(doc.Payload))
	there, err := ix.Has("south")
	fmt.Println(there, err)
	// Output:
	// 2 tokens, {"text":"up we go"}
	// false <nil>
}

// A snapshot shows the index as it was, whatever happens to the index.
func ExampleIndex_Snapshot() {
	ix, _, done := opened()
	defer done()
	snap, err := ix.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snap.Close()
	if _, _, err := ix.Delete(ctx, []string{"north"}); err != nil {
		log.Fatal(err)
	}
	_, before := snap.Get("north")
	_, now := ix.Get("north")
	fmt.Println(before == nil, now == nil)
	// Output: true false
}

// Compact gives back the space of documents that were deleted.
func ExampleIndex_Compact() {
	ix, _, done := opened()
	defer done()
	if _, _, err := ix.Delete(ctx, []string{"east"}); err != nil {
		log.Fatal(err)
	}
	if err := ix.Compact(ctx, nil); err != nil {
		log.Fatal(err)
	}
	snap, err := ix.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snap.Close()
	fmt.Println(snap.Len(), "documents,", snap.State().Tokens, "tokens stored")
	// Output: 2 documents, 2 tokens stored
}

// Export writes arrays for NumPy; ExportEngine writes an index folder that fast-plaid and
// next-plaid load, which Import reads back.
func ExampleImport() {
	dir, remove := newFolder()
	defer remove()
	path := filepath.Join(dir, "plain.plaid")
	// Other engines have no scales of residuals.
	o := &index.BuildOptions{NoDimScales: true, NoCentroidScales: true, Nbits: 4}
	if _, err := index.Build(ctx, path, eightDimensions(), o); err != nil {
		log.Fatal(err)
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ix.Close()
	snap, err := ix.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snap.Close()
	folder := filepath.Join(dir, "folder")
	if _, err := snap.ExportEngine(ctx, folder, nil); err != nil {
		log.Fatal(err)
	}

	report, err := index.Import(ctx, folder, filepath.Join(dir, "again.plaid"), &index.ImportOptions{IDs: []string{"north", "east"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Docs, "documents,", report.Tokens, "tokens at", report.Nbits, "bits")
	// Output: 2 documents, 3 tokens at 4 bits
}

func ExampleSnapshot_Export() {
	ix, dir, done := opened()
	defer done()
	snap, err := ix.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snap.Close()
	report, err := snap.Export(ctx, filepath.Join(dir, "arrays"), nil)
	if err != nil {
		log.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "arrays", "*"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Docs, "documents")
	for _, f := range files {
		fmt.Println(filepath.Base(f))
	}
	// Output:
	// 3 documents
	// doclens.npy
	// docs.npy
	// ids.txt
	// metadata.jsonl
}
