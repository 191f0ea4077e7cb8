package eval

import (
	"cmp"
	"slices"
)

// Holm corrects the p-values of several tests so that the chance of one false
// positive or more among them stays below the level that they are held against
// ("A simple sequentially rejective multiple test procedure", Scandinavian Journal
// of Statistics 6, 1979). The i-th smallest of m, from 1, becomes the greatest of
// (m−j+1)·p_j over j ≤ i, but 1 at most. The values come back in the order of ps,
// which is left alone. A p that is not from 0 to 1 wraps [ErrParameter].
func Holm(ps []float64) ([]float64, error) {
	order := make([]int, len(ps))
	for i, p := range ps {
		if !(p >= 0 && p <= 1) {
			return nil, badParameter("p-value %d is %v: want 0 to 1", i, p)
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(ps[i], ps[j]) })
	adjusted := make([]float64, len(ps))
	greatest := 0.0
	for rank, i := range order {
		greatest = max(greatest, min(1, float64(len(ps)-rank)*ps[i]))
		adjusted[i] = greatest
	}
	return adjusted, nil
}
