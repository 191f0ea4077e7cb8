package index

import (
	"context"
	"iter"
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
	docs := chooseDocs(src, tokens, sampleLimit(src, tokens, k, o), o.Seed)
	r.SampleDocs = len(docs)
	sample, err := readSample(ctx, src, docs, o)
	if err != nil {
		return nil, err
	}
	r.Seconds.Sample = time.Since(start).Seconds()
	start = time.Now()
	to := codec.TrainOptions{
		K: k, Nbits: o.Nbits, Iterations: o.Iterations, Seed: o.Seed, Threads: o.Threads, Tokens: tokens,
		NoDimScales: o.NoDimScales, NoCentroidScales: o.NoCentroidScales, Backend: be,
	}
	if all := chooseDocs(src, tokens, float64(k)*maxPointsPerCentroid, o.Seed); o.SampleDocs == 0 && len(all) > len(docs) {
		to.All = streamDocs(ctx, src, all, o)
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

// sampleLimit is how many tokens to hold in memory for training: of as many
// documents as the rule or the caller says, fewer if they would not fit into two
// fifths of the memory budget or are more than k-means makes use of.
func sampleLimit(src vectors.Source, tokens int64, k int, o BuildOptions) float64 {
	n := o.SampleDocs
	if n == 0 {
		n = codec.SampleDocs(src.Len())
	}
	full := 0
	for i := range src.Len() {
		if src.Rows(i) > 0 {
			full++
		}
	}
	rows := min(o.Memory*2/5/int64(4*src.Dim()+16), int64(k)*maxPointsPerCentroid)
	return min(float64(n)*float64(tokens)/float64(full), float64(rows))
}

// chooseDocs picks documents, ascending, that have about so many tokens, at
// least one document. Empty documents are passed over.
func chooseDocs(src vectors.Source, tokens int64, limit float64, seed uint64) []int {
	full := 0
	for i := range src.Len() {
		if src.Rows(i) > 0 {
			full++
		}
	}
	mean := float64(tokens) / float64(full)
	n := max(min(full, int(limit/mean+1e-9)), 1)

	// Selection sampling: Knuth, TAOCP vol. 2, algorithm 3.4.2 S.
	rng := rand.NewPCG(seed, 0x706c616964)
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
	for tokens, err := range readDocs(ctx, src, docs) {
		if err != nil {
			return nil, err
		}
		sample = append(sample, tokens...)
		if o.Progress != nil {
			o.Progress(Progress{"sample", int64(len(sample) / dim), int64(total), "tokens"})
		}
	}
	if !o.Unnormalized {
		codec.Normalize(sample, dim)
	}
	return sample, nil
}

// streamDocs yields the tokens of documents in blocks for codec.TrainOptions.All.
func streamDocs(ctx context.Context, src vectors.Source, docs []int, o BuildOptions) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		dim := src.Dim()
		size := batchTokens(dim, o.Memory) * dim
		var block []float32
		flush := func() bool {
			if !o.Unnormalized {
				codec.Normalize(block, dim)
			}
			more := yield(block, nil)
			block = block[:0]
			return more
		}
		for tokens, err := range readDocs(ctx, src, docs) {
			if err != nil {
				yield(nil, err)
				return
			}
			if block = append(block, tokens...); len(block) >= size && !flush() {
				return
			}
		}
		if len(block) > 0 {
			flush()
		}
	}
}

// readDocs yields the tokens of some documents, ascending rows of src, valid until
// the next ones are asked for.
func readDocs(ctx context.Context, src vectors.Source, docs []int) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		for lo := 0; lo < len(docs); {
			hi := lo + 1
			for hi < len(docs) && docs[hi] == docs[hi-1]+1 { // one read for neighbours
				hi++
			}
			row := docs[lo]
			for d, err := range src.Docs(ctx, row, docs[hi-1]+1) {
				if err == nil {
					err = checkDocument(src, row, src.Dim(), d)
				}
				if !yield(d.Tokens, err) || err != nil {
					return
				}
				row++
			}
			lo = hi
		}
	}
}

func rmse(sumSq float64, n int64) float64 {
	if n == 0 {
		return 0
	}
	return math.Sqrt(sumSq / float64(n))
}
