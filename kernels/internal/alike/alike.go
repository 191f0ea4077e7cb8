// Package alike estimates how many of a query's tokens are rounded alike. Roundings
// of independent numbers cancel when they are added up; those of tokens that are equal
// in many components do not.
package alike

// A Code is the magnitude of a component in quarters of a rounding step. Two
// components are rounded alike when their codes are less than about half a step apart:
// the correlation of two such roundings is 1 − 6δ + 6δ² at δ steps, and 0 at δ = 0.21.
type Code = uint16

// MaxCode is the largest code; larger components have it too.
const MaxCode Code = 1<<15 - 3

const (
	lanes   = 4                  // codes in a word
	samples = 16                 // components of each token that are compared first
	ones    = 0x0001000100010001 // 1 in each lane
	tops    = ones << 15         // the top bit of each lane
)

// Count compares pairs of up to maxTokens tokens, and at most maxWords words of codes. Each
// limit takes some 20 ms. Tests change them.
var (
	maxTokens = 1 << 12
	maxWords  = 1 << 24
)

// Counter counts tokens that are rounded alike. It reuses its memory from call to call.
type Counter struct {
	// Ended is called often, and stops Count when it returns true: the results are then
	// undefined. nil means that Count is never stopped.
	Ended func() bool

	sample, codes []uint64 // of each token: codes of a sample of its components, and of all
	ready         []bool   // by token: codes has its codes

	column []Code   // codes of one component of all tokens
	upTo   []uint32 // by code: number of smaller codes of the column
}

// Count writes into dst, for each of len(dst) tokens of dim components, the sum over
// all tokens of the share of components that are rounded alike: 1 for a token unlike all
// others, len(dst) if all tokens are equal. code returns the code of component j of token
// i; as it has no sign, opposite tokens are alike. Two shares count as 0: one of at most
// chance, because unrelated tokens have that many close components; and that of two tokens
// that agree in less than a quarter of a sample of 16 components.
//
// The sums bound common errors. If errors e with |e_i| ≤ s_i are common to tokens i
// and k by the share ρ_ik, Σ_ik ρ_ik·s_i·s_k ≤ Σ_i s_i²·dst[i], because s_i·s_k ≤ (s_i² + s_k²)/2.
//
// Comparing pairs takes time with the square of the number of tokens. For large queries, dst
// has the larger sums of countColumns.
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
	// 1. A sample of the components of each token, by which most pairs are unlike.
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
	// 2. All codes of the pairs that agree in the sample.
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
			if sampleWords == 4 { // for all vectors of more than 12 dimensions
				differing := differingLanes(x[0], y[0]) + differingLanes(x[1], y[1]) +
					differingLanes(x[2], y[2]) + differingLanes(x[3], y[3])
				if sampled-int(differing*ones>>48) < minAgreeing { // the product adds up the lanes
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

// countColumns writes sums into dst that are no smaller than those of Count: they include
// shares by chance, and all pairs. It needs no pairs: the tokens whose component j is rounded
// like that of token i are those whose code of j is at most two away, token i included. A
// histogram of the codes of each component counts them.
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
		// Entry x+3 counts code x; summed up, it is the number of codes of at most x.
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

// endedAt reports whether Count has been stopped. Loops over tokens call it for each token;
// it calls Ended only once every endedInterval tokens.
func (c *Counter) endedAt(token int) bool {
	return token&(endedInterval-1) == endedInterval-1 && c.Ended != nil && c.Ended()
}

// endedInterval is the number of tokens, of about a microsecond each, between two calls of
// Ended.
const endedInterval = 64

// codesOfToken returns the codes of token i. It computes them at the first call.
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

// countAgreeing counts, of n codes of x and y, those of x that are at most two below or one
// above that of y.
func countAgreeing(x, y []uint64, n int) int {
	var differing uint64
	y = y[:len(x)]
	for i, a := range x {
		differing += differingLanes(a, y[i])
	}
	return n - int(differing*ones>>48) // unused lanes of the last word agree
}

// differingLanes returns 1 in each lane of a that is not two below to one above that of b.
func differingLanes(a, b uint64) uint64 {
	// Lanes of a − b + 2 agree if they are 0 to 3, that is, if no other bit is set.
	off := (((a | tops) - b + 2*ones) ^ tops) &^ (3 * ones)
	return (((off &^ tops) + (tops - ones)) | off) >> 15 & ones
}

// resize returns a slice of length n with undefined contents, in the memory of s if its
// capacity allows.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
