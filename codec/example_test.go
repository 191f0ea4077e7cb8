package codec_test

import (
	"context"
	"fmt"
	"log"

	"github.com/plaid-ir/plaid/codec"
)

// A codec is trained on token vectors, and stores each as the number of a centroid, a
// residual of a few bits a component, and a factor.
func ExampleTrain() {
	const dim = 8
	var tokens []float32
	for i := range 64 {
		for j := range dim {
			tokens = append(tokens, float32((i*7+j*j*3)%11)-5)
		}
	}
	codec.Normalize(tokens, dim)
	c, report, err := codec.Train(context.Background(), tokens, dim, codec.TrainOptions{K: 8, Nbits: 4})
	if err != nil {
		log.Fatal(err)
	}
	var block codec.Block
	if err := c.Encode(context.Background(), &block, tokens, 0, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.K, "centroids,", c.CodeBytes()+c.RowBytes()+2, "bytes a token instead of", 4*dim)

	chunk := block.Chunk(c, []uint32{0, 64}) // one document of 64 tokens
	decoded := make([]float32, 64*dim)
	c.DecodeTokens(decoded, &chunk, 0, 64)
	fmt.Println("a small error:", report.RMSE < 0.1)
	// Output:
	// 8 centroids, 8 bytes a token instead of 32
	// a small error: true
}
