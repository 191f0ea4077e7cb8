package keywords

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

// Documents of 60 words, of which some are in nearly every document and most in few.
func BenchmarkSearch(b *testing.B) {
	const docs = 100_000
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 8, 200_000)
	payloads := make([][]byte, docs)
	for i := range payloads {
		var text bytes.Buffer
		for range 60 {
			fmt.Fprintf(&text, "w%d ", zipf.Uint64())
		}
		payloads[i] = text.Bytes()
	}
	kw, _ := made(b, Settings{}, payloads...)
	few := roaring.New()
	for range docs / 100 {
		few.Add(rng.Uint32N(docs))
	}
	for _, x := range []struct {
		name string
		q    Query
	}{
		{"words", Query{Text: "w1 w20 w300 w4000 w50000", K: 100}},
		{"words, 1 % allowed", Query{Text: "w1 w20 w300 w4000 w50000", K: 100, Filter: few}},
		{"phrase", Query{Text: `"w1 w20"`, Mode: Expression, K: 100}},
		{"prefix", Query{Text: `w30*`, Mode: Expression, K: 100}},
	} {
		b.Run(x.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := kw.Search(context.Background(), x.q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
