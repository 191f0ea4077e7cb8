package kerneltest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/kernels"
)

// Run tests a backend against the oracle.
func Run(t *testing.T, b kernels.Backend) {
	for _, x := range []struct {
		name       string
		test       func(*testing.T, kernels.Backend)
		concurrent bool // the test uses several goroutines
	}{
		{"Shapes", testShapes, false},
		{"Lengths", testLengths, false},
		{"Precision", testPrecision, false},
		{"AllNegative", testAllNegative, false},
		{"Factors", testFactors, false},
		{"Weights", testWeights, false},
		{"Scales", testScales, false},
		{"Extremes", testExtremes, false},
		{"Outlier", testOutlier, false},
		{"Ties", testTies, false},
		{"Subsets", testSubsets, false},
		{"Several", testSeveral, false},
		{"Reuse", testReuse, false},
		{"Ranges", testRanges, true},
		{"Screen", testScreen, true},
		{"Concurrent", testConcurrent, true},
		{"BadInput", testBadInput, false},
		{"Nearest", testNearest, false},
	} {
		if x.concurrent || !effort.Brief() { // brief runs look for races, which one goroutine cannot have
			t.Run(x.name, func(t *testing.T) { x.test(t, b) })
		}
	}
}

// Check compares all scores of the documents of a case with the oracle.
func Check(t *testing.T, b kernels.Backend, c *Case, vectors, weights []float32) {
	t.Helper()
	checkScores(t, c, newScorer(t, b, c), vectors, weights, nil)
}

// newScorer returns a scorer of the case's codec, after validating the case.
func newScorer(t *testing.T, b kernels.Backend, c *Case) kernels.Scorer {
	t.Helper()
	require.NoError(t, c.Chunk.Validate(c.Codec))
	s, err := b.Scorer(c.Codec)
	require.NoError(t, err)
	return s
}

var levels = []kernels.Level{kernels.Fast, kernels.Fine}

// checkScores compares S, the centroid-only scores and both levels of MaxSim with
// the oracle, for the documents of a list. A nil list means all.
func checkScores(t *testing.T, c *Case, s kernels.Scorer, vectors, weights []float32, docs []uint32) {
	t.Helper()
	q := Prepare(t, s.NewQuery(), c.K, vectors, weights)
	require.Equal(t, len(vectors)/c.Dim, q.Len())
	approx := checkCentroidScores(t, c, q, vectors, weights)

	listed := docs
	if docs == nil {
		for i := range c.Chunk.Docs() {
			listed = append(listed, uint32(i))
		}
	}
	got := make([]float32, len(listed))
	q.Approx(got, c.Chunk, docs)
	for i, doc := range listed {
		approx.checkScore(t, c, got[i], int(doc))
	}
	want := make([]float64, len(listed))
	for i, doc := range listed {
		want[i], _ = kernels.OracleMaxSim(c.Codec, vectors, weights, c.Chunk, int(doc))
	}
	for _, level := range levels {
		q.MaxSim(got, c.Chunk, docs, level)
		bound := float64(q.ErrorBound(level))
		require.False(t, math.IsNaN(bound) || math.IsInf(bound, 0) || bound < 0, "error bound %g", bound)
		for i, doc := range listed {
			// InDelta would accept NaN as equal to NaN.
			if diff := math.Abs(float64(got[i]) - want[i]); !(diff <= bound+1e-30) {
				t.Fatalf("level %d, document %d of %d tokens: %g, oracle %g, bound %g",
					level, doc, c.Chunk.Offsets[doc+1]-c.Chunk.Offsets[doc], got[i], want[i], bound)
			}
			checkParts(t, c, q, int(doc), level, got[i])
		}
	}
	checkShortfall(t, c, q, docs, listed)
}

// checkShortfall checks that the differences between the levels are within both bounds.
func checkShortfall(t *testing.T, c *Case, q kernels.Query, docs, listed []uint32) {
	t.Helper()
	fast, fine := make([]float32, len(listed)), make([]float32, len(listed))
	q.MaxSim(fast, c.Chunk, docs, kernels.Fast)
	q.MaxSim(fine, c.Chunk, docs, kernels.Fine)
	for _, b := range []kernels.Bound{kernels.Probable, kernels.Worst} {
		shortfall := q.Shortfall(b)
		for _, v := range []float64{shortfall.Fixed, shortfall.Factor} {
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0) || v < 0, "%v: %+v", b, shortfall)
		}
		for i, doc := range listed {
			bound := shortfall.ForFactor(c.Codec.LargestFactor(c.Chunk, doc))
			if below := float64(fine[i]) - float64(fast[i]); !(below <= bound+1e-30) {
				t.Fatalf("document %d of %d tokens: level Fast %g, level Fine %g, bound %v %g",
					doc, c.Chunk.Offsets[doc+1]-c.Chunk.Offsets[doc], fast[i], fine[i], b, bound)
			}
		}
	}
}

