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
	// maxMagnitude is the maximum absolute value of a component of vectors that are not normalised.
	maxMagnitude = 1e4
	// maxTuneRows is the maximum number of vectors to which step and scales are fitted, as in ColBERT.
	maxTuneRows = 50_000
	// stepRows is the approximate number of these vectors that each trial of searchStep encodes.
	stepRows = 8192
	// maxStepTrials is the maximum number of trials of searchStep. Its interval is 0.6 to 1.25 of the
	// first guess, and ends at 0.01 of its upper bound, which is at least 0.6: golden sections, each of
	// which multiplies the length by 0.618, reduce 0.65 to 0.006 in 10 steps, after 2 trials.
	maxStepTrials = 12

	defaultNbits                = 2
	defaultIterations           = 4
	defaultMaxPointsPerCentroid = 256
)

// TrainOptions are the options of [Train]. The zero value is usable.
type TrainOptions struct {
	// K is the number of centroids. 0 means DefaultK(Tokens). It is limited to the number of vectors
	// in the sample.
	K int
	// Tokens is the estimated number of tokens of the collection, for K. 0 means that of the sample.
	Tokens int64
	// Nbits is the number of bits per component: 1, 2, 4 or 8. 0 means 2.
	Nbits int
	// Iterations is the maximum number of rounds of k-means over the sample. 0 means 4, as in ColBERT.
	// More rounds gain little; a round over All gains much (docs/lab/codec.md has figures).
	Iterations int
	// MaxPointsPerCentroid limits the number of vectors for k-means to a multiple of K. 0 means 256.
	// More vectors cost time and move centroids little.
	MaxPointsPerCentroid int
	// All, if not nil, yields the vectors of the collection in blocks, scaled as the sample is. A last
	// round of k-means runs over them, so that centroids suit vectors that the sample misses. A block
	// is not used after the next one is yielded.
	All iter.Seq2[[]float32, error]
	// HeldOut, if not 0, excludes one in HeldOut vectors of the sample from k-means, and fits the step
	// and the scales of dimensions to these alone. They are excluded in runs of neighbours, which are
	// roughly documents. It is for collections that will get most of their vectors later, which are
	// farther from centroids than the vectors from which these were computed.
	HeldOut int
	// Seed is the seed of all random choices.
	Seed uint64
	// Threads is the number of goroutines; below 1 means all processors. It does
	// not change the result.
	Threads int
	// NoDimScales and NoCentroidScales omit the scale of the residuals for each dimension and for each
	// centroid.
	NoDimScales, NoCentroidScales bool
	// Backend assigns vectors to centroids. nil means the default one.
	Backend kernels.Backend
	// AllVectors is the number of vectors that All yields, for Progress. 0 means Tokens.
	AllVectors int64
	// Progress, if not nil, is called with the number of vectors that were assigned to centroids, and
	// their total. Calls do not overlap.
	Progress func(done, total int64)
	// FitProgress, if not nil, is called in the same way with the number of vectors that were encoded
	// to fit the step of the levels, which follows the assignments.
	FitProgress func(done, total int64)
}

// TrainReport describes a training.
type TrainReport struct {
	Vectors     int     // in the sample
	Points      int     // vectors for k-means
	WantedK     int     // TrainOptions.K, or the default
	K           int     // number of centroids
	Iterations  int     // rounds of k-means
	Reseeded    int     // centroids that were moved because they had no vector
	TuneVectors int     // vectors to which step, scales and FactorMax were fitted
	Step        float32 // the distance between two levels, before scales
	FactorMax   float32 // the largest factor that the codec can store
	Similarity  float64 // mean inner product of tuning vectors with their centroids
	RMSE        float64 // root mean square of ‖x − v̂‖ over tuning vectors
}

// String returns a text such as: 40000 vectors, 1024 centroids, 4 iterations, RMSE 0.0712.
func (r TrainReport) String() string {
	return fmt.Sprintf("%d vectors, %d centroids, %d iterations, RMSE %.4f", r.Vectors, r.K, r.Iterations, r.RMSE)
}

