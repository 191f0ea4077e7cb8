package search

import (
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// collection is what a call searches: one index at one moment, or several that have
// the same codec.
type collection struct {
	parts []part
}

// part is one index of a collection. Searches number the documents of several parts
// one part after the other, each from a multiple of reachBlock on, so that a block
// belongs to one part. A number has 32 bits. Where those do not suffice the parts
// make several groups, each with numbers from 0 on, which are searched in turn.
type part struct {
	snap *index.Snapshot
	at   int    // place in the collection
	base uint32 // number of the first document, 0 where a group begins
}

// collectionOf numbers the documents of snapshots.
func collectionOf(snaps ...*index.Snapshot) *collection {
	c := &collection{parts: make([]part, len(snaps))}
	next := uint64(0)
	for i, s := range snaps {
		docs := (uint64(s.State().Docs) + reachBlock - 1) / reachBlock * reachBlock
		if next+docs > maxNumbers {
			next = 0
		}
		c.parts[i] = part{snap: s, at: i, base: uint32(next)}
		next += max(docs, reachBlock) // also of an empty part: its base is its own
	}
	return c
}

// maxNumbers is how many documents of a group can be numbered. A variable, so that
// tests see groups.
var maxNumbers uint64 = 1 << 32

// group are the parts from one on that are numbered together.
func (c *collection) group(from int) group {
	to := from + 1
	for to < len(c.parts) && c.parts[to].base > 0 {
		to++
	}
	return c.parts[from:to]
}

// hasPassages reports whether any document is stored as passages.
func (c *collection) hasPassages() bool {
	return slices.ContainsFunc(c.parts, func(p part) bool { return !p.snap.Passages().IsEmpty() })
}

// first stands for all parts, where they do not differ.
func (c *collection) first() *index.Snapshot { return c.parts[0].snap }

// codec is that of all parts.
func (c *collection) codec() *kernels.Codec { return c.first().Codec() }

func (c *collection) live() (docs int64, tokens uint64) {
	for i := range c.parts {
		s := c.parts[i].snap.State()
		docs += int64(s.Live)
		tokens += s.LiveTokens
	}
	return docs, tokens
}

// versions tell states of a collection apart.
func (c *collection) versions() []uint64 {
	v := make([]uint64, len(c.parts))
	for i := range v {
		v[i] = c.parts[i].snap.Version()
	}
	return v
}

// chunkOf is the chunk that has the tokens of a document, and its place in there.
func chunkOf(snap *index.Snapshot, ordinal uint32) (ch *kernels.Chunk, doc int, err error) {
	chunk, doc, _ := snap.Locate(ordinal)
	ch, err = snap.ChunkFor(chunk, storage.All, uint32(doc))
	return ch, doc, err
}

// coverage is that of a search of all parts.
func (c *collection) coverage() Coverage {
	docs, _ := c.live()
	return Coverage{Docs: docs, Of: docs, Shards: len(c.parts)}
}

// defaults are the search parameters that are stored for results of k documents, where
// they hold for all parts.
func (c *collection) defaults(k int) (d storage.DefaultClass, ok bool, err error) {
	var room [8]*storage.Defaults
	all := room[:0]
	for i := range c.parts {
		d, err := c.parts[i].snap.Defaults()
		if err != nil {
			return storage.DefaultClass{}, false, err
		}
		all = append(all, d)
	}
	common := all[0]
	if len(all) > 1 {
		common = storage.CommonDefaults(all)
	}
	if common == nil {
		return d, false, nil
	}
	d, ok = common.For(k)
	return d, ok, nil
}

// group are parts whose documents are numbered together.
type group []part

// partOf is the part that has a number.
func (g group) partOf(number uint32) *part {
	if len(g) == 1 {
		return &g[0]
	}
	return &g[sort.Search(len(g), func(i int) bool { return g[i].base > number })-1]
}

// allowance is what a query may return of a collection: a selection of each part.
type allowance struct {
	parts   []*selection
	count   int // of documents
	missing int // ids that named nothing
}

// counted adds up what is allowed of each part.
func (a *allowance) counted() *allowance {
	a.count = 0
	for _, s := range a.parts {
		a.count += s.count
	}
	return a
}

// countOf is how many documents of a group are allowed.
func (a *allowance) countOf(g group) int {
	n := 0
	for i := range g {
		n += a.parts[g[i].at].count
	}
	return n
}

// without returns the allowance without some ordinals of each part.
func (a *allowance) without(ordinals []*roaring.Bitmap) *allowance {
	rest := &allowance{parts: make([]*selection, len(a.parts)), missing: a.missing}
	for i, s := range a.parts {
		rest.parts[i] = s.without(ordinals[i])
	}
	return rest.counted()
}

// docs appends the allowed documents of a group by their numbers, in ascending order.
func (a *allowance) docs(dst []uint32, g group) []uint32 {
	for i := range g {
		from := len(dst)
		dst = a.parts[g[i].at].docs(dst)
		if base := g[i].base; base > 0 {
			for j := from; j < len(dst); j++ {
				dst[j] += base
			}
		}
	}
	return dst
}

// noneOf allows nothing, until documents are added to the lists of its parts.
func noneOf(c *collection) *allowance {
	a := &allowance{parts: make([]*selection, len(c.parts))}
	for i := range a.parts {
		a.parts[i] = &selection{}
	}
	return a
}

// settled makes use of lists that are complete.
func (a *allowance) settled(c *collection) *allowance {
	for i, s := range a.parts {
		s.settled(c.parts[i].snap)
	}
	return a.counted()
}

// and is what both allow; a nil one is not there.
func (a *allowance) and(b *allowance, c *collection) *allowance {
	if a == nil {
		return b
	}
	both := &allowance{parts: make([]*selection, len(a.parts)), missing: a.missing + b.missing}
	for i := range both.parts {
		both.parts[i] = a.parts[i].and(b.parts[i], c.parts[i].snap)
	}
	return both.counted()
}

// countByPart counts the documents of ascending numbers by part.
func (g group) countByPart(numbers []uint32, count func(p *part, n int)) {
	for i := range g {
		end := len(numbers)
		if i+1 < len(g) {
			end, _ = slices.BinarySearch(numbers, g[i+1].base)
		}
		count(&g[i], end)
		numbers = numbers[end:]
	}
}

// guard is [storage.Guard] for what reads this part, where the one of the call names
// another.
func (p *part) guard(c *call, err *error) func() {
	if len(c.coll.parts) == 1 {
		return func() {}
	}
	return storage.Guard(p.snap.Path(), err)
}
