package codec

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
)

const (
	// maxMagnitude bounds the components of vectors that are not normalised.
	maxMagnitude = 1e4
	// tuneRows bounds the vectors that step and scales are fitted to, as in
	// ColBERT; tuneRowsPerCentroid allows more where each centroid gets a scale.
	tuneRows            = 50_000
	tuneRowsPerCentroid = 16

	defaultNbits                = 2
	defaultIterations           = 4
	defaultMaxPointsPerCentroid = 256
)

// TrainOptions tune Train. The zero value is usable.
type TrainOptions struct {
	// K is the number of centroids; 0 means DefaultK(Tokens). It is never more
	// than the sample has vectors.
	K int
	// Tokens is the estimated number of tokens of the whole collection, for K;
	// 0 means as many as the sample has.
	Tokens int64
	// Nbits is 1, 2, 4 or 8 bits a component; 0 means 2.
	Nbits int
	// Iterations bounds the rounds of k-means; 0 means 4, as in ColBERT. On 60,000
	// token vectors of Cranfield (K = 1,024, 2 bits) the error of decoded vectors
	// is 0.219 after 4 rounds, 0.216 after 8, 0.215 after 16: each doubling costs
	// as much again and buys under 2 %. Twice as many centroids buy far more.
	Iterations int
	// MaxPointsPerCentroid bounds the vectors k-means runs on to that many times
	// K; 0 means 256. More cost time and move centroids little.
	MaxPointsPerCentroid int
	// Seed decides every random choice.
	Seed uint64
	// Threads is the number of goroutines; below 1 means all processors. It does
	// not change the result.
	Threads int
	// DimScales and CentroidScales turn on a scale of the residuals for each
	// dimension and for each centroid.
	DimScales, CentroidScales bool
	// Backend assigns vectors to centroids; nil means the default one.
	Backend kernels.Backend
	// Progress, where set, is told the number of vector assignments done and
	// their total; calls do not overlap. Training may end before the total.
	Progress func(done, total int64)
}

// TrainReport says what Train did.
type TrainReport struct {
	Vectors      int // in the sample
	Points       int // that k-means ran on
	WantedK      int // asked for or by the rule
	K            int
	Iterations   int // rounds of k-means done
	Reseeded     int // centroids moved because they had no vector
	TuneVectors  int // that step, scales and FactorMax were fitted to
	Step         float32
	FactorMax    float32
	Similarity   float64 // mean inner product of tuning vectors with their centroids
	RMSE         float64 // root mean square of ‖x − v̂‖ over them
	MeanResidual float64 // mean absolute residual component over them
}

// Train fits a codec to a sample of token vectors, n × dim and of unit length.
// Vectors that were not normalised work too, as long as components stay within
// ±10⁴; zero rows are left out of every estimate.
//
// Centroids come from spherical k-means and are rounded to bfloat16 before
// anything is computed against them. The step of the levels is the one of least
// squared error over up to 50,000 vectors, which k-means has not seen where the
// sample is large enough to keep some from it. The sample is not modified.
//
// Errors are those of ctx or wrap [ErrNoVectors], [ErrShape], [ErrValue] (NaN,
// infinite or too large a component), [kernels.ErrShape] or
// [kernels.ErrUnavailable].
func Train(ctx context.Context, sample []float32, dim int, opts TrainOptions) (*Codec, TrainReport, error) {
	t := &trainer{x: sample, dim: dim, opts: opts}
	c, err := t.train(ctx)
	if err != nil {
		return nil, TrainReport{}, err
	}
	return c, t.report, nil
}

type trainer struct {
	x      []float32
	dim    int
	opts   TrainOptions
	report TrainReport

	mu          sync.Mutex
	done, total int64
}