// Train fits a codec to a sample of token vectors, n × dim and of unit length. Vectors that are not
// normalised are possible if their components are within ±10⁴. Zero rows are ignored.
//
// Centroids are computed by spherical k-means, and rounded to bfloat16 before residuals are computed. The
// step of the levels minimizes the error of some of up to 50,000 vectors, which k-means has not seen if the
// sample is large enough. The sample is not modified.
//
// Errors are those of ctx, All and Backend, or wrap [ErrNoVectors], [ErrShape], [ErrValue] (a component that
// is NaN, infinite or too large), [kernels.ErrShape] or [kernels.ErrUnavailable].
func Train(ctx context.Context, sample []float32, dim int, opts TrainOptions) (*Quantizer, TrainReport, error) {
	t := &trainer{x: sample, dim: dim, opts: opts}
	return t.run(ctx)
}

// run trains, and returns the report unless it fails.
func (t *trainer) run(ctx context.Context) (*Quantizer, TrainReport, error) {
	c, err := t.trainCodec(ctx)
	if err != nil {
		return nil, TrainReport{}, err
	}
	return c, t.report, nil
}

// trainer is the state of one training.
type trainer struct {
	x        []float32       // the sample, or nil if it is on a device
	resident *ResidentSample // the sample on a device, or nil if it is in memory
	points   points          // the vectors of the sample
	dim      int
	opts     TrainOptions
	report   TrainReport
	heldOut  int // vectors that are held out of k-means

	mu     sync.Mutex
	assign progressCount
	encode progressCount
}

// progressCount counts vectors for a progress function.
type progressCount struct{ done, total int64 }

// trainCodec runs the steps of a training.
func (t *trainer) trainCodec(ctx context.Context) (*Quantizer, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	// Select the vectors for k-means, and those to fit step and scales.
	r := &t.report
	perm := shuffled(r.Vectors, t.opts.Seed)
	if t.heldOut > 0 {
		perm = holdOut(perm, t.opts.HeldOut)
	}
	points := perm[:r.Points]
	tune := perm[r.Vectors-r.TuneVectors:] // from the end, which k-means does not see if the sample is large

	// Compute the centroids.
	km := &kmeans{
		points:   t.points,
		dim:      t.dim,
		rows:     sorted(points, r.Vectors),
		k:        r.K,
		threads:  t.opts.Threads,
		backend:  t.opts.Backend,
		progress: t.countAssigned,
	}
	if err := km.selectInitial(ctx, points); err != nil {
		return nil, err
	}
	if err := km.run(ctx, t.opts.Iterations); err != nil {
		return nil, err
	}
	r.Iterations, r.Reseeded = km.iterations, km.reseeded
	t.countAssigned((t.opts.Iterations - km.iterations) * r.Points) // rounds that were not needed
	// Run a last round over all vectors, if there are more than the sample.
	var err error
	switch {
	case t.opts.All != nil:
		err = km.runAll(ctx, t.opts.All)
	case t.resident != nil && t.resident.All != nil:
		err = km.runResident(ctx, t.resident)
	default:
		km.clusters, err = km.sampleClusters(ctx)
	}
	if err != nil {
		return nil, err
	}
	// Fit step and scales.
	rows, err := t.points.read(ctx, sorted(tune, r.Vectors))
	if err != nil {
		return nil, err
	}
	return t.fitCodec(ctx, km, rows)
}

