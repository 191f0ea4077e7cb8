package kernels

import "fmt"

// Bound says which errors of coarse scores a search allows for when it decides
// which documents to score again. Scores that are returned are fine ones either way.
type Bound int

const (
	// Probable takes the roundings of a query as what they are: independent, each
	// as likely up as down (Higham and Mary, "A new approach to probabilistic
	// rounding error analysis", SIAM Journal on Scientific Computing 41(5), 2019).
	// That a document is missed has then a probability of at most 1e-9 a query.
	// Each search compares the bound with the errors that it sees, and goes on
	// with Worst where they come near.
	Probable Bound = iota
	// Worst adds up the largest error of each rounding: no document is missed.
	Worst
)

var boundNames = []string{Probable: "probable", Worst: "worst"}

func (b Bound) String() string {
	if b < 0 || int(b) >= len(boundNames) {
		return fmt.Sprintf("Bound(%d)", int(b))
	}
	return boundNames[b]
}

// Deviations is λ of [Probable]. Of independent errors within ±h_i, each of mean 0,
// the sum is below −λ·√Σh_i² with a probability of at most exp(−λ²/2) (Hoeffding,
// "Probability inequalities for sums of bounded random variables", 1963, theorem 2):
// 1e-9 over as many documents as there are ordinals, λ = √(2·ln(2³²·10⁹)).
const Deviations = 9.27

// NearBound is the share of a Probable bound that an error must not exceed. Where
// one does, the roundings are not those of [Probable], and a search takes Worst.
const NearBound = 0.5

// Shortfall bounds by how much a coarse score may be below the fine score of the
// same document. Only that can hide a document: with k fine scores at hand, of
// which the lowest is m, one whose coarse score is below m by more has no place
// among the best. And it takes no more than the tokens that give the fine score,
// which do not depend on coarse roundings: coarse maxima can only be larger.
type Shortfall struct {
	Fixed  float64 // for any document
	Factor float64 // times the largest |factor| of the document's tokens
}

// Of is the bound for a document whose largest |factor| is given.
func (s Shortfall) Of(factor float32) float64 { return s.Fixed + float64(s.Factor*float64(factor)) }