// checkParts checks that a document scored in three ranges of tokens has the same score. The
// second range may be empty.
func checkParts(t *testing.T, c *Case, q kernels.Query, doc int, level kernels.Level, want float32) {
	t.Helper()
	lo, hi := int(c.Chunk.Offsets[doc]), int(c.Chunk.Offsets[doc+1])
	if lo == hi {
		return
	}
	maxima, rangeMaxima := make([]float64, q.Len()), make([]float64, q.Len())
	first := lo + (hi-lo)/3
	second := min(first+doc%2*(hi-lo)/2, hi)
	q.Maxima(maxima, c.Chunk, second, hi, level)
	for _, r := range [][2]int{{lo, first}, {first, second}} {
		q.Maxima(rangeMaxima, c.Chunk, r[0], r[1], level)
		kernels.MergeMaxima(maxima, rangeMaxima)
	}
	if got := q.TotalScore(maxima, level); math.Float32bits(got) != math.Float32bits(want) {
		t.Fatalf("level %d, document %d of %d tokens: %v in parts at %d and %d, %v at once",
			level, doc, hi-lo, got, first-lo, second-lo, want)
	}
}

// approxExpectation bounds centroid-only scores. They may differ from those of the oracle by
// half a percent of the widest column for each query token, and by the error of S; the
// maximum of a query token may count as the mean of its column if it is below that.
type approxExpectation struct {
	products  [][]float64 // [K][Lq], times the weights
	weights   []float32
	mean      []float64
	tolerance float64
}

// checkCentroidScores compares S with the oracle, and returns the expectation of
// centroid-only scores.
func checkCentroidScores(t *testing.T, c *Case, q kernels.Query, vectors, weights []float32) *approxExpectation {
	t.Helper()
	n := len(vectors) / c.Dim
	a := &approxExpectation{weights: weights, mean: make([]float64, n)}
	scores, stride := q.Scores()
	require.GreaterOrEqual(t, stride, n)
	row := make([]float32, c.Dim)
	var span float64
	lo, hi, allowed := make([]float64, n), make([]float64, n), make([]float64, n)
	for k := range c.K {
		c.Codec.Centroids.Rows(row, k, k+1)
		out := make([]float64, n)
		for s := range n {
			var p, abs float64
			for j, v := range row {
				x := float64(v) * float64(vectors[s*c.Dim+j])
				p += x
				abs += math.Abs(x)
			}
			bound := (abs + 1e-30) * 1e-5
			if diff := math.Abs(float64(scores[k*stride+s]) - p); !(diff <= bound) {
				t.Fatalf("S of centroid %d and query token %d is %g, not %g", k, s, scores[k*stride+s], p)
			}
			w := 1.0
			if weights != nil {
				w = float64(weights[s])
			}
			out[s] = p * w
			allowed[s] = max(allowed[s], bound*math.Abs(w))
			a.mean[s] += p * w / float64(c.K)
			if k == 0 {
				lo[s], hi[s] = p*w, p*w
			}
			lo[s], hi[s] = min(lo[s], p*w), max(hi[s], p*w)
		}
		a.products = append(a.products, out)
	}
	var size, inherited float64 // magnitude of the sums, which are rounded to float32; error of S
	for s := range n {
		span = max(span, hi[s]-lo[s])
		size += max(-lo[s], hi[s])
		inherited += allowed[s]
	}
	a.tolerance = float64(n)*span*0.005 + inherited + 1e-6*size + 1e-5
	return a
}

// checkScore checks the centroid-only score of a document.
func (a *approxExpectation) checkScore(t *testing.T, c *Case, got float32, doc int) {
	t.Helper()
	lo, hi := c.Chunk.Offsets[doc], c.Chunk.Offsets[doc+1]
	var low, high float64
	for s, mean := range a.mean {
		if lo == hi {
			break
		}
		negative := a.weights != nil && a.weights[s] < 0
		best := math.Inf(-1)
		if negative {
			best = math.Inf(1)
		}
		for tok := lo; tok < hi; tok++ {
			p := a.products[c.Chunk.Code(int(tok))][s]
			if negative {
				best = min(best, p)
			} else {
				best = max(best, p)
			}
		}
		low += best
		if negative {
			high += best
		} else {
			high += max(best, mean)
		}
	}
	if !(float64(got) >= low-a.tolerance && float64(got) <= high+a.tolerance) {
		t.Fatalf("approximate score of document %d of %d tokens is %g, not within %g of %g to %g",
			doc, hi-lo, got, a.tolerance, low, high)
	}
	if lo == hi && got != 0 {
		t.Fatalf("approximate score of empty document %d is %g", doc, got)
	}
}