// prepare checks the input, and determines the sizes of all steps.
func (t *trainer) prepare(ctx context.Context) error {
	// Check dimension and options.
	o := &t.opts
	if t.dim < 1 || t.dim > kernels.MaxDim {
		return fmt.Errorf("%w: dimension %d is not in 1..%d", ErrShape, t.dim, kernels.MaxDim)
	}
	if len(t.x)%t.dim != 0 {
		return fmt.Errorf("%w: %d values are no whole vectors of dimension %d", ErrShape, len(t.x), t.dim)
	}
	n := len(t.x) / t.dim
	if t.points = (matrixPoints{t.x, t.dim}); t.resident != nil {
		n, t.points = len(t.resident.Numbers), &devicePoints{t.resident, t.opts.Threads}
	}
	switch {
	case n == 0:
		return ErrNoVectors
	case int64(n) > math.MaxUint32:
		return fmt.Errorf("%w: a sample of %d vectors", ErrShape, n)
	case min(o.K, o.Iterations, o.MaxPointsPerCentroid, o.HeldOut) < 0 || o.Tokens < 0 || o.HeldOut == 1:
		return fmt.Errorf("%w: negative option, or all vectors held out", ErrShape)
	}
	// Set defaults.
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
	if t.resident == nil { // vectors on a device come from an encoder, and are finite
		if err := t.checkValues(ctx, n); err != nil {
			return err
		}
	}

	// Determine the numbers of vectors and centroids.
	r := &t.report
	r.Vectors = n
	r.WantedK = o.K
	setDefault(&r.WantedK, DefaultK(o.Tokens))
	tune := n
	if o.HeldOut > 0 {
		if t.heldOut = countHeldOut(n, o.HeldOut); t.heldOut > 0 {
			tune = t.heldOut
		}
	}
	r.Points = n - t.heldOut
	r.K = min(r.WantedK, r.Points)
	if o.MaxPointsPerCentroid < r.Points/r.K {
		r.Points = r.K * o.MaxPointsPerCentroid
	}
	r.TuneVectors = min(tune, maxTuneRows)
	// Determine the number of assignments, for progress.
	t.assign.total = int64(o.Iterations)*int64(r.Points) + int64(r.TuneVectors)
	if t.resident != nil && t.resident.All != nil {
		o.AllVectors = int64(len(t.resident.All))
		t.assign.total += o.AllVectors
	} else if o.All != nil {
		setDefault(&o.AllVectors, o.Tokens)
		t.assign.total += o.AllVectors
	}
	return nil
}

// setDefault sets *v to d if it is 0.
func setDefault[T int | int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// checkValues returns [ErrValue] for the first component that is NaN or too large.
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
		err = fmt.Errorf("%w: vector %d, dimension %d of the sample is %g",
			ErrValue, first/t.dim, first%t.dim, t.x[first])
	}
	return err
}

// countAssigned reports vectors that were assigned to centroids.
func (t *trainer) countAssigned(rows int) { t.countProgress(&t.assign, t.opts.Progress, rows) }

// countProgress adds vectors to a count, and calls progress, unless that is nil.
func (t *trainer) countProgress(c *progressCount, progress func(done, total int64), rows int) {
	if progress == nil || rows == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.done = min(c.done+int64(rows), c.total)
	progress(c.done, c.total)
}

// fitCodec fits scales, step and FactorMax to tuning vectors, for trained centroids.
func (t *trainer) fitCodec(ctx context.Context, km *kmeans, rows [][]float32) (*Quantizer, error) {
	// Residuals can be computed with any step.
	k := kernels.Codec{
		Centroids: kernels.Centroids{K: t.report.K, Dim: t.dim, Type: kernels.BF16, Data: bf16Bytes(km.centroids)},
		Codebook:  kernels.Codebook{Nbits: t.opts.Nbits, Step: 1},
		FactorMax: maxFactorMax,
	}
	c, err := New(k)
	if err != nil {
		return nil, err
	}
	set := &tuneSet{dim: t.dim, rows: rows, codes: make([]uint32, len(rows))}
	if err := t.assignTune(ctx, c, set); err != nil {
		return nil, err
	}
	// Fit the scales, and then the step to scaled residuals.
	if !t.opts.NoDimScales {
		c.kernel.DimScale = set.dimScales(c)
	}
	if !t.opts.NoCentroidScales {
		c.kernel.CentroidScale = km.clusters.scales()
	}
	if c, err = t.searchStep(ctx, c.withStep(set.roundingStep(c)), set); err != nil {
		return nil, err
	}
	// Select FactorMax: a quarter more than tuning vectors need.
	m, err := t.measure(ctx, c, set)
	if err != nil {
		return nil, err
	}
	c = c.WithFactorMax(float32(1.25 * m.factor))
	t.report.RMSE = math.Sqrt(m.sumSq / float64(max(len(set.rows), 1)))
	t.report.Step, t.report.FactorMax = c.kernel.Codebook.Step, c.kernel.FactorMax
	return c, nil
}

