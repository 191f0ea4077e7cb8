// Package alike estimates how many of a query's tokens are rounded alike. Roundings
// of independent numbers cancel when they are added up; those of tokens that are the
// same in many components do not.
package alike

// A Code is the size of a component in quarters of a rounding step. Two
// components are rounded alike when their codes are less than about half a step apart:
// the correlation of two such roundings is 1 − 6δ + 6δ² at δ steps, and 0 at δ = 0.21.
type Code = uint16

// MaxCode is the largest code; larger components have it too.
const MaxCode Code = 1<<15 - 3

const (
	lanes   = 4
	samples = 16
	ones    = 0x0001000100010001
	tops    = ones << 15
)

// Pairs of tokens are compared one by one up to maxTokens, unless more than maxWords of
// codes have to be looked at, four to a word: some 20 ms each. Variables, for tests.
var (
	maxTokens = 1 << 12
	maxWords  = 1 << 24
)

// Counter has the scratch of calls that follow one another.
type Counter struct {
	// Ended, where set, is asked all the time whether to give up: then what Count writes means
	// nothing.
	Ended func() bool

	sample, codes []uint64
	ready         []bool // whose codes are there

	column []Code   // one component of all tokens
	upTo   []uint32 // by code: how many of a column are smaller
}

// Count writes into dst, for each of len(dst) tokens of dim components, the sum over
// all tokens of the share of components that are rounded alike: 1 for a token that has
// no like, len(dst) where all are the same. The code of component j of token i is of
// its size, so that opposite tokens are alike. A share of up to chance is taken for
// none: so many components of unrelated tokens are close to each other; and so are two
// tokens that agree in less than a quarter of 16 components that are looked at first.
//
// For errors e with |e_i| ≤ s_i of which the share ρ_ik is common to i and k, the sum
// has Σ_ik ρ_ik·s_i·s_k ≤ Σ_i s_i²·dst[i], because s_i·s_k ≤ (s_i² + s_k²)/2.
//
// That takes the square of the number of tokens. Where it would be much, dst has the
// larger sums that countColumns finds.
func (c *Counter) Count(dst []float32, dim int, chance float64, code func(i, j int) Code) {
	n, words := len(dst), (dim+lanes-1)/lanes
	for i := range dst {
		dst[i] = 1
	}
	if n < 2 {
		return
	}
	if n > maxTokens {
		c.countColumns(dst, dim, code)
		return
	}
	// A few components of each first: most tokens have no like.
	sampled := min(dim, samples)
	sampleWords, stride := (sampled+lanes-1)/lanes, dim/sampled
	c.sample = resize(c.sample, n*sampleWords)
	c.codes = resize(c.codes, n*words)
	c.ready = resize(c.ready, n)
	clear(c.sample)
	clear(c.ready)
	for i := range n {
		if c.endedAt(i) {
			return
		}
		for j := range sampled {
			c.sample[i*sampleWords+j/lanes] |= uint64(code(i, j*stride)) << (j % lanes * 16)
		}
	}
	minAgreeing := sampled / 4
	scale := 1 / (1 - chance)
	remainingWords := maxWords
	for i := 1; i < n; i++ {
		if c.endedAt(i) {
			return
		}
		x := c.sample[i*sampleWords : (i+1)*sampleWords]
		for k := range i {
			y := c.sample[k*sampleWords : (k+1)*sampleWords]
			if sampleWords == 4 { // as nearly always
				differing := differingLanes(x[0], y[0]) + differingLanes(x[1], y[1]) + differingLanes(x[2], y[2]) + differingLanes(x[3], y[3])
				if sampled-int(differing*ones>>48) < minAgreeing {
					continue
				}
			}
			if remainingWords -= words; remainingWords < 0 {
				c.countColumns(dst, dim, code)
				return
			}
			a := c.codesOfToken(i, dim, words, code)
			b := c.codesOfToken(k, dim, words, code)
			if share := float64(countAgreeing(a, b, dim))/float64(dim) - chance; share > 0 {
				dst[i] += float32(share * scale)
				dst[k] += float32(share * scale)
			}
		}
	}
}

// countColumns writes sums into dst that are not below those of Count: what is shared
// by chance counts too, and every pair. Added up over all tokens, the components that
// are rounded alike need no pairs: those like component j of token i are the tokens
// whose code there is at most two away, itself included.
func (c *Counter) countColumns(dst []float32, dim int, code func(i, j int) Code) {
	c.column = resize(c.column, len(dst))
	clear(dst)
	for j := range dim {
		largest := Code(0)
		for i := range c.column {
			if c.endedAt(i) {
				return
			}
			c.column[i] = code(i, j)
			largest = max(largest, c.column[i])
		}
		// Entry x+3 is how many codes are x or less, once all are counted and added up.
		c.upTo = resize(c.upTo, int(largest)+6)
		clear(c.upTo)
		for _, x := range c.column {
			c.upTo[x+3]++
		}
		for x := 1; x < len(c.upTo); x++ {
			c.upTo[x] += c.upTo[x-1]
		}
		for i, x := range c.column {
			dst[i] += float32(c.upTo[x+5] - c.upTo[x])
		}
	}
	for i := range dst {
		dst[i] = dst[i] / float32(dim) * (1 + 1e-3) // float32 sums of up to 4,096 counts
	}
}

// endedAt tells, every so many tokens, whether to give up.
func (c *Counter) endedAt(token int) bool {
	return token&(endedInterval-1) == endedInterval-1 && c.Ended != nil && c.Ended()
}

// endedInterval is how many tokens are counted, a microsecond or some each, between two questions.
const endedInterval = 64

// codesOfToken returns the codes of token i.
func (c *Counter) codesOfToken(i, dim, words int, code func(i, j int) Code) []uint64 {
	x := c.codes[i*words : (i+1)*words]
	if !c.ready[i] {
		c.ready[i] = true
		clear(x)
		for j := range dim {
			x[j/lanes] |= uint64(code(i, j)) << (j % lanes * 16)
		}
	}
	return x
}

// countAgreeing counts the n codes of x and y of which x's is at most two below y's, or one
// above, four at a time.
func countAgreeing(x, y []uint64, n int) int {
	var differing uint64
	y = y[:len(x)]
	for i, a := range x {
		differing += differingLanes(a, y[i])
	}
	return n - int(differing*ones>>48) // what fills the last word agrees
}

// differingLanes has 1 in each lane that does not agree.
func differingLanes(a, b uint64) uint64 {
	off := (((a | tops) - b + 2*ones) ^ tops) &^ (3 * ones)
	return (((off &^ tops) + (tops - ones)) | off) >> 15 & ones
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
