package eval

import (
	"cmp"
	"math"
	"slices"
)

// KendallTau returns the rank correlation tau-b (Kendall, "The treatment of ties
// in ranking problems", Biometrika 33, 1945) of two rankings over the documents
// common to both: 1 for the same order, −1 for the opposite one. Pairs that either
// ranking ties are taken out of its part of the denominator.
//
// Under [TiesTREC] two documents are tied when their scores are equal as float32;
// under [TiesTREC10] as
// float64; under [TiesRank] there are none. ok is false, and tau 0, where the coefficient
// is undefined: fewer than 2 common documents, or a ranking that ties them all. A
// document repeated within a ranking counts at its first place in the slice.
//
// The time is O(n log n) (Knight, JASA 61, 1966).
func KendallTau(a, b []Hit, ties Ties) (tau float64, ok bool) {
	inB := ties.heights(b)
	var common []heightPair
	for doc, height := range ties.heights(a) {
		if other, ok := inB[doc]; ok {
			common = append(common, heightPair{height, other})
		}
	}
	slices.SortFunc(common, func(x, y heightPair) int {
		return cmp.Or(cmp.Compare(x.a, y.a), cmp.Compare(x.b, y.b))
	})
	tiedA := tiedPairs(common, func(x, y heightPair) bool { return x.a == y.a })
	tiedBoth := tiedPairs(common, func(x, y heightPair) bool { return x == y })

	// In the order of a, what stands inverted in b is discordant.
	second := make([]float64, len(common))
	for i, pair := range common {
		second[i] = pair.b
	}
	discordant := sortCounting(second, make([]float64, len(second)))
	tiedB := tiedPairs(second, func(x, y float64) bool { return x == y })

	pairs := len(common) * (len(common) - 1) / 2
	if pairs == tiedA || pairs == tiedB {
		return 0, false
	}
	concordant := pairs - tiedA - tiedB + tiedBoth - discordant
	return float64(concordant-discordant) / math.Sqrt(float64(pairs-tiedA)*float64(pairs-tiedB)), true
}

// heightPair is what two rankings say of a document.
type heightPair struct{ a, b float64 }

// heights gives each document a number that is the greater the higher it ranks,
// and equal for documents that are tied.
func (t Ties) heights(hits []Hit) map[string]float64 {
	if t == TiesRank {
		hits = t.sort(slices.Clone(hits))
	}
	heights := make(map[string]float64, len(hits))
	for i, h := range hits {
		if _, ok := heights[h.Doc]; ok {
			continue
		}
		if t == TiesRank {
			heights[h.Doc] = float64(-i)
		} else {
			heights[h.Doc] = t.score(h)
		}
	}
	return heights
}

// tiedPairs counts the pairs of equal elements in a sorted slice.
func tiedPairs[T any](sorted []T, equal func(x, y T) bool) int {
	pairs, run := 0, 0
	for i := 1; i < len(sorted); i++ {
		if equal(sorted[i-1], sorted[i]) {
			run++
			pairs += run
		} else {
			run = 0
		}
	}
	return pairs
}

// sortCounting sorts v by merging and returns the number of pairs that stood in
// falling order. scratch is as long as v.
func sortCounting(v, scratch []float64) int {
	if len(v) < 2 {
		return 0
	}
	half := len(v) / 2
	left, right := v[:half], v[half:]
	inversions := sortCounting(left, scratch[:half]) + sortCounting(right, scratch[half:])
	merged := scratch[:0]
	for len(left) > 0 && len(right) > 0 {
		if right[0] < left[0] {
			inversions += len(left)
			merged, right = append(merged, right[0]), right[1:]
		} else {
			merged, left = append(merged, left[0]), left[1:]
		}
	}
	merged = append(append(merged, left...), right...)
	copy(v, merged)
	return inversions
}
