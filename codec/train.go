package codec

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cpu" // the backends of the processor
)

const (
	// maxMagnitude bounds the components of vectors that are not normalised.
	maxMagnitude = 1e4
	// tuneRows bounds the vectors that step and scales are fitted to, as in ColBERT.
	tuneRows = 50_000
	// stepRows is how many of them the search for the step encodes again and again.
	stepRows = 8192
	// stepTrials is how often that search encodes them, at most: 2 and the halvings by
	// the golden section from 0.65 of the first guess to a hundredth of 0.6 of it.
	stepTrials = 12

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
	// Iterations bounds the rounds of k-means over the sample; 0 means 4, as in
	// ColBERT. More buy little, a round over All much: docs/lab/codec.md has figures.
	Iterations int
	// MaxPointsPerCentroid bounds the vectors k-means runs on to that many times
	// K; 0 means 256. More cost time and move centroids little.
	MaxPointsPerCentroid int
	// All, where set, yields the vectors of the whole collection, block after
	// block and scaled as the sample is: a last round of k-means runs over them,
	// so that centroids serve what the sample has missed. A block is not used
	// after the next one is asked for.
	All iter.Seq2[[]float32, error]
	// HeldOut, where not 0, keeps one in HeldOut vectors of the sample from k-means, in runs that are
	// about documents, and fits step and scales of dimensions to these alone. It suits collections that will
	// get most of their vectors later: those are farther from centroids than the vectors that made them.
	HeldOut int
	// Seed decides every random choice.
	Seed uint64
	// Threads is the number of goroutines; below 1 means all processors. It does
	// not change the result.
	Threads int
	// NoDimScales and NoCentroidScales leave out the scale of the residuals for
	// each dimension and for each centroid.
	NoDimScales, NoCentroidScales bool
	// Backend assigns vectors to centroids; nil means the default one.
	Backend kernels.Backend
	// AllVectors is how many vectors All yields, for Progress; 0: Tokens.
	AllVectors int64
	// Progress, where set, is told the number of vector assignments done and
	// their total; calls do not overlap.
	Progress func(done, total int64)
	// FitProgress is told the same of what follows: the vectors that were encoded
	// to find the step of the levels.
	FitProgress func(done, total int64)
}

// TrainReport says what Train did.
type TrainReport struct {
	Vectors     int     // in the sample
	Points      int     // that k-means ran on
	WantedK     int     // asked for or by the rule
	K           int     // centroids that were made
	Iterations  int     // rounds of k-means done
	Reseeded    int     // centroids moved because they had no vector
	TuneVectors int     // that step, scales and FactorMax were fitted to
	Step        float32 // the distance between two levels, before scales
	FactorMax   float32 // the largest factor that the codec can store
	Similarity  float64 // mean inner product of tuning vectors with their centroids
	RMSE        float64 // root mean square of ‖x − v̂‖ over them
}

// String reads like: 40000 vectors, 1024 centroids, 4 iterations, RMSE 0.0712.
func (r TrainReport) String() string {
	return fmt.Sprintf("%d vectors, %d centroids, %d iterations, RMSE %.4f", r.Vectors, r.K, r.Iterations, r.RMSE)
}

// Train fits a codec to a sample of token vectors, n × dim and of unit length.
// Vectors that were not normalised work too, as long as components stay within
// ±10⁴; zero rows are left out of every estimate.
//
// Centroids come from spherical k-means and are rounded to bfloat16 before
// anything is computed against them. The step of the levels is the one that
// encodes best some of up to 50,000 vectors, which k-means has not seen where the
// sample is large enough to keep some from it. The sample is not modified.
//
// Errors are those of ctx, All and Backend or wrap [ErrNoVectors], [ErrShape], [ErrValue] (NaN,
// infinite or too large a component), [kernels.ErrShape] or
// [kernels.ErrUnavailable].
func Train(ctx context.Context, sample []float32, dim int, opts TrainOptions) (*Quantizer, TrainReport, error) {
	t := &trainer{x: sample, dim: dim, opts: opts}
	return t.run(ctx)
}

func (t *trainer) run(ctx context.Context) (*Quantizer, TrainReport, error) {
	c, err := t.train(ctx)
	if err != nil {
		return nil, TrainReport{}, err
	}
	return c, t.report, nil
}

type trainer struct {
	x      []float32       // the sample; nil if it is resident
	on     *ResidentSample // nil if the sample is in memory
	points points          // of either
	dim    int
	opts   TrainOptions
	report TrainReport
	held   int // vectors that k-means does not see

	mu     sync.Mutex
	assign ticker
	encode ticker
}

// ticker counts one kind of work.
type ticker struct{ done, total int64 }

