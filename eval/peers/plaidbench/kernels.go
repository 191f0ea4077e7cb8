package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cpu" // every tier
	"github.com/plaid-ir/plaid/vectors"
)

const (
	dim         = 128
	queryTokens = 32
)

// record is the time, or rate, of one kind of work.
type record struct {
	Work    string    `json:"work"`
	Engine  string    `json:"engine"`
	How     string    `json:"how"`
	Samples []float64 `json:"samples"` // nanoseconds, or operations a second
}

// bench times the kernels of one tier.
type bench struct {
	tier    string
	backend kernels.Backend
	out     []record
}

// timeKernels times every tier of the processor that has its own loops, on the shapes that
// ../README.md describes.
func timeKernels(ctx context.Context, collections []string) ([]record, error) {
	var out []record
	for _, tier := range kernels.Backends() {
		if tier == "generic" {
			continue
		}
		be, err := kernels.Select(tier)
		if err != nil {
			return nil, err
		}
		b := &bench{tier: tier, backend: be}
		for _, nbits := range []int{2, 4} {
			err := errors.Join(
				b.measureRerank("hot", nbits, 4096, 100),
				b.measureRerank("random", nbits, 65536, 10_000))
			if err != nil {
				return nil, err
			}
		}
		if err := errors.Join(b.measureCentroidScores(65536), b.measurePlain(ctx)); err != nil {
			return nil, err
		}
		for _, c := range collections {
			if err := b.measureNearest(ctx, c); err != nil {
				return nil, err
			}
		}
		out = append(out, b.out...)
	}
	return out, nil
}

// measure takes fifteen samples of at least 30 ms each: nanoseconds a call divided by per.
func (b *bench) measure(work, method string, per float64, f func()) *record {
	f()
	samples := make([]float64, 15)
	for i := range samples {
		start, calls := time.Now(), 0
		for calls == 0 || time.Since(start) < 30*time.Millisecond {
			f()
			calls++
		}
		samples[i] = float64(time.Since(start).Nanoseconds()) / float64(calls) / per
	}
	b.out = append(b.out, record{work, "plaid, " + b.tier, method, samples})
	return &b.out[len(b.out)-1]
}

// measureRerank times MaxSim, and the approximate score, of documents of 40 to 160 tokens in random
// order, with random codes and residuals.
func (b *bench) measureRerank(name string, nbits, k, docs int) error {
	c := kerneltest.New(kerneltest.Config{Nbits: nbits, K: k, CodeBytes: 2, Lengths: []int{100}})
	query := c.Query(queryTokens)
	rng := rand.New(rand.NewPCG(3, 3))
	ch := &kernels.Chunk{Offsets: []uint32{0}, CodeBytes: 2}
	n := 0
	for range docs {
		n += 40 + rng.IntN(121)
		ch.Offsets = append(ch.Offsets, uint32(n))
	}
	ch.Codes, ch.Factors = make([]byte, 2*n), make([]byte, 2*n)
	ch.Residuals = make([]byte, n*c.Codec.RowBytes())
	for i := range ch.Residuals {
		ch.Residuals[i] = byte(rng.Uint32())
	}
	order := make([]uint32, docs)
	for i, d := range rng.Perm(docs) {
		order[i] = uint32(d)
	}
	for t := range n {
		c.SetCode(ch, t, rng.IntN(k))
		kerneltest.SetFactor(ch, t, int16(20000+rng.IntN(10000)))
	}
	s, err := b.backend.Scorer(c.Codec)
	if err != nil {
		return err
	}
	q := s.NewQuery()
	if err := prepare(q, query, k); err != nil {
		return err
	}
	dst := make([]float32, docs)
	for level, how := range []string{"MaxSim, level fast", "MaxSim, level fine"} {
		b.measure(fmt.Sprintf("rerank %d bits %s", nbits, name), how, float64(n), func() {
			q.MaxSim(dst, ch, order, kernels.Level(level))
		})
	}
	if nbits == 2 {
		b.measure("approximate "+name, "Approx", float64(n), func() { q.Approx(dst, ch, order) })
	}
	return nil
}

// prepare computes S for a query.
func prepare(q kernels.Query, query []float32, k int) error {
	if err := q.Reset(query, nil); err != nil {
		return err
	}
	q.CentroidScores(0, k)
	q.Seal()
	return nil
}

// measureCentroidScores times the work for a query before its first document: S, alone and with the
// rows that the approximate stage reads.
func (b *bench) measureCentroidScores(k int) error {
	c := kerneltest.New(kerneltest.Config{Nbits: 2, K: k, Lengths: []int{100}})
	query := c.Query(queryTokens)
	s, err := b.backend.Scorer(c.Codec)
	if err != nil {
		return err
	}
	q := s.NewQuery()
	var errs error
	work := fmt.Sprintf("centroid scores K=%d", k)
	b.measure(work, "CentroidScores; bf16 centroids, S and the range of each query token", 1e6, func() {
		errs = errors.Join(errs, prepare(q, query, k))
	})
	dst, one := make([]float32, 1), []uint32{0}
	b.measure(work, "the same, and the uint8 rows of the approximate stage", 1e6, func() {
		errs = errors.Join(errs, prepare(q, query, k))
		q.Approx(dst, c.Chunk, one)
	})
	return errs
}

// measureNearest measures the rate at which 4,096 tokens of a collection, evenly spaced, are
// assigned to K of its tokens.
func (b *bench) measureNearest(ctx context.Context, collection string) (err error) {
	name, rest, _ := strings.Cut(collection, "=")
	data, number, _ := strings.Cut(rest, "=")
	k, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("%s: not NAME=DATA=K", collection)
	}
	src, err := vectors.Open(ctx, vectors.Files{
		Vectors: filepath.Join(data, "docs.npy"), Lengths: filepath.Join(data, "doclens.npy"),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	var tokens []float32
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return err
		}
		tokens = append(tokens, d.Tokens...)
	}
	if n := len(tokens) / dim; src.Dim() != dim || n < max(k, 4096) {
		return fmt.Errorf("%s: %d tokens of dimension %d are too few, or not of %d", data, n, src.Dim(), dim)
	}
	centroids, x := spaced(tokens, k), spaced(tokens, 4096)
	codes := make([]uint32, len(x)/dim)
	r := b.measure(fmt.Sprintf("nearest %s K=%d", name, k), "Nearest", 1, func() {
		_ = b.backend.Nearest(context.Background(), codes, nil, centroids, x, dim)
	})
	for i, ns := range r.Samples {
		r.Samples[i] = 2 * float64(len(x)) * float64(k) / ns
	}
	return nil
}

// spaced returns n rows, evenly spaced.
func spaced(rows []float32, n int) []float32 {
	step := len(rows) / dim / n
	out := make([]float32, 0, n*dim)
	for i := range n {
		out = append(out, rows[i*step*dim:(i*step+1)*dim]...)
	}
	return out
}
