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
	// document 1: id is in the index already: "east"
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
	fmt.Println(deleted, "deleted, missing:", missing)
	if err := ix.Compact(ctx, nil); err != nil { // gives the space back
		log.Fatal(err)
	}
	// Output: 1 deleted, missing: [south]
}
