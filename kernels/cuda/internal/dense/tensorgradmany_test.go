package dense

import (
	"fmt"
	"testing"

	"github.com/plaid-ir/plaid/internal/testing/maxsimtest"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Many queries, whose tokens are more than a block holds at a time; lists that are made by several
// blocks; few rows of queries with many pairs.
func TestManyGradientsInPlace(t *testing.T) {
	c := fakeCard(t, 1<<26)
	manyGradients(t, c, []int{8})
}

func manyGradients(t *testing.T, c *card, dims []int) {
	rng := maxsimtest.Rand(91)
	floats := []maxsim.Type{maxsim.F16, maxsim.F32, maxsim.BF16}
	many := make([]int32, 20_000)
	other := make([]int32, len(many))
	for i := range many {
		many[i], other[i] = int32(rng.IntN(300)*rng.IntN(2)), int32(rng.IntN(7))
	}
	for i, dim := range dims {
		kind := floats[i%3]
		for _, normalize := range []bool{false, true} {
			for n, x := range []gradTest{
				{q: layout{lengths: equal(12, 1000)}, d: layout{lengths: []int{70, 3, 0}, packed: true}},
				{q: layout{lengths: equal(300, 3), apart: 1}, d: layout{lengths: equal(7, 70)}},
				{q: layout{lengths: equal(300, 20)}, d: layout{lengths: []int{200, 128, 3}, packed: true}, winStep: 3},
				{q: layout{lengths: equal(40, 300)}, d: layout{lengths: equal(1, 100)}, winStep: 2},
				{q: layout{lengths: equal(300, 3), packed: true}, d: layout{lengths: []int{9, 1, 0, 5, 5, 5, 80}, packed: true}, pairs: maxsim.Listed(many, other)},
				{q: layout{lengths: equal(1, 9)}, d: layout{lengths: ragged(1000, 0, 9), packed: true}},
				{q: layout{lengths: equal(2, 33)}, d: layout{lengths: ragged(1000, 0, 9), packed: true, lead: 1}, pairs: maxsim.OwnDocuments(500)},
			} {
				x.qType, x.dType, x.out, x.dim = kind, kind, [2]maxsim.Type{kind, kind}, dim
				x.upstream, x.normalize = true, normalize
				t.Run(fmt.Sprintf("%d,dim%d,normalize=%v", n, dim, normalize), func(t *testing.T) { c.checkGradients(t, rng, &x) })
			}
		}
	}
}

// randomGradients are problems of any kind, among them documents that win much and tokens of
// theirs that win nothing.
func randomGradients(t *testing.T, c *card, n int) {
	rng := maxsimtest.Rand(97)
	floats := []maxsim.Type{maxsim.F32, maxsim.F16, maxsim.BF16}
	side := func(items, longest int) layout {
		switch rng.IntN(3) {
		case 0:
			return layout{lengths: equal(items, 1+rng.IntN(longest)), apart: rng.IntN(3)}
		case 1:
			return layout{lengths: ragged(items, 0, longest), packed: true, lead: rng.IntN(3), tail: rng.IntN(3)}
		default:
			return layout{lengths: ragged(items, 0, longest), masked: 0.2}
		}
	}
	for i := range n {
		queries, own := 1+rng.IntN(9), 1+rng.IntN(3)
		x := &gradTest{
			q: side(queries, 40), d: side(queries*own, 1+rng.IntN(200)), dim: []int{4, 20, 132}[rng.IntN(3)],
			qType: floats[rng.IntN(3)], dType: floats[rng.IntN(3)], off: rng.IntN(2), pairs: maxsim.All(),
			out:       [2]maxsim.Type{floats[rng.IntN(3)], floats[rng.IntN(3)]},
			winStep:   rng.IntN(5),
			normalize: rng.IntN(2) == 0, weights: rng.IntN(2) == 0, upstream: rng.IntN(2) == 0,
		}
		switch rng.IntN(3) {
		case 0:
			x.pairs = maxsim.OwnDocuments(own)
		case 1:
			list := [2][]int32{make([]int32, 1+rng.IntN(60)), nil}
			list[1] = make([]int32, len(list[0]))
			for k := range list[0] {
				list[0][k], list[1][k] = int32(rng.IntN(queries)), int32(rng.IntN(queries*own))
			}
			x.pairs, x.lost = maxsim.Listed(list[0], list[1]), rng.IntN(5)
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) { c.checkGradients(t, rng, x) })
	}
}

func TestRandomGradientsInPlace(t *testing.T) { randomGradients(t, fakeCard(t, 1<<24), 60) }
