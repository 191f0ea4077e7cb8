package index

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// trainCodec draws a sample of documents and trains a codec on its tokens.
func trainCodec(
	ctx context.Context, src vectors.Source, tokens int64, o BuildOptions, backend kernels.Backend, r *BuildReport,
) (*codec.Quantizer, error) {
	start := time.Now()
	// Draw the sample, and one for a last round if k-means can use more tokens.
	k := o.Centroids
	if k == 0 {
		k = codec.DefaultK(tokens)
	}
	limit, usable := sampleLimit(src, tokens, k, o)
	sample := selectSample(src, tokens, limit, usable, o)
	r.SampleDocs = sample.countDocs()
	trainOptions := codec.TrainOptions{
		K:                k,
		Nbits:            o.Nbits,
		Iterations:       o.Iterations,
		HeldOut:          o.HeldOut,
		Seed:             o.Seed,
		Threads:          o.Threads,
		Tokens:           tokens,
		NoDimScales:      o.NoDimScales,
		NoCentroidScales: o.NoCentroidScales,
		Backend:          backend,
	}
	useful := float64(k) * maxPointsPerCentroid
	lastRound := selectSample(src, tokens, useful, useful, o)
	if o.SampleDocs != 0 || o.HeldOut != 0 || !lastRound.largerThan(sample) {
		lastRound = nil
	}
	if o.Progress != nil {
		trainOptions.Progress = func(done, total int64) { o.Progress(Progress{"train", done, total, "assignments"}) }
		trainOptions.FitProgress = func(done, total int64) { o.Progress(Progress{"levels", done, total, "tokens"}) }
	}
	// Train on a device if the vectors lie there.
	if resident := residentOnBackend(src, backend); resident != nil {
		c, report, err := trainResident(ctx, resident, sample, lastRound, !o.Unnormalized, trainOptions)
		if !errors.Is(err, kernels.ErrDeviceMemory) {
			r.Train, r.Seconds.Train = report, time.Since(start).Seconds()
			return c, err
		}
		dropResident(resident, o.Logger, err)
	}
	// Otherwise read the sample into memory.
	vecs, err := readSample(ctx, src, sample, o)
	if err != nil {
		return nil, err
	}
	r.Seconds.Sample = time.Since(start).Seconds()
	start = time.Now()
	if lastRound != nil {
		trainOptions.All, trainOptions.AllVectors = streamSample(ctx, src, lastRound, o), lastRound.tokens
	}
	c, report, err := codec.Train(ctx, vecs, src.Dim(), trainOptions)
	r.Train = report
	r.Seconds.Train = time.Since(start).Seconds()
	return c, err
}

// maxPointsPerCentroid is the most that k-means makes use of, as in faiss.
const maxPointsPerCentroid = 256

// sampleLimit returns the number of tokens to hold in memory for training: those of the documents
// that the caller, or ColBERT's rule, wants in the sample, but at most usable. usable is the number
// of tokens that fit into two fifths of the memory budget and that k-means can use.
func sampleLimit(src vectors.Source, tokens int64, k int, o BuildOptions) (limit, usable float64) {
	docs := o.SampleDocs
	if docs == 0 {
		docs = codec.SampleDocs(src.Len())
	}
	nonEmpty := 0
	for i := range src.Len() {
		if src.Rows(i) > 0 {
			nonEmpty++
		}
	}
	tokenBytes := int64(4*src.Dim() + 16) // the vector, and four 32-bit numbers of k-means
	usable = float64(min(o.Memory*2/5/tokenBytes, int64(k)*maxPointsPerCentroid))
	return min(float64(docs)*float64(tokens)/float64(nonEmpty), usable), usable
}

// span is the range of tokens from lo to before hi of a document.
type span struct{ doc, lo, hi int }

// sample is a sample of the tokens, in ascending order.
type sample struct {
	spans           []span
	tokens          int64
	splitsDocuments bool // spans may be shorter than their documents
}

// countDocs returns the number of documents with tokens in the sample.
func (s *sample) countDocs() int {
	n := 0
	for i := range s.spans {
		if i == 0 || s.spans[i].doc != s.spans[i-1].doc {
			n++
		}
	}
	return n
}

// largerThan reports whether the sample is larger than another. Samples of whole documents are
// compared by their number, since their tokens vary by chance.
func (s *sample) largerThan(other *sample) bool {
	if s.splitsDocuments || other.splitsDocuments {
		return s.tokens > other.tokens
	}
	return len(s.spans) > len(other.spans)
}

// If the lengths of documents differ such that a sample of whole ones misses the wanted number of
// tokens by more than maxMissFactor, at least minSpans shorter spans are drawn instead.
const (
	maxMissFactor = 2
	minSpans      = 64
)

