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

// spread is a collection of a cluster.
type spread struct {
	size
	shards float64
}

const (
	replicas      = 2.0
	bitsOfCluster = 4.0
	nodeCache     = 48e9 // bytes of the page cache of a node with 64 GB
	fewestNodes   = 3.0
	month         = 30 * 24 * 3600.0
	// At rest, each node puts its beat, and lists those of others and the maps, every 3 s; and lists the log of
	// each of its replicas every 6 minutes (collection/cluster).
	beatRequests, beatSeconds, pollSeconds = 3.0, 3.0, 360.0
	// Dollars: a request to S3, and a gigabyte there for a month.
	requestPrice, gigabytePrice = 5e-6, 0.023
)

// each shard has all centroids.
func (s spread) extraBytes() float64  { return (s.shards - 1) * s.centroids() * centroidBytes }
func (s spread) storedBytes() float64 { return s.fileBytes(bitsOfCluster) + s.extraBytes() }
func (s spread) cachedBytes() float64 { return replicas * (s.hotBytes() + s.extraBytes()) }
func (s spread) nodes() float64       { return max(fewestNodes, math.Ceil(s.cachedBytes()/nodeCache)) }
func (s spread) requests() float64 {
	return requestsAtRest(s.nodes(), s.shards) * month
}

func requestsAtRest(nodes, shards float64) float64 {
	return nodes*beatRequests/beatSeconds + shards*replicas/pollSeconds
}

// objects are those of a collection that was built at once: a checkpoint a shard; codec, map, secret, and the nodes.
func (s spread) objects() float64 { return s.shards + 3 + s.nodes() }

// The table of cluster.md follows from that of scale.md.
func TestClusterSizing(t *testing.T) {
	page, err := os.ReadFile("cluster.md")
	require.NoError(t, err)
	all := []spread{{size{docs: 1e9 / docTokens}, 4}, {size{docs: 10e9 / docTokens}, 16}}
	for _, row := range []struct {
		name string
		of   func(spread) string
	}{
		{"shards", func(s spread) string { return thousands(s.shards) }},
		{"centroids", func(s spread) string { return thousands(s.centroids()) }},
		{"in the store", func(s spread) string { return gb(s.storedBytes()) }},
		{"nodes", func(s spread) string { return thousands(s.nodes()) }},
		{"cache on the disk of a node", func(s spread) string { return gb(replicas * s.storedBytes() / s.nodes()) }},
		{"page cache of a node, at least", func(s spread) string { return gb(s.cachedBytes() / s.nodes()) }},
		{"objects after a build", func(s spread) string { return thousands(s.objects()) }},
		{"requests a month, without changes", func(s spread) string { return significant(s.requests()/1e6, 2) + " million" }},
		{"the store a month", func(s spread) string {
			return significant(s.requests()*requestPrice+s.storedBytes()/1e9*gigabytePrice, 2) + " dollars"
		}},
	} {
		line := "| " + row.name
		for _, s := range all {
			line += " | " + row.of(s)
		}
		assert.Contains(t, string(page), line+" |\n")
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	assert.Contains(t, text, fmt.Sprintf("it is %s requests a second.", significant(requestsAtRest(8, 1600), 2)))
	assert.Contains(t, text, fmt.Sprintf("20 puts a second if one takes 50 ms: %s dollars a month.", significant(20*month*requestPrice, 2)))
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
