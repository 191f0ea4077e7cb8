package index_test

import (
	"fmt"
	"log"
	"path/filepath"

	"github.com/plaid-ir/plaid/index"
)

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
	// payload.jsonl
}
