package compressed

import (
	"math"
	"math/rand/v2"
	"sort"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/kerneltest"
	"github.com/plaid-ir/plaid/kernels"
)

// corpus is an index in memory.
type corpus struct {
	codec   *kernels.Codec
	lineage uint64
	chunks  []*kernels.Chunk
	firsts  []uint32
	live    []uint64
	loads   int
}

func newCorpus(codec *kernels.Codec, chunks ...*kernels.Chunk) *corpus {
	c := &corpus{codec: codec}
	for _, ch := range chunks {
		c.firsts = append(c.firsts, uint32(c.docs()))
		c.chunks = append(c.chunks, ch)
	}
	c.live = make([]uint64, (c.docs()+63)/64)
	for d := range c.docs() {
		ch, i := c.at(uint32(d))
		if ch.Offsets[i] < ch.Offsets[i+1] {
			c.live[d/64] |= 1 << (d % 64)
		}
	}
	return c
}

func (c *corpus) docs() int {
	n := 0
	for _, ch := range c.chunks {
		n += ch.Docs()
	}
	return n
}

func (c *corpus) at(doc uint32) (*kernels.Chunk, int) {
	i := sort.Search(len(c.firsts), func(i int) bool { return c.firsts[i] > doc }) - 1
	for c.chunks[i].Docs() == 0 {
		i--
	}
	return c.chunks[i], int(doc - c.firsts[i])
}

func (c *corpus) Codec() *kernels.Codec              { return c.codec }
func (c *corpus) Lineage() uint64                    { return c.lineage }
func (c *corpus) Chunks() int                        { return len(c.chunks) }
func (c *corpus) ChunkDocs(i int) (uint32, []uint32) { return c.firsts[i], c.chunks[i].Offsets }
func (c *corpus) Load(i int) (*kernels.Chunk, error) { c.loads++; return c.chunks[i], nil }
func (c *corpus) LiveSet() (set []uint64, count int) { return c.live, c.docs() }
func (c *corpus) Guard(read func() error) error      { return read() }
func (c *corpus) isLive(d uint32) bool               { return c.live[d/64]>>(d%64)&1 == 1 }
func (c *corpus) drop(d uint32)                      { c.live[d/64] &^= 1 << (d % 64) }
func (c *corpus) exact(q, w []float32, d uint32) float64 {
	ch, i := c.at(d)
	s, _ := kernels.OracleMaxSim(c.codec, q, w, ch, i)
	return s
}

// split cuts the chunk of a case into chunks of some documents each.
func split(cs *kerneltest.Case, rng *rand.Rand, parts int) []*kernels.Chunk {
	ch := cs.Chunk
	cuts := []int{0, ch.Docs()}
	for range parts - 1 {
		cuts = append(cuts, rng.IntN(ch.Docs()+1))
	}
	sort.Ints(cuts)
	var out []*kernels.Chunk
	row := cs.Codec.RowBytes()
	for i := range len(cuts) - 1 {
		lo, hi := int(ch.Offsets[cuts[i]]), int(ch.Offsets[cuts[i+1]])
		c := &kernels.Chunk{
			Offsets: []uint32{0}, CodeBytes: ch.CodeBytes, Codes: ch.Codes[lo*ch.CodeBytes : hi*ch.CodeBytes],
			Factors: ch.Factors[2*lo : 2*hi], Residuals: ch.Residuals[lo*row : hi*row],
		}
		for d := cuts[i]; d < cuts[i+1]; d++ {
			c.Offsets = append(c.Offsets, ch.Offsets[d+1]-ch.Offsets[cuts[i]])
		}
		out = append(out, c)
	}
	return out
}

// checker is a test, of testing or of rapid.
type checker interface {
	require.TestingT
	Helper()
}

// requireBest holds an answer against the oracle: scores within tolerance, and
// no document left out that is better by more than that.
func requireBest(t checker, c *corpus, q *kernels.DeviceQuery, a kernels.DeviceAnswer, from []uint32, tolerance float64) {
	t.Helper()
	if from == nil {
		for d := range c.docs() {
			if c.isLive(uint32(d)) && (q.Allowed == nil || q.Allowed[d/64]>>(d%64)&1 == 1) {
				from = append(from, uint32(d))
			}
		}
	}
	exact := map[uint32]float64{}
	var all []float64
	for _, d := range from {
		exact[d] = c.exact(q.Vectors, q.Weights, d)
		all = append(all, exact[d])
	}
	sort.Sort(sort.Reverse(sort.Float64Slice(all)))
	require.Len(t, a.Docs, min(q.K, len(from)))
	last := math.Inf(1)
	for i, d := range a.Docs {
		want, ok := exact[d]
		require.True(t, ok, "document %d may not be returned", d)
		require.InDelta(t, want, a.Scores[i], tolerance, "document %d", d)
		require.InDelta(t, all[i], a.Scores[i], tolerance, "place %d", i)
		require.LessOrEqual(t, float64(a.Scores[i]), last)
		if i > 0 && a.Scores[i] == a.Scores[i-1] {
			require.Less(t, a.Docs[i-1], d, "equal scores")
		}
		last = float64(a.Scores[i])
	}
}

func lengths(rng *rand.Rand, n, most int) []int {
	l := make([]int, n)
	for i := range l {
		if l[i] = rng.IntN(most + 1); rng.IntN(8) == 0 {
			l[i] = 0
		}
	}
	return l
}