// assignTune assigns the tuning vectors to the rounded centroids, and removes zero rows, which have no
// direction.
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
		t.countAssigned(hi - lo)
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

// searchStep improves the step by encoding a subset of the vectors: the best step for searchLevels differs
// from that for rounding, which the codec has.
func (t *trainer) searchStep(ctx context.Context, c *Quantizer, set *tuneSet) (*Quantizer, error) {
	subset := &tuneSet{dim: set.dim}
	for i := 0; i < len(set.rows); i += max(len(set.rows)/stepRows, 1) {
		subset.rows, subset.codes = append(subset.rows, set.rows[i]), append(subset.codes, set.codes[i])
	}
	t.encode.total = maxStepTrials*int64(len(subset.rows)) + int64(len(set.rows))
	var err error
	loss := func(step float64) float64 {
		m, measureErr := t.measure(ctx, c.withStep(float32(step)), subset)
		if measureErr != nil {
			err = measureErr
		}
		return m.sumSq
	}
	start := float64(c.kernel.Codebook.Step)
	step := goldenSection(start*0.6, start*1.25, 0.01, loss)
	// Count trials that were not needed. The last measurement of all vectors follows.
	skipped := int(t.encode.total-t.encode.done) - len(set.rows)
	t.countProgress(&t.encode, t.opts.FitProgress, skipped)
	return c.withStep(float32(step)), err
}

// encodeMeasure is the largest factor, and the sum of squared errors, of some vectors.
type encodeMeasure struct{ factor, sumSq float64 }

// measure encodes vectors, and returns the largest factor that they need and the sum of their squared errors.
func (t *trainer) measure(ctx context.Context, c *Quantizer, set *tuneSet) (encodeMeasure, error) {
	results := make([]encodeMeasure, len(set.rows))
	err := forBlocks(ctx, len(results), measureBlockRows, t.opts.Threads, func(_, _, lo, hi int) error {
		s := encodeScratch{buckets: make([]uint8, t.dim), values: make([]float32, 2*t.dim)}
		packed := make([]byte, c.RowBytes())
		for i := lo; i < hi; i++ {
			x := set.rows[i]
			y := c.encodeRow(packed, &s, x, set.codes[i])
			yy := dot64(y, y)
			f := inverseNorm(yy)
			results[i] = encodeMeasure{f, squaredErrorOf(dot64(x, x), dot64(x, y), yy, f)}
		}
		t.countProgress(&t.encode, t.opts.FitProgress, hi-lo)
		return nil
	})
	// Sum per block of blockRows, and then the sums, as Encode does: so the bits do not depend on threads.
	var total encodeMeasure
	for block := range slices.Chunk(results, blockRows) {
		var sumSq float64
		for _, m := range block {
			total.factor = max(total.factor, m.factor)
			sumSq += m.sumSq
		}
		total.sumSq += sumSq
	}
	return total, err
}

// measureBlockRows is the number of vectors that a goroutine encodes at a time in a trial. It is less than
// blockRows, since a trial has few vectors.
const measureBlockRows = 128

// bf16Bytes returns x rounded to bfloat16, little-endian.
func bf16Bytes(x []float32) []byte {
	data := make([]byte, 0, 2*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint16(data, kernels.BF16FromF32(v))
	}
	return data
}
