package index

import (
	"context"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// train draws a sample of documents and trains a codec on its tokens.
func train(ctx context.Context, src vectors.Source, tokens int64, o BuildOptions, be kernels.Backend, r *BuildReport) (*codec.Codec, error) {
	start := time.Now()
	k := o.Centroids
	if k == 0 {
		k = codec.DefaultK(tokens)
	}
	docs := chooseDocs(src, tokens, k, o)
	r.SampleDocs = len(docs)
	sample, err := readSample(ctx, src, docs, o)
	if err != nil {
		return nil, err
	}
	r.Seconds.Sample = time.Since(start).Seconds()
	start = time.Now()
	to := codec.TrainOptions{
		K: k, Nbits: o.Nbits, Iterations: o.Iterations, Seed: o.Seed, Threads: o.Threads, Tokens: tokens,
		DimScales: o.DimScales, CentroidScales: o.CentroidScales, Backend: be,
	}
	if o.Progress != nil {
		to.Progress = func(done, total int64) { o.Progress(Progress{"train", done, total, "assignments"}) }
	}
	c, report, err := codec.Train(ctx, sample, src.Dim(), to)
	r.Train = report
	r.Seconds.Train = time.Since(start).Seconds()
	return c, err
}

// maxPointsPerCentroid is what faiss and its users train on at most.
const maxPointsPerCentroid = 256

// chooseDocs picks the rows of the sample, ascending: as many as the rule or
// the caller says, fewer if their tokens would not fit into two fifths of the
// memory budget or are more than k-means makes use of. Empty documents are
// passed over.
func chooseDocs(src vectors.Source, tokens int64, k int, o BuildOptions) []int {
	n := o.SampleDocs
	if n == 0 {
		n = codec.SampleDocs(src.Len())
	}
	rows := min(o.Memory*2/5/int64(4*src.Dim()+16), int64(k)*maxPointsPerCentroid)
	full := 0
	for i := range src.Len() {
		if src.Rows(i) > 0 {
			full++
		}
	}
	mean := float64(tokens) / float64(full)
	n = max(min(n, full, int(float64(rows)/mean)), 1)

	// Selection sampling: Knuth, TAOCP vol. 2, algorithm 3.4.2 S.
	rng := rand.NewPCG(o.Seed, 0x706c616964)
	var picked []int
	for i := range src.Len() {
		if src.Rows(i) == 0 {
			continue
		}
		if hi, _ := bits.Mul64(rng.Uint64(), uint64(full)); hi < uint64(n-len(picked)) {
			picked = append(picked, i)
		}
		full--
	}
	return picked
}

func readSample(ctx context.Context, src vectors.Source, docs []int, o BuildOptions) ([]float32, error) {
	dim := src.Dim()
	total := 0
	for _, i := range docs {
		total += src.Rows(i)
	}
	sample := make([]float32, 0, total*dim)
	for lo := 0; lo < len(docs); {
		hi := lo + 1
		for hi < len(docs) && docs[hi] == docs[hi-1]+1 { // one read for neighbours
			hi++
		}
		row := docs[lo]
		for d, err := range src.Docs(ctx, row, docs[hi-1]+1) {
			if err != nil {
				return nil, err
			}
			if err := checkDocument(src, row, dim, d); err != nil {
				return nil, err
			}
			row++
			sample = append(sample, d.Tokens...)
		}
		lo = hi
		if o.Progress != nil {
			o.Progress(Progress{"sample", int64(len(sample) / dim), int64(total), "tokens"})
		}
	}
	if !o.Unnormalized {
		codec.Normalize(sample, dim)
	}
	return sample, nil
}

func rmse(sumSq float64, n int64) float64 {
	if n == 0 {
		return 0
	}
	return math.Sqrt(sumSq / float64(n))
}