// selectSample draws about limit tokens: whole documents, at least one. Drawn from a few very long
// documents and many short ones, such a sample may have almost no tokens, or far more than useful
// or than fit in memory; then documents are cut into spans of at most limit / minSpans tokens, and
// these are drawn instead. If the caller has set the number of documents, only a sample of far more
// than usable tokens is replaced.
func selectSample(src vectors.Source, tokens int64, limit, usable float64, o BuildOptions) *sample {
	s := drawSample(src, tokens, limit, math.MaxInt, o.Seed)
	minTokens, maxTokens := min(limit, float64(tokens))/maxMissFactor, limit*maxMissFactor
	if o.SampleDocs > 0 {
		minTokens, maxTokens = 0, usable*maxMissFactor
	}
	if n := float64(s.tokens); n < minTokens || n > maxTokens {
		s = drawSample(src, tokens, limit, max(int(limit/minSpans), 1), o.Seed)
		s.splitsDocuments = true
	}
	return s
}

// drawSample cuts documents into spans of at most maxSpan tokens, and draws spans until they have
// about limit tokens. It skips empty documents.
func drawSample(src vectors.Source, tokens int64, limit float64, maxSpan int, seed uint64) *sample {
	remaining := 0
	for i := range src.Len() {
		if rows := src.Rows(i); rows > 0 {
			remaining += (rows-1)/maxSpan + 1
		}
	}
	mean := float64(tokens) / float64(remaining)
	// 1e-9 makes up for a quotient that rounding has left just below a whole number.
	wanted := max(min(remaining, int(limit/mean+1e-9)), 1)

	// Selection sampling: Knuth, TAOCP vol. 2, algorithm 3.4.2 S.
	rng := rand.NewPCG(seed, 0x706c616964) // "plaid"
	s := &sample{}
	for i := range src.Len() {
		rows := src.Rows(i)
		for lo := 0; lo < rows; {
			hi := rows
			if rows-lo > maxSpan {
				hi = lo + maxSpan
			}
			if r, _ := bits.Mul64(rng.Uint64(), uint64(remaining)); r < uint64(wanted-len(s.spans)) {
				s.spans = append(s.spans, span{i, lo, hi})
				s.tokens += int64(hi - lo)
			}
			remaining--
			lo = hi
		}
	}
	return s
}

// readSample reads the tokens of a sample, scaled to unit length unless they have it.
func readSample(ctx context.Context, src vectors.Source, drawn *sample, o BuildOptions) ([]float32, error) {
	dim := src.Dim()
	vecs := make([]float32, 0, int(drawn.tokens)*dim)
	for tokens, err := range readSpans(ctx, src, drawn.spans) {
		if err != nil {
			return nil, err
		}
		vecs = append(vecs, tokens...)
		reportProgress(o.Progress, Progress{"sample", int64(len(vecs) / dim), drawn.tokens, "tokens"})
	}
	if !o.Unnormalized {
		codec.NormalizeParallel(vecs, dim, o.Threads)
	}
	return vecs, nil
}

// streamSample yields the tokens of a sample in blocks for codec.TrainOptions.All.
func streamSample(ctx context.Context, src vectors.Source, drawn *sample, o BuildOptions) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		dim := src.Dim()
		size := batchTokenLimit(dim, o.Memory) * dim
		var block []float32
		flush := func() bool {
			if !o.Unnormalized {
				codec.NormalizeParallel(block, dim, o.Threads)
			}
			more := yield(block, nil)
			block = block[:0]
			return more
		}
		for tokens, err := range readSpans(ctx, src, drawn.spans) {
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

// readSpans yields the tokens of spans, which ascend. They are valid until the next ones are
// yielded.
func readSpans(ctx context.Context, src vectors.Source, spans []span) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		var rows []int
		for _, s := range spans {
			if n := len(rows); n == 0 || rows[n-1] != s.doc {
				rows = append(rows, s.doc)
			}
		}
		next := 0
		for d, err := range readDocuments(ctx, src, rows) {
			if err == nil && next == len(rows) {
				err = fmt.Errorf("%w: the source gave more than the %d requested documents", vectors.ErrShape, next)
			}
			if err == nil {
				err = checkDocument(src, rows[next], src.Dim(), d)
			}
			if err == nil {
				err = checkFinite(rows[next], src.Dim(), d.ID, d.Tokens)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for len(spans) > 0 && spans[0].doc == rows[next] {
				if !yield(d.Tokens[spans[0].lo*src.Dim():spans[0].hi*src.Dim()], nil) {
					return
				}
				spans = spans[1:]
			}
			next++
		}
	}
}

// readDocuments yields the documents with ascending numbers rows: in one call if the source can,
// and otherwise with one call for each run of neighbours.
func readDocuments(ctx context.Context, src vectors.Source, rows []int) iter.Seq2[vectors.Document, error] {
	if p, ok := src.(vectors.Selector); ok {
		return p.Select(ctx, rows)
	}
	return func(yield func(vectors.Document, error) bool) {
		for n := 0; len(rows) > 0; rows = rows[n:] {
			for n = 1; n < len(rows) && rows[n] == rows[0]+n; n++ {
			}
			for d, err := range src.Docs(ctx, rows[0], rows[0]+n) {
				if !yield(d, err) || err != nil {
					return
				}
			}
		}
	}
}

// rootMeanSquare returns the root of the mean of n squares with the sum sumSq, or 0 for n = 0.
func rootMeanSquare(sumSq float64, n int64) float64 {
	if n == 0 {
		return 0
	}
	return math.Sqrt(sumSq / float64(n))
}