func (t *trainer) train(ctx context.Context) (*Codec, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	r := &t.report
	perm := shuffled(r.Vectors, t.opts.Seed)
	points := perm[:r.Points]
	tune := perm[r.Vectors-r.TuneVectors:] // the end: unseen while Points leaves some

	km := &kmeans{
		x: t.x, dim: t.dim, rows: sorted(points), k: r.K,
		threads: t.opts.Threads, backend: t.opts.Backend, tick: t.tick,
	}
	km.init(points)
	if err := km.run(ctx, t.opts.Iterations); err != nil {
		return nil, err
	}
	r.Iterations, r.Reseeded = km.iterations, km.reseeded
	return t.fit(ctx, km.centroids, sorted(tune))
}

// prepare checks the input and settles every size.
func (t *trainer) prepare(ctx context.Context) error {
	o := &t.opts
	if t.dim < 1 || t.dim > kernels.MaxDim {
		return fmt.Errorf("%w: dimension %d is not in 1..%d", ErrShape, t.dim, kernels.MaxDim)
	}
	if len(t.x)%t.dim != 0 {
		return fmt.Errorf("%w: %d values are no whole vectors of dimension %d", ErrShape, len(t.x), t.dim)
	}
	n := len(t.x) / t.dim
	switch {
	case n == 0:
		return ErrNoVectors
	case int64(n) > math.MaxUint32:
		return fmt.Errorf("%w: a sample of %d vectors", ErrShape, n)
	case o.K < 0 || o.Iterations < 0 || o.MaxPointsPerCentroid < 0 || o.Tokens < 0:
		return fmt.Errorf("%w: negative option", ErrShape)
	}
	setDefault(&o.Nbits, defaultNbits)
	setDefault(&o.Iterations, defaultIterations)
	setDefault(&o.MaxPointsPerCentroid, defaultMaxPointsPerCentroid)
	setDefault(&o.Tokens, int64(n))
	if err := (&kernels.Codebook{Nbits: o.Nbits, Step: 1}).Validate(); err != nil {
		return fmt.Errorf("codec: %w", err)
	}
	if o.Backend == nil {
		be, err := kernels.Select("")
		if err != nil {
			return fmt.Errorf("codec: %w", err)
		}
		o.Backend = be
	}
	if err := t.checkValues(ctx, n); err != nil {
		return err
	}

	r := &t.report
	r.Vectors = n
	r.WantedK = o.K
	setDefault(&r.WantedK, DefaultK(o.Tokens))
	r.K = min(r.WantedK, n)
	r.Points = n
	if o.MaxPointsPerCentroid < n/r.K {
		r.Points = r.K * o.MaxPointsPerCentroid
	}
	r.TuneVectors = min(n, tuneRows)
	if o.CentroidScales {
		r.TuneVectors = min(n, max(tuneRows, tuneRowsPerCentroid*r.K))
	}
	t.total = int64(o.Iterations)*int64(r.Points) + int64(r.TuneVectors)
	return nil
}

