package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rules that take no risk find the best, and look at fewer cells than there are.
func TestRulesFindTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	c := &cells{width: 32, wanted: make([]bool, 400)}
	level := make([]float32, c.len())
	for i := range level {
		level[i] = rng.Float32() / 2
	}
	slices.Sort(level)
	slices.Reverse(level)
	for i := range c.len() * c.width {
		c.approx = append(c.approx, level[i/c.width])
		c.exact = append(c.exact, level[i/c.width]+rng.Float32()/4)
	}
	sums := make([]float64, c.len())
	for i := range sums {
		sums[i] = c.total(c.exact, i)
	}
	want := best(sums, 10)
	for _, r := range rules {
		got := reveals{step: r.step, touched: make([]bool, c.len())}
		require.ElementsMatch(t, want, r.find(c, &got, 10, 4), r.name)
		require.Less(t, got.whole*c.width+got.steps*r.step, c.len()*c.width, r.name)
	}
}
