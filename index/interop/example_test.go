package interop_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/index/interop"
)

// An index folder as fast-plaid and next-plaid load it, written and read.
func ExampleCreate() {
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	folder := filepath.Join(dir, "index")

	w, err := interop.Create(folder, interop.Header{
		Dim: 8, Nbits: 1,
		Centroids: []float32{1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, // two of them
		Cutoffs:   []float32{0},
		Weights:   []float32{-0.1, 0.1},
		DocLens:   []int32{2, 1},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close() // removes what was not committed
	// The centroid of each token, and a bit for each component of its residual.
	if err := w.WriteBlock([]uint32{0, 1, 0}, []byte{0x0f, 0xf0, 0xff}); err != nil {
		log.Fatal(err)
	}
	if err := w.Commit(context.Background()); err != nil {
		log.Fatal(err)
	}

	x, err := interop.Open(folder)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Engine, len(x.DocLens), "documents,", x.Tokens, "tokens,", x.K, "centroids")
	for b, err := range x.Blocks(context.Background(), 100) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(b.Codes)
	}
	// Output:
	// next-plaid 2 documents, 3 tokens, 2 centroids
	// [0 1 0]
}
