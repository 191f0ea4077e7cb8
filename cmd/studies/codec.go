package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// codecStudy encodes a collection with plaid's codec and with the reference codec of
// ColBERTv2 (arXiv 2112.01488, section 3.3), on the same centroids and in the same number
// of bytes, ranks all documents by MaxSim over what was stored, and holds scores and
// rankings against exact MaxSim over the vectors as they were.
func codecStudy(f *flag.FlagSet) measuring {
	s := &codecComparison{}
	ks := numbers(f, "k", 0, "numbers of centroids (0: by the number of tokens)", 0)
	bits := numbers(f, "nbits", 1, "bits a component", 1, 2, 4)
	pools := numbers(f, "pool", 1, "pool the tokens of a document to one in N", 1)
	split := f.String("split", "test", "qrels to evaluate with")
	limit := f.Int("queries", 0, "use the first `N` queries (0: all)")
	f.BoolVar(&s.excludeSelf, "exclude-self", false, "never retrieve a document of the query's id")
	f.BoolVar(&s.reference, "reference", true, "measure the reference codec as well")
	f.BoolVar(&s.sampleOnly, "sample-only", false, "leave out the round of k-means over what the sample does not hold")
	f.IntVar(&s.sample, "sample", 800_000, "train on at most `N` tokens; by default on as many as a build with the default budget of memory")
	f.IntVar(&s.train.Iterations, "iterations", 0, "rounds of k-means (0: the default)")
	f.BoolVar(&s.train.NoDimScales, "no-dim-scales", false, "fit no scale for each dimension")
	f.BoolVar(&s.train.NoCentroidScales, "no-centroid-scales", false, "fit no scale for each centroid")
	return func(ctx context.Context, args []string, stdout, _ io.Writer) error {
		if err := s.open(ctx, args[0], args[1], *split, *limit); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%d documents, %d tokens, %d queries; exact nDCG@10 %.4f; %s\n\n", len(s.docs.ids), len(s.docs.tokens)/s.docs.dim,
			len(s.queries.ids), s.exactResult.Mean(0, eval.AverageJudged), s.train.Backend.Name())
		fmt.Fprint(stdout, "| pool | K | bits | codec | vector RMSE | score RMSE | of reference | bias | top 10 | top 100 | nDCG@10 | to exact | p (random.) | p (t) |\n",
			"|--:|--:|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
		for _, pool := range *pools {
			docs := pooled(s.docs, pool)
			for _, k := range *ks {
				for _, nbits := range *bits {
					if err := s.compare(ctx, stdout, docs, pool, k, nbits); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
}

// depth is how much of the exact ranking scores are compared over.
const depth = 100

// codecComparison holds what every codec is compared with.
type codecComparison struct {
	train                              codec.TrainOptions
	sample                             int
	excludeSelf, reference, sampleOnly bool

	docs, queries *matrix
	qrels         *eval.Qrels
	exact         *scoreTable
	exactRun      *eval.Run
	exactResult   *eval.Result
	exactBest     [][]int // best documents of each query by exact score
	ndcg          []eval.Measure
}

func (s *codecComparison) open(ctx context.Context, dir, data, split string, limit int) (err error) {
	if s.train.Backend, err = kernels.Select(""); err != nil {
		return err
	}
	s.train.Threads = runtime.GOMAXPROCS(0)
	src, err := openDocs(ctx, dir)
	if err != nil {
		return err
	}
	defer src.Close()
	if s.docs, err = readMatrix(ctx, src, 0); err != nil {
		return err
	}
	if s.queries, err = readQueries(ctx, dir, limit); err != nil {
		return err
	}
	judgements, err := eval.LoadQrelsOf(data, split)
	if err != nil {
		return err
	}
	s.qrels = new(eval.Qrels) // of the queries that are used
	for _, query := range s.queries.ids {
		for doc, grade := range judgements.Judgements(query) {
			if err := s.qrels.Add(query, doc, grade); err != nil {
				return err
			}
		}
	}
	if s.exact, err = s.exactScores(ctx); err != nil {
		return err
	}
	if s.ndcg, err = eval.ParseMeasures("nDCG@10"); err != nil {
		return err
	}
	for query := range s.queries.ids {
		s.exactBest = append(s.exactBest, s.best(s.exact, query))
	}
	if s.exactRun, err = s.ranking(s.exact); err != nil {
		return err
	}
	s.exactResult, err = eval.Evaluate(s.qrels, s.exactRun, s.ndcg, eval.Options{Ties: eval.TiesRank})
	return err
}

// best gives the documents with the highest scores, in the order of a search:
// equal ones by position.
func (s *codecComparison) best(t *scoreTable, query int) []int {
	row := t.row(query)
	docs := make([]int, 0, len(row))
	for d, v := range row {
		if !math.IsInf(float64(v), -1) && !(s.excludeSelf && s.docs.ids[d] == s.queries.ids[query]) {
			docs = append(docs, d)
		}
	}
	slices.SortFunc(docs, func(a, b int) int { return cmp.Or(cmp.Compare(row[b], row[a]), cmp.Compare(a, b)) })
	return docs[:min(depth, len(docs))]
}

func (s *codecComparison) ranking(t *scoreTable) (*eval.Run, error) {
	run := new(eval.Run)
	for query, id := range s.queries.ids {
		var hits []eval.Hit
		for i, d := range s.best(t, query) {
			hits = append(hits, eval.Hit{Doc: s.docs.ids[d], Score: float64(t.row(query)[d]), Rank: i + 1})
		}
		if err := run.Add(id, hits...); err != nil {
			return nil, err
		}
	}
	return run, nil
}

// codecOutcome is one line of the table.
type codecOutcome struct {
	rmse, bias    float64 // of scores
	top10, top100 float64 // agreement
	ndcg          *eval.Comparison
	vector        float64 // root mean square error of the vectors
}

func (s *codecComparison) measure(t *scoreTable) (r codecOutcome, err error) {
	var sum, sumSq float64
	n := 0
	for query, docs := range s.exactBest {
		for _, d := range docs {
			e := float64(t.row(query)[d]) - float64(s.exact.row(query)[d])
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
	for k, share := range map[int]*float64{10: &r.top10, 100: &r.top100} {
		agreement, err := eval.Agree(run, s.exactRun, eval.AgreementOptions{Ties: eval.TiesRank, K: k})
		if err != nil {
			return r, err
		}
		*share = agreement.Overlap
	}
	result, err := eval.Evaluate(s.qrels, run, s.ndcg, eval.Options{Ties: eval.TiesRank})
	if err != nil {
		return r, err
	}
	r.ndcg, err = eval.Compare(result, s.exactResult, 0, eval.CompareOptions{Seed: 1})
	return r, err
}

// compare prints the lines of one number of centroids and bits.
func (s *codecComparison) compare(ctx context.Context, w io.Writer, docs *matrix, pool, k, nbits int) error {
	o := s.train
	o.K, o.Nbits = k, nbits
	o.Tokens = int64(len(docs.tokens) / docs.dim)
	x := sample(docs, s.sample)
	if len(x) < len(docs.tokens) && !s.sampleOnly { // as a build does
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
	own, err := s.encoded(ctx, ours, docs, codes)
	if err != nil {
		return err
	}
	line := func(name, relative string, r codecOutcome) {
		fmt.Fprintf(w, "| %d | %d | %d | %s | %.4f | %.4f | %s | %+.4f | %.4f | %.4f | %.4f | %+.4f | %.3f | %.3f |\n", pool, ours.K, nbits,
			name, r.vector, r.rmse, relative, r.bias, r.top10, r.top100, r.ndcg.MeanA, r.ndcg.Difference, r.ndcg.Randomisation.P, r.ndcg.TTest.P)
	}
	if !s.reference {
		line("plaid", "", own)
		return nil
	}
	theirs, err := reference(ours, docs, codes, nbits)
	if err != nil {
		return err
	}
	other, err := s.encoded(ctx, theirs, docs, codes)
	if err != nil {
		return err
	}
	line("plaid", fmt.Sprintf("%.3f", own.rmse/other.rmse), own)
	line("reference", "", other)
	return nil
}

// encoded measures a codec.
func (s *codecComparison) encoded(ctx context.Context, c *codec.Quantizer, docs *matrix, codes []uint32) (codecOutcome, error) {
	var b codec.Block
	for lo := 0; lo < len(codes); lo += encodeRows {
		hi := min(lo+encodeRows, len(codes))
		known := assigned{s.train.Backend, codes[lo:hi]}
		if err := c.Encode(ctx, &b, docs.tokens[lo*docs.dim:hi*docs.dim], 1, known); err != nil {
			return codecOutcome{}, err
		}
	}
	b.Codes, b.Residuals, b.Factors = slices.Grow(b.Codes, tail), slices.Grow(b.Residuals, tail), slices.Grow(b.Factors, tail)
	ch := b.Chunk(c, docs.offsets)
	t, err := s.storedScores(ctx, c.Kernel(), &ch)
	if err != nil {
		return codecOutcome{}, err
	}
	r, err := s.measure(t)
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

// sample draws whole documents up to so many tokens.
func sample(m *matrix, limit int) []float32 {
	if len(m.tokens)/m.dim <= limit {
		return m.tokens
	}
	var drawn []float32
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(len(m.ids)) {
		d := m.rows(i)
		if len(drawn)+len(d) > limit*m.dim {
			break
		}
		drawn = append(drawn, d...)
	}
	return drawn
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
	quantile := func(q float64) float32 {
		p := q * float64(len(residuals)-1)
		i := min(int(p), len(residuals)-2)
		return residuals[i] + float32(p-float64(i))*(residuals[i+1]-residuals[i])
	}
	n := 1 << nbits
	var cutoffs, weights []float32
	for i := range n {
		if i > 0 {
			cutoffs = append(cutoffs, quantile(float64(i)/float64(n)))
		}
		weights = append(weights, quantile((float64(i)+0.5)/float64(n)))
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
