// Quickstart makes an index of 46 abstracts with a small model, and asks it a question.
//
//	go run ./docs/examples/quickstart
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/encode"
)

func main() {
	ctx, dir := context.Background(), "docs/examples/quickstart"
	path := filepath.Join(os.TempDir(), fmt.Sprint("quickstart-", os.Getpid(), ".plaid"))
	docs, err := plaid.Create(ctx, path, &plaid.Options{Model: filepath.Join(dir, "colbert-nano")})
	check(err)
	defer os.Remove(path)
	defer docs.Close()
	for t, err := range encode.JSONL(ctx, filepath.Join(dir, "scifact-sample", "corpus.jsonl")) {
		check(err)
		_, err = docs.Add(ctx, plaid.Document{ID: t.ID, Title: t.Title, Text: t.Text, Payload: t.Payload})
		check(err)
	}
	hits, err := docs.Search(ctx, plaid.Query{Text: "do proteins outside the cell serve as nutrients?", K: 3})
	check(err)
	for i, hit := range hits {
		fmt.Printf("%d. %.3f  %s  %s\n", i+1, hit.Score, hit.ID, hit.Title)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
