package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// depth is how much of the exact ranking scores are compared over.
const depth = 100

// study holds what every codec is compared with.
type study struct {
	c      *collection
	o      options
	exact  table
	run0   *eval.Run
	result *eval.Result
	top    [][]int // best documents of each query by exact score
	ndcg   []eval.Measure
}

func newStudy(c *collection, exact table, o options) (*study, error) {
	s := &study{c: c, o: o, exact: exact}
	var err error
	if s.ndcg, err = eval.ParseMeasures("nDCG@10"); err != nil {
		return nil, err
	}
	for q := range c.queries.ids {
		s.top = append(s.top, s.best(&exact, q))
	}
	if s.run0, err = s.ranking(&exact); err != nil {
		return nil, err
	}
	s.result, err = eval.Evaluate(c.qrels, s.run0, s.ndcg, eval.Options{Ties: eval.TiesRank})
	return s, err
}

// best gives the documents with the highest scores, in the order of a search:
// equal ones by position.
func (s *study) best(t *table, query int) []int {
	row := t.row(query)
	docs := make([]int, 0, len(row))
	for d, v := range row {
		if !math.IsInf(float64(v), -1) && !(s.o.excludeSelf && s.c.docs.ids[d] == s.c.queries.ids[query]) {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b int) int { return cmp.Or(cmp.Compare(row[b], row[a]), cmp.Compare(a, b)) })
	return docs[:min(depth, len(docs))]
}

func (s *study) ranking(t *table) (*eval.Run, error) {
	run := new(eval.Run)
	for q, id := range s.c.queries.ids {
		var hits []eval.Hit
		for i, d := range s.best(t, q) {
			hits = append(hits, eval.Hit{Doc: s.c.docs.ids[d], Score: float64(t.row(q)[d]), Rank: i + 1})
		}
		if err := run.Add(id, hits...); err != nil {
			return nil, err
		}
	}
	return run, nil
}

// outcome is one line of the table.
type outcome struct {
	rmse, bias    float64 // of scores
	top10, top100 float64 // agreement
	ndcg          float64
	difference    float64 // of nDCG, to exact
	pRandom, pT   float64
	vector        float64 // root mean square error of the vectors
}

func (s *study) measure(t *table) (r outcome, err error) {
	var sum, sumSq float64
	n := 0
	for q, docs := range s.top {
		for _, d := range docs {
			e := float64(t.row(q)[d]) - float64(s.exact.row(q)[d])
			sum += e
			sumSq += e * e
			n++
		}
	}
	r.bias, r.rmse = sum/float64(n), math.Sqrt(sumSq/float64(n))
	run, err := s.ranking(t)
	if err != nil {
		return r, err
	}
	for k, to := range map[int]*float64{10: &r.top10, 100: &r.top100} {
		a, err := eval.Agree(run, s.run0, eval.AgreementOptions{Ties: eval.TiesRank, K: k})
		if err != nil {
			return r, err
		}
		*to = a.Overlap
	}
	result, err := eval.Evaluate(s.c.qrels, run, s.ndcg, eval.Options{Ties: eval.TiesRank})
	if err != nil {
		return r, err
	}
	c, err := eval.Compare(result, s.result, 0, eval.CompareOptions{Seed: 1})
	if err != nil {
		return r, err
	}
	r.ndcg, r.difference, r.pRandom, r.pT = c.MeanA, c.Difference, c.Randomisation.P, c.TTest.P
	return r, nil
}