func (t *trainer) train(ctx context.Context) (*Quantizer, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	r := &t.report
	perm := shuffled(r.Vectors, t.opts.Seed)
	if t.held > 0 {
		perm = holdOut(perm, t.opts.HeldOut)
	}
	points := perm[:r.Points]
	tune := perm[r.Vectors-r.TuneVectors:] // the end: unseen while Points leaves some

	km := &kmeans{
		points: t.points, dim: t.dim, rows: sorted(points, r.Vectors), k: r.K,
		threads: t.opts.Threads, backend: t.opts.Backend, tick: t.tick,
	}
	if err := km.init(ctx, points); err != nil {
		return nil, err
	}
	if err := km.run(ctx, t.opts.Iterations); err != nil {
		return nil, err
	}
	r.Iterations, r.Reseeded = km.iterations, km.reseeded
	t.tick((t.opts.Iterations - km.iterations) * r.Points) // rounds that were not needed
	var err error
	switch {
	case t.opts.All != nil:
		err = km.runAll(ctx, t.opts.All)
	case t.on != nil && t.on.All != nil:
		err = km.runResident(ctx, t.on)
	default:
		km.clusters, err = km.sampleClusters(ctx)
	}
	if err != nil {
		return nil, err
	}
	rows, err := t.points.read(ctx, sorted(tune, r.Vectors))
	if err != nil {
		return nil, err
	}
	return t.fit(ctx, km, rows)
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
	if t.points = (memory{t.x, t.dim}); t.on != nil {
		n, t.points = len(t.on.Numbers), &residentPoints{t.on, t.opts.Threads}
	}
	switch {
	case n == 0:
		return ErrNoVectors
	case int64(n) > math.MaxUint32:
		return fmt.Errorf("%w: a sample of %d vectors", ErrShape, n)
	case o.K < 0 || o.Iterations < 0 || o.MaxPointsPerCentroid < 0 || o.Tokens < 0 || o.HeldOut < 0 || o.HeldOut == 1:
		return fmt.Errorf("%w: negative option, or all vectors held out", ErrShape)
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
	if t.on == nil { // an encoder gives finite vectors of unit length
		if err := t.checkValues(ctx, n); err != nil {
			return err
		}
	}

	r := &t.report
	r.Vectors = n
	r.WantedK = o.K
	setDefault(&r.WantedK, DefaultK(o.Tokens))
	tune := n
	if o.HeldOut > 0 {
		if t.held = countHeld(n, o.HeldOut); t.held > 0 {
			tune = t.held
		}
	}
	r.Points = n - t.held
	r.K = min(r.WantedK, r.Points)
	if o.MaxPointsPerCentroid < r.Points/r.K {
		r.Points = r.K * o.MaxPointsPerCentroid
	}
	r.TuneVectors = min(tune, tuneRows)
	t.assign.total = int64(o.Iterations)*int64(r.Points) + int64(r.TuneVectors)
	if t.on != nil && t.on.All != nil {
		o.AllVectors = int64(len(t.on.All))
		t.assign.total += o.AllVectors
	} else if o.All != nil {
		setDefault(&o.AllVectors, o.Tokens)
		t.assign.total += o.AllVectors
	}
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
	err := forBlocks(ctx, n, blockRows, t.opts.Threads, func(_, _, lo, hi int) error {
		for i, v := range t.x[lo*t.dim : hi*t.dim] {
			if !(v <= maxMagnitude && v >= -maxMagnitude) {
				mu.Lock()
				first = min(first, lo*t.dim+i)
				mu.Unlock()
				return nil
			}
		}
		return nil
	})
	if err == nil && first < len(t.x) {
		err = fmt.Errorf("%w: vector %d, dimension %d of the sample is %g", ErrValue, first/t.dim, first%t.dim, t.x[first])
	}
	return err
}

// tick counts vectors that were assigned to centroids.
func (t *trainer) tick(rows int) { t.count(&t.assign, t.opts.Progress, rows) }

func (t *trainer) count(c *ticker, tell func(done, total int64), rows int) {
	if tell == nil || rows == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.done = min(c.done+int64(rows), c.total)
	tell(c.done, c.total)
}

// fit builds the codec around trained centroids.
func (t *trainer) fit(ctx context.Context, km *kmeans, rows [][]float32) (*Quantizer, error) {
	k := kernels.Codec{
		Centroids: kernels.Centroids{K: t.report.K, Dim: t.dim, Type: kernels.BF16, Data: bf16Bytes(km.centroids)},
		Codebook:  kernels.Codebook{Nbits: t.opts.Nbits, Step: 1},
		FactorMax: maxFactorMax,
	}
	// A codec with any step serves to take residuals.
	c, err := New(k)
	if err != nil {
		return nil, err
	}
	set := &tuneSet{dim: t.dim, rows: rows, codes: make([]uint32, len(rows))}
	if err := t.assignTune(ctx, c, set); err != nil {
		return nil, err
	}
	if !t.opts.NoDimScales {
		c.kernel.DimScale = set.dimScales(c)
	}
	if !t.opts.NoCentroidScales {
		c.kernel.CentroidScale = km.clusters.scales()
	}
	if c, err = t.searchStep(ctx, c.withStep(set.step(c)), set); err != nil {
		return nil, err
	}
	m, err := t.measure(ctx, c, set)
	if err != nil {
		return nil, err
	}
	c = c.WithFactorMax(float32(1.25 * m.factor))
	t.report.RMSE = math.Sqrt(m.sumSq / float64(max(len(set.rows), 1)))
	t.report.Step, t.report.FactorMax = c.kernel.Codebook.Step, c.kernel.FactorMax
	return c, nil
}

// assignTune finds the codes against the rounded centroids and drops zero rows,
// whose residual says nothing.
func (t *trainer) assignTune(ctx context.Context, c *Quantizer, set *tuneSet) error {
	centroids := c.Centroids()
	scores := make([]float32, len(set.rows))
	gather := make([][]float32, workers(len(set.rows), blockRows, t.opts.Threads))
	backend, release, err := kernels.Prepare(ctx, t.opts.Backend, centroids, t.dim)
	if err != nil {
		return err
	}
	defer release()
	err = forBlocks(ctx, len(set.rows), blockRows, t.opts.Threads, func(w, _, lo, hi int) error {
		x := gather[w][:0]
		for _, row := range set.rows[lo:hi] {
			x = append(x, row...)
		}
		gather[w] = x
		if err := backend.Nearest(ctx, set.codes[lo:hi], scores[lo:hi], centroids, x, t.dim); err != nil {
			return err
		}
		t.tick(hi - lo)
		return nil
	})
	if err != nil {
		return err
	}
	var sum float64
	kept := 0
	for i := range set.rows {
		if x := set.rows[i]; dot64(x, x) > 0 {
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

// searchStep refines the step by encoding some of the vectors: the search for the
// best direction does best with another step than plain rounding.
func (t *trainer) searchStep(ctx context.Context, c *Quantizer, set *tuneSet) (*Quantizer, error) {
	some := &tuneSet{dim: set.dim}
	for i := 0; i < len(set.rows); i += max(len(set.rows)/stepRows, 1) {
		some.rows, some.codes = append(some.rows, set.rows[i]), append(some.codes, set.codes[i])
	}
	t.encode.total = stepTrials*int64(len(some.rows)) + int64(len(set.rows))
	var err error
	loss := func(step float64) float64 {
		m, e := t.measure(ctx, c.withStep(float32(step)), some)
		if e != nil {
			err = e
		}
		return m.sumSq
	}
	start := float64(c.kernel.Codebook.Step)
	step := goldenSection(start*0.6, start*1.25, 0.01, loss)
	t.count(&t.encode, t.opts.FitProgress, int(t.encode.total-t.encode.done)-len(set.rows)) // trials that were not needed
	return c.withStep(float32(step)), err
}

type measured struct{ factor, sumSq float64 }

// measure returns the largest factor that vectors need and the sum of the squared
// errors of their reconstruction.
func (t *trainer) measure(ctx context.Context, c *Quantizer, set *tuneSet) (measured, error) {
	each := make([]measured, len(set.rows))
	err := forBlocks(ctx, len(each), measuredRows, t.opts.Threads, func(_, _, lo, hi int) error {
		s := encodeScratch{buckets: make([]uint8, t.dim), values: make([]float32, 2*t.dim)}
		packed := make([]byte, c.RowBytes())
		for i := lo; i < hi; i++ {
			x := set.rows[i]
			y := c.encodeRow(packed, &s, x, set.codes[i])
			yy := dot64(y, y)
			f := inverseNorm(yy)
			each[i] = measured{f, squaredErrorOf(dot64(x, x), dot64(x, y), yy, f)}
		}
		t.count(&t.encode, t.opts.FitProgress, hi-lo)
		return nil
	})
	var all measured
	for block := range slices.Chunk(each, blockRows) { // sums of so many, then of those
		var sumSq float64
		for _, m := range block {
			all.factor = max(all.factor, m.factor)
			sumSq += m.sumSq
		}
		all.sumSq += sumSq
	}
	return all, err
}

// measuredRows is how many vectors of a trial a goroutine takes at once: trials have few.
const measuredRows = 128

// bf16Bytes rounds to bfloat16.
func bf16Bytes(x []float32) []byte {
	data := make([]byte, 0, 2*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint16(data, kernels.BF16FromF32(v))
	}
	return data
}
