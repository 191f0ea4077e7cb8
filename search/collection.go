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
	shards []shard
}

// shard is one index of a collection. Searches number the documents of several parts
// one part after the other, each from a multiple of reachBlock on, so that a block
// belongs to one part. A number has 32 bits. Where those do not suffice the parts
// make several groups, each with numbers from 0 on, which are searched in turn.
type shard struct {
	snap  *index.Snapshot
	index int    // place in the collection
	base  uint32 // number of the first document, 0 where a group begins
}

// newCollection numbers the documents of snapshots.
func newCollection(snaps ...*index.Snapshot) *collection {
	c := &collection{shards: make([]shard, len(snaps))}
	next := uint64(0)
	for i, s := range snaps {
		docs := (uint64(s.State().Docs) + reachBlock - 1) / reachBlock * reachBlock
		if next+docs > maxGroupNumbers {
			next = 0
		}
		c.shards[i] = shard{snap: s, index: i, base: uint32(next)}
		next += max(docs, reachBlock) // also of an empty part: its base is its own
	}
	return c
}

// maxGroupNumbers is how many documents of a group can be numbered. A variable, so that
// tests see groups.
var maxGroupNumbers uint64 = 1 << 32

// groupFrom are the parts from one on that are numbered together.
func (c *collection) groupFrom(first int) shardGroup {
	end := first + 1
	for end < len(c.shards) && c.shards[end].base > 0 {
		end++
	}
	return c.shards[first:end]
}

// hasPassages reports whether any document is stored as passages.
func (c *collection) hasPassages() bool {
	return slices.ContainsFunc(c.shards, func(p shard) bool { return !p.snap.Passages().IsEmpty() })
}

// firstSnapshot stands for all parts, where they do not differ.
func (c *collection) firstSnapshot() *index.Snapshot { return c.shards[0].snap }

// sharedCodec is that of all parts.
func (c *collection) sharedCodec() *kernels.Codec { return c.firstSnapshot().Codec() }

func (c *collection) countLive() (docs int64, tokens uint64) {
	for i := range c.shards {
		s := c.shards[i].snap.State()
		docs += int64(s.Live)
		tokens += s.LiveTokens
	}
	return docs, tokens
}

// versions tell states of a collection apart.
func (c *collection) versions() []uint64 {
	versions := make([]uint64, len(c.shards))
	for i := range versions {
		versions[i] = c.shards[i].snap.Version()
	}
	return versions
}

// documentChunk is the chunk that has the tokens of a document, and its place in there.
func documentChunk(snap *index.Snapshot, ordinal uint32) (ch *kernels.Chunk, doc int, err error) {
	chunk, doc, _ := snap.Locate(ordinal)
	ch, err = snap.ChunkFor(chunk, storage.All, uint32(doc))
	return ch, doc, err
}

// coverage is that of a search of all parts.
func (c *collection) coverage() Coverage {
	docs, _ := c.countLive()
	return Coverage{Docs: docs, Of: docs, Shards: len(c.shards)}
}

// storedDefaults are the search parameters that are stored for results of k documents, where
// they hold for all parts.
func (c *collection) storedDefaults(k int) (d storage.DefaultClass, ok bool, err error) {
	var buffer [8]*storage.Defaults
	perShard := buffer[:0]
	for i := range c.shards {
		d, err := c.shards[i].snap.Defaults()
		if err != nil {
			return storage.DefaultClass{}, false, err
		}
		perShard = append(perShard, d)
	}
	common := perShard[0]
	if len(perShard) > 1 {
		common = storage.CommonDefaults(perShard)
	}
	if common == nil {
		return d, false, nil
	}
	d, ok = common.For(k)
	return d, ok, nil
}

// shardGroup are parts whose documents are numbered together.
type shardGroup []shard

// shardByNumber is the part that has a number.
func (g shardGroup) shardByNumber(number uint32) *shard {
	if len(g) == 1 {
		return &g[0]
	}
	return &g[sort.Search(len(g), func(i int) bool { return g[i].base > number })-1]
}

// allowedDocs is what a query may return of a collection: a selection of each part.
type allowedDocs struct {
	shards     []*selection
	count      int // of documents
	missingIDs int // ids that named nothing
}

// withCount adds up what is allowed of each part.
func (a *allowedDocs) withCount() *allowedDocs {
	a.count = 0
	for _, s := range a.shards {
		a.count += s.count
	}
	return a
}

// countIn is how many documents of a group are allowed.
func (a *allowedDocs) countIn(g shardGroup) int {
	n := 0
	for i := range g {
		n += a.shards[g[i].index].count
	}
	return n
}

// without returns the allowance without some ordinals of each part.
func (a *allowedDocs) without(ordinals []*roaring.Bitmap) *allowedDocs {
	remaining := &allowedDocs{shards: make([]*selection, len(a.shards)), missingIDs: a.missingIDs}
	for i, s := range a.shards {
		remaining.shards[i] = s.without(ordinals[i])
	}
	return remaining.withCount()
}

// appendNumbers appends the allowed documents of a group by their numbers, in ascending order.
func (a *allowedDocs) appendNumbers(dst []uint32, g shardGroup) []uint32 {
	for i := range g {
		from := len(dst)
		dst = a.shards[g[i].index].appendOrdinals(dst)
		if base := g[i].base; base > 0 {
			for j := from; j < len(dst); j++ {
				dst[j] += base
			}
		}
	}
	return dst
}

// allowNone allows nothing, until documents are added to the lists of its parts.
func allowNone(c *collection) *allowedDocs {
	a := &allowedDocs{shards: make([]*selection, len(c.shards))}
	for i := range a.shards {
		a.shards[i] = &selection{}
	}
	return a
}

// compact makes use of lists that are complete.
func (a *allowedDocs) compact(c *collection) *allowedDocs {
	for i, s := range a.shards {
		s.compact(c.shards[i].snap)
	}
	return a.withCount()
}

// intersect is what both allow; a nil one is not there.
func (a *allowedDocs) intersect(other *allowedDocs, c *collection) *allowedDocs {
	if a == nil {
		return other
	}
	both := &allowedDocs{shards: make([]*selection, len(a.shards)), missingIDs: a.missingIDs + other.missingIDs}
	for i := range both.shards {
		both.shards[i] = a.shards[i].intersect(other.shards[i], c.shards[i].snap)
	}
	return both.withCount()
}

// countByShard counts the documents of ascending numbers by part.
func (g shardGroup) countByShard(numbers []uint32, count func(p *shard, n int)) {
	for i := range g {
		end := len(numbers)
		if i+1 < len(g) {
			end, _ = slices.BinarySearch(numbers, g[i+1].base)
		}
		count(&g[i], end)
		numbers = numbers[end:]
	}
}

// guardRead is [storage.Guard] for what reads this part, where the one of the call names
// another.
func (p *shard) guardRead(c *call, err *error) func() {
	if len(c.coll.shards) == 1 {
		return func() {}
	}
	return storage.Guard(p.snap.Path(), err)
}