func (s *study) run(ctx context.Context, w io.Writer) error {
	m := &s.c.docs
	if _, err := fmt.Fprintf(w, "%d documents, %d tokens, %d queries; exact nDCG@10 %.4f; %s\n\n",
		len(m.ids), len(m.tokens)/m.dim, len(s.c.queries.ids), s.result.Mean(0, eval.AverageJudged), s.o.train.Backend.Name()); err != nil {
		return err
	}
	if _, err := fmt.Fprint(w, "| pool | K | bits | codec | vector RMSE | score RMSE | of reference | bias | top 10 | top 100 | nDCG@10 | to exact | p (random.) | p (t) |\n",
		"|--:|--:|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"); err != nil {
		return err
	}
	for _, pool := range s.o.pools {
		docs := pooled(m, pool)
		for _, k := range s.o.ks {
			for _, nbits := range s.o.nbits {
				if err := s.compare(ctx, w, docs, pool, k, nbits); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// compare prints the lines of one number of centroids and bits.
func (s *study) compare(ctx context.Context, w io.Writer, docs *matrix, pool, k, nbits int) error {
	o := s.o.train
	o.K, o.Nbits = k, nbits
	o.Tokens = int64(len(docs.tokens) / docs.dim)
	x := sample(docs, s.o.sample)
	if len(x) < len(docs.tokens) && !s.o.sampleOnly { // as a build does
		o.All = func(yield func([]float32, error) bool) { yield(docs.tokens, nil) }
	}
	ours, _, err := codec.Train(ctx, x, docs.dim, o)
	if err != nil {
		return err
	}
	codes := make([]uint32, o.Tokens)
	err = parallel.Do(ctx, parallel.Blocks(len(codes), encodeRows), o.Threads, func(i int) error {
		lo, hi := i*encodeRows, min((i+1)*encodeRows, len(codes))
		return o.Backend.Nearest(ctx, codes[lo:hi], nil, ours.Centroids(), docs.tokens[lo*docs.dim:hi*docs.dim], docs.dim)
	})
	if err != nil {
		return err
	}
	a, err := s.encoded(ctx, ours, docs, codes)
	if err != nil {
		return err
	}
	relative := ""
	var b outcome
	if s.o.reference {
		c, err := reference(ours, docs, codes, nbits)
		if err != nil {
			return err
		}
		if b, err = s.encoded(ctx, c, docs, codes); err != nil {
			return err
		}
		relative = fmt.Sprintf("%.3f", a.rmse/b.rmse)
	}
	line := func(bits any, name, relative string, r outcome) error {
		_, err := fmt.Fprintf(w, "| %d | %d | %v | %s | %.4f | %.4f | %s | %+.4f | %.4f | %.4f | %.4f | %+.4f | %.3f | %.3f |\n",
			pool, ours.K, bits, name, r.vector, r.rmse, relative, r.bias, r.top10, r.top100, r.ndcg, r.difference, r.pRandom, r.pT)
		return err
	}
	if err := line(nbits, "plaid", relative, a); err != nil {
		return err
	}
	if s.o.reference {
		if err := line(nbits, "reference", "", b); err != nil {
			return err
		}
	}
	if !s.o.ternary || nbits != 2 {
		return nil
	}
	r, err := s.ternaryOutcome(ctx, ours, docs, codes)
	if err != nil {
		return err
	}
	return line("1.6", "three levels", "", r)
}

// encoded measures a codec.
func (s *study) encoded(ctx context.Context, c *codec.Quantizer, docs *matrix, codes []uint32) (outcome, error) {
	var b codec.Block
	for lo := 0; lo < len(codes); lo += encodeRows {
		hi := min(lo+encodeRows, len(codes))
		known := assigned{s.o.train.Backend, codes[lo:hi]}
		if err := c.Encode(ctx, &b, docs.tokens[lo*docs.dim:hi*docs.dim], 1, known); err != nil {
			return outcome{}, err
		}
	}
	b.Codes, b.Residuals, b.Factors = slices.Grow(b.Codes, tail), slices.Grow(b.Residuals, tail), slices.Grow(b.Factors, tail)
	ch := b.Chunk(c, docs.offsets)
	t, err := storedScores(ctx, c.Kernel(), &ch, s.c, s.o)
	if err != nil {
		return outcome{}, err
	}
	r, err := s.measure(&t)
	r.vector = math.Sqrt(b.SumSq / float64(len(codes)))
	return r, err
}

// tail is what kernels may read past the end of an array.
const tail = 1024

// encodeRows is the number of tokens that Encode hands to Nearest at once.
const encodeRows = 2048

// assigned is a backend that knows the codes of the one block it is asked for,
// so that they need not be found again for each codec.
type assigned struct {
	kernels.Backend
	codes []uint32
}

func (a assigned) Nearest(_ context.Context, codes []uint32, _ []float32, _, _ []float32, _ int) error {
	copy(codes, a.codes)
	return nil
}

// sampleTokens is what a build of the default memory trains on at most.
const sampleTokens = 800_000

// sample draws whole documents up to so many tokens.
func sample(m *matrix, limit int) []float32 {
	if limit == 0 {
		limit = sampleTokens
	}
	if len(m.tokens)/m.dim <= limit {
		return m.tokens
	}
	var out []float32
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(len(m.ids)) {
		d := m.rows(i)
		if len(out)+len(d) > limit*m.dim {
			break
		}
		out = append(out, d...)
	}
	return out
}

// reference makes ColBERTv2's codec on the same centroids: of the residuals of a
// sample, the quantiles i/2ⁿ are cutoffs and those half-way between are weights.
func reference(ours *codec.Quantizer, m *matrix, codes []uint32, nbits int) (*codec.Quantizer, error) {
	const rows = 50_000
	centroids := ours.Centroids()
	var residuals []float32
	rng := rand.New(rand.NewPCG(2, 2))
	for range min(rows, len(codes)) {
		t := rng.IntN(len(codes))
		x, c := m.tokens[t*m.dim:(t+1)*m.dim], centroids[int(codes[t])*m.dim:]
		for j, v := range x {
			residuals = append(residuals, v-c[j])
		}
	}
	slices.Sort(residuals)
	at := func(q float64) float32 {
		p := q * float64(len(residuals)-1)
		i := min(int(p), len(residuals)-2)
		return residuals[i] + float32(p-float64(i))*(residuals[i+1]-residuals[i])
	}
	n := 1 << nbits
	var cutoffs, weights []float32
	for i := range n {
		if i > 0 {
			cutoffs = append(cutoffs, at(float64(i)/float64(n)))
		}
		weights = append(weights, at((float64(i)+0.5)/float64(n)))
	}
	c, _, err := codec.FromTable(centroids, ours.Kernel().Centroids.Type, m.dim, nbits, cutoffs, weights)
	return c, err
}

// pooled pools the tokens of each document.
func pooled(m *matrix, n int) *matrix {
	if n < 2 {
		return m
	}
	out := &matrix{dim: m.dim, offsets: []uint32{0}, ids: m.ids}
	var p pool.Pooler
	for i := range m.ids {
		out.tokens = p.Pool(out.tokens, m.rows(i), m.dim, n)
		out.offsets = append(out.offsets, uint32(len(out.tokens)/m.dim))
	}
	return out
}
