package metadata

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/mergepolicy"
)

// SmallLimits sets every limit of what is kept to a number.
func SmallLimits(t testing.TB, n int) {
	limits := []*int{&maxDepth, &maxFields, &maxFieldName, &maxText, &textPrefix, &blockDocs, &blockBytes, &inlineBytes, &scanBlock}
	was := make([]int, len(limits))
	merges, largest := runMerges, largestRun
	for i, limit := range limits {
		was[i], *limit = *limit, n
	}
	runMerges, largestRun = mergepolicy.Policy{Largest: 8 * uint64(n)}, 2000*int64(n)
	t.Cleanup(func() {
		for i, limit := range limits {
			*limit = was[i]
		}
		runMerges, largestRun = merges, largest
	})
}

// FormerRun has the values of a run as former versions made it when documents were added
// to older ones: what had been left out of these was taken for NULL.
func FormerRun(t testing.TB, older, newer map[uint32][]byte) *Values {
	build := func(payloads map[uint32][]byte) *Builder {
		b := &Builder{}
		for ordinal, p := range payloads {
			b.Add(context.Background(), ordinal, p)
		}
		return b
	}
	o, values := build(older), map[string][]byte{}
	noError := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	noError(o.Write(func(key, value []byte) error { values[string(key)] = value; return nil }))
	run, err := Open(func(key []byte) ([]byte, error) { return values[string(key)], nil }, o.tells())
	noError(err)
	b := build(newer)
	noError(b.absorbValues(context.Background(), run, run.Docs()))
	b.formless = true
	leftOut := !b.leftOut.IsEmpty()
	b.leftOut.Clear()
	for _, c := range b.fields {
		c.signZeros()
	}
	g := Gatherer{builder: *b}
	v, err := g.Run()
	noError(err)
	if leftOut {
		head := slices.IndexFunc(v.Keys, func(key []byte) bool { return string(key) == string(keyHead) })
		v.Values[head][0] = formerRun
	}
	return v
}

// signZeros gives some zeros a sign.
func (c *column) signZeros() {
	zero := slices.IndexFunc(c.entries, func(e entry) bool { return e.Kind == condition.Real && e.Real == 0 })
	if zero < 0 {
		return
	}
	negative := c.entries[zero]
	negative.Real = math.Copysign(0, -1)
	number := uint32(len(c.entries))
	for i := range c.pairs {
		if c.pairs[i] == uint32(zero) && c.docs[i]%2 == 1 {
			c.pairs[i] = number
		}
	}
	if slices.Contains(c.pairs, number) {
		c.entries = append(c.entries, negative)
	}
	if !slices.Contains(c.pairs, uint32(zero)) { // all have: no entry is without documents
		for i := range c.pairs {
			if c.pairs[i] == number {
				c.pairs[i] = uint32(zero)
			}
		}
		c.entries = c.entries[:number]
		c.entries[zero] = negative
	}
}

// PayloadsPerBlock sets for how many documents a block of values their payloads are read,
// and returns what sets it back.
func PayloadsPerBlock(n uint64) (back func()) {
	was := payloadsPerBlock
	payloadsPerBlock = n
	return func() { payloadsPerBlock = was }
}