func setDefault[T int | int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// checkValues finds the first component that arithmetic would choke on.
func (t *trainer) checkValues(ctx context.Context, n int) error {
	first := len(t.x)
	var mu sync.Mutex
	err := forBlocks(ctx, n, blockRows, t.opts.Threads, func(_, _, lo, hi int) {
		for i, v := range t.x[lo*t.dim : hi*t.dim] {
			if !(v <= maxMagnitude && v >= -maxMagnitude) {
				mu.Lock()
				first = min(first, lo*t.dim+i)
				mu.Unlock()
				return
			}
		}
	})
	if err == nil && first < len(t.x) {
		err = fmt.Errorf("%w: vector %d, dimension %d of the sample is %g", ErrValue, first/t.dim, first%t.dim, t.x[first])
	}
	return err
}

func (t *trainer) tick(rows int) {
	if t.opts.Progress == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += int64(rows)
	t.opts.Progress(t.done, t.total)
}

// fit builds the codec around trained centroids.
func (t *trainer) fit(ctx context.Context, centroids []float32, rows []uint32) (*Codec, error) {
	k := kernels.Codec{
		Centroids: kernels.Centroids{K: t.report.K, Dim: t.dim, Type: kernels.BF16, Data: bf16Bytes(centroids)},
		Codebook:  kernels.Codebook{Nbits: t.opts.Nbits, Step: 1},
		FactorMax: maxFactorMax,
	}
	// A codec with any step serves to take residuals.
	c, err := New(k)
	if err != nil {
		return nil, err
	}
	set := &tuneSet{x: t.x, dim: t.dim, rows: rows, codes: make([]uint32, len(rows))}
	if err := t.assignTune(ctx, c, set); err != nil {
		return nil, err
	}
	if t.opts.DimScales {
		k.DimScale = set.dimScales(c)
	}
	if t.opts.CentroidScales {
		c.kernel.DimScale = k.DimScale
		k.CentroidScale = set.centroidScales(c)
	}
	c.kernel.DimScale, c.kernel.CentroidScale = k.DimScale, k.CentroidScale
	k.Codebook.Step, t.report.MeanResidual = set.step(c)
	if c, err = New(k); err != nil {
		return nil, err
	}
	factor, err := t.measure(ctx, c, set)
	if err != nil {
		return nil, err
	}
	c = c.WithFactorMax(1.25 * factor)
	t.report.Step, t.report.FactorMax = k.Codebook.Step, c.kernel.FactorMax
	return c, nil
}

// assignTune finds the codes against the rounded centroids and drops zero rows,
// whose residual says nothing.
func (t *trainer) assignTune(ctx context.Context, c *Codec, set *tuneSet) error {
	centroids := c.Centroids()
	scores := make([]float32, len(set.rows))
	gather := make([][]float32, workers(len(set.rows), blockRows, t.opts.Threads))
	err := forBlocks(ctx, len(set.rows), blockRows, t.opts.Threads, func(w, _, lo, hi int) {
		x := gatherRows(&gather[w], t.x, set.rows[lo:hi], t.dim)
		t.opts.Backend.Nearest(set.codes[lo:hi], scores[lo:hi], centroids, x, t.dim)
		t.tick(hi - lo)
	})
	if err != nil {
		return err
	}
	var sum float64
	kept := 0
	for i := range set.rows {
		if x := set.row(i); dot64(x, x) > 0 {
			set.rows[kept], set.codes[kept] = set.rows[i], set.codes[i]
			kept++
			sum += float64(scores[i])
		}
	}
	set.rows, set.codes = set.rows[:kept], set.codes[:kept]
	t.report.TuneVectors = kept
	t.report.Similarity = sum / float64(max(kept, 1))
	return nil
}

// measure returns the largest factor of the tuning vectors, and reports the
// error of their reconstruction.
func (t *trainer) measure(ctx context.Context, c *Codec, set *tuneSet) (float32, error) {
	n := len(set.rows)
	type total struct{ factor, sumSq float64 }
	totals := make([]total, (n+blockRows-1)/blockRows)
	err := forBlocks(ctx, n, blockRows, t.opts.Threads, func(_, b, lo, hi int) {
		s := encodeScratch{buckets: make([]uint8, t.dim), values: make([]float32, 2*t.dim)}
		packed := make([]byte, c.RowBytes())
		for i := lo; i < hi; i++ {
			x := set.row(i)
			y := c.encodeRow(packed, &s, x, set.codes[i])
			yy := dot64(y, y)
			f := inverseNorm(yy)
			totals[b].factor = max(totals[b].factor, f)
			totals[b].sumSq += max(dot64(x, x)-2*f*dot64(x, y)+f*f*yy, 0)
		}
	})
	var all total
	for _, b := range totals {
		all.factor = max(all.factor, b.factor)
		all.sumSq += b.sumSq
	}
	t.report.RMSE = math.Sqrt(all.sumSq / float64(max(n, 1)))
	return float32(all.factor), err
}

// bf16Bytes rounds to bfloat16.
func bf16Bytes(x []float32) []byte {
	data := make([]byte, 0, 2*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint16(data, kernels.BF16FromF32(v))
	}
	return data
}
