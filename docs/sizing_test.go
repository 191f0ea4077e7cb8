package docs_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What was measured; scale.md says with which commands.
const (
	docTokens     = 130.0   // tokens a document: an assumption, passages of a hundred words
	dim           = 128.0   // components a token
	codeBytes     = 2.01    // bytes a token: codes of up to 65,536 centroids; twice as much beyond
	factorBytes   = 2.01    // the same: factors
	residualBytes = 16.005  // the same: residuals, for each bit a component
	postingBytes  = 1.4     // the same: posting lists
	otherBytes    = 0.5     // the same: ids, lengths, rest of pages
	centroidBytes = 260.0   // bytes a centroid, with its scale
	buildFLOPs    = 0.52e12 // of a build, a second of one core: SciFact, 2.41e13 in 46.3 processor seconds
	deviceFLOPs   = 223e12  // nearest centroids on an H200, from Go, with copies
	sampleTokens  = 0.8e6   // tokens of the training sample, for each GiB of --memory
	queryTokens   = 32.0

	// A search for 100 at 50,000,179 tokens and 65,536 centroids (lab/search-quality.md), in
	// milliseconds of one core: centroid scores, probing, approximate scores, exact scores.
	scoresAt50, probeAt50, approxAt50, exactAt50 = 3.46, 5.33, 3.77, 5.95
	tokensAt50, centroidsAt50                    = 50_000_179.0, 65_536.0
)

// size is what so many documents need.
type size struct{ docs, memoryGiB float64 }

func (s size) tokens() float64 { return s.docs * docTokens }
func (s size) centroids() float64 {
	return math.Exp2(math.Floor(math.Log2(16 * math.Sqrt(s.tokens()))))
}

func (s size) hotBytes() float64 {
	code := codeBytes
	if s.centroids() > 1<<16 {
		code *= 2
	}
	return s.tokens()*(code+postingBytes) + s.centroids()*centroidBytes
}

func (s size) fileBytes(nbits float64) float64 {
	return s.hotBytes() + s.tokens()*(factorBytes+residualBytes*nbits+otherBytes)
}

// flops are those of finding nearest centroids: four rounds over the sample, one over 256 tokens a
// centroid, and the encoding of all.
func (s size) flops() float64 {
	sample := min(16*math.Sqrt(120*s.docs)*docTokens, sampleTokens*s.memoryGiB)
	return (4*sample + min(256*s.centroids(), s.tokens()) + s.tokens()) * 2 * s.centroids() * dim
}

// searchMS scales the stages by what they go with: centroids; postings that are read; the budgets,
// which do not grow.
func (s size) searchMS() float64 {
	k := s.centroids() / centroidsAt50
	return scoresAt50*k + probeAt50*(s.tokens()/tokensAt50)/k + approxAt50 + exactAt50
}

func gb(bytes float64) string {
	if bytes < 1e9 {
		return significant(bytes/1e6, 2) + " MB"
	}
	return significant(bytes/1e9, 2) + " GB"
}

func hours(seconds float64) string {
	switch {
	case seconds < 100:
		return significant(seconds, 2) + " s"
	case seconds < 3600:
		return significant(seconds/60, 2) + " minutes"
	}
	return significant(seconds/3600, 2) + " hours"
}

// The table of scale.md follows from what was measured.
func TestSizing(t *testing.T) {
	page, err := os.ReadFile("scale.md")
	require.NoError(t, err)
	sizes := []size{{1e6, 1}, {10e6, 8}, {100e6, 64}}
	for _, row := range []struct {
		name string
		of   func(size) string
	}{
		{"tokens", func(s size) string { return thousands(s.tokens()) }},
		{"centroids", func(s size) string { return thousands(s.centroids()) }},
		{"file, 2 bits", func(s size) string { return gb(s.fileBytes(2)) }},
		{"file, 4 bits", func(s size) string { return gb(s.fileBytes(4)) }},
		{"page cache, at least", func(s size) string { return gb(s.hotBytes()) }},
		{"memory of a query", func(s size) string { return gb(8*s.centroids()*queryTokens + 8*s.docs) }},
		{"build, one core", func(s size) string { return hours(s.flops() / buildFLOPs) }},
		{"build, 64 cores", func(s size) string { return hours(s.flops() / buildFLOPs / 64) }},
		{"build, nearest centroids on an H200", func(s size) string { return hours(s.flops() / deviceFLOPs) }},
		{"search, k = 100, one core", func(s size) string { return significant(s.searchMS(), 2) + " ms" }},
	} {
		line := "| " + row.name
		for _, s := range sizes {
			line += " | " + row.of(s)
		}
		assert.Contains(t, string(page), line+" |\n")
	}
}

// significant writes a number with so many digits that mean something.
func significant(x float64, digits int) string {
	unit := math.Pow(10, math.Floor(math.Log10(x))-float64(digits-1))
	x = math.Round(x/unit) * unit
	if unit < 1 {
		return fmt.Sprintf("%.*f", int(math.Round(-math.Log10(unit))), x)
	}
	return thousands(x)
}

// thousands writes a whole number with commas.
func thousands(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
