package search

import (
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// collection is the snapshots that a call searches: one of an index, or those of several indexes
// that have the same codec.
type collection struct {
	shards []shard
}

// shard is one index of a collection. Documents of several shards are numbered shard by shard; each
// shard starts at a multiple of docBlock, so that a block belongs to one shard. A number has 32
// bits. If those do not suffice, the shards form several groups, each with numbers from 0 on, which
// are searched one after the other.
type shard struct {
	snap  *index.Snapshot
	index int    // in collection.shards
	base  uint32 // number of its first document. 0 starts a group
}

// newCollection numbers the documents of snapshots.
func newCollection(snaps ...*index.Snapshot) *collection {
	c := &collection{shards: make([]shard, len(snaps))}
	next := uint64(0)
	for i, s := range snaps {
		docs := (uint64(s.State().Docs) + docBlock - 1) / docBlock * docBlock
		if next+docs > maxGroupNumbers {
			next = 0
		}
		c.shards[i] = shard{snap: s, index: i, base: uint32(next)}
		next += max(docs, docBlock) // an empty shard gets a base of its own, too
	}
	return c
}

// maxGroupNumbers is how many documents of a group can be numbered. It is a variable so that tests
// see several groups.
var maxGroupNumbers uint64 = 1 << 32

// groupFrom returns the group that begins with the shard of this index.
func (c *collection) groupFrom(first int) shardGroup {
	end := first + 1
	for end < len(c.shards) && c.shards[end].base > 0 {
		end++
	}
	return c.shards[first:end]
}

// hasPassages reports whether any document is stored as passages.
func (c *collection) hasPassages() bool {
	return slices.ContainsFunc(c.shards, func(sh shard) bool { return !sh.snap.Passages().IsEmpty() })
}

// firstSnapshot returns the snapshot of the first shard, for settings that all shards share.
func (c *collection) firstSnapshot() *index.Snapshot { return c.shards[0].snap }

// sharedCodec returns the codec of all shards.
func (c *collection) sharedCodec() *kernels.Codec { return c.firstSnapshot().Codec() }

// countLive returns how many documents and tokens are live.
func (c *collection) countLive() (docs int64, tokens uint64) {
	for i := range c.shards {
		s := c.shards[i].snap.State()
		docs += int64(s.Live)
		tokens += s.LiveTokens
	}
	return docs, tokens
}

// versions returns the version of each snapshot; equal versions mean the same state of the
// collection.
func (c *collection) versions() []uint64 {
	versions := make([]uint64, len(c.shards))
	for i := range versions {
		versions[i] = c.shards[i].snap.Version()
	}
	return versions
}

// documentChunk returns the chunk that has the tokens of a document, and the document's index in
// it.
func documentChunk(snap *index.Snapshot, ordinal uint32) (ch *kernels.Chunk, doc int, err error) {
	chunk, doc, _ := snap.Locate(ordinal)
	ch, err = snap.ChunkFor(chunk, storage.All, uint32(doc))
	return ch, doc, err
}

// coverage returns the Coverage of a search that reaches all shards.
func (c *collection) coverage() Coverage {
	docs, _ := c.countLive()
	return Coverage{Docs: docs, TotalDocs: docs, Shards: len(c.shards)}
}

// storedDefaults returns the stored search parameters for results of k documents, if all shards
// agree on them.
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
	d, ok = common.ClassFor(k)
	return d, ok, nil
}

// shardGroup is a run of shards whose documents are numbered together.
type shardGroup []shard

// shardByNumber returns the shard that has the document with this number.
func (g shardGroup) shardByNumber(number uint32) *shard {
	if len(g) == 1 {
		return &g[0]
	}
	return &g[sort.Search(len(g), func(i int) bool { return g[i].base > number })-1]
}

// allowedDocs is the documents of a collection that a query may return: a selection for each shard.
type allowedDocs struct {
	shards     []*selection
	count      int // of documents
	missingIDs int // ids that name no document
}

// withCount sets count to the sum over all shards, and returns a.
func (a *allowedDocs) withCount() *allowedDocs {
	a.count = 0
	for _, s := range a.shards {
		a.count += s.count
	}
	return a
}

// countIn returns how many documents of a group are allowed.
func (a *allowedDocs) countIn(g shardGroup) int {
	n := 0
	for i := range g {
		n += a.shards[g[i].index].count
	}
	return n
}

// without returns the allowed documents except some ordinals of each shard.
func (a *allowedDocs) without(ordinals []*roaring.Bitmap) *allowedDocs {
	remaining := &allowedDocs{shards: make([]*selection, len(a.shards)), missingIDs: a.missingIDs}
	for i, s := range a.shards {
		remaining.shards[i] = s.without(ordinals[i])
	}
	return remaining.withCount()
}

// appendNumbers appends the numbers of a group's allowed documents in ascending order.
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

// allowNone returns empty selections. Callers append documents to their lists, and then call
// compact.
func allowNone(c *collection) *allowedDocs {
	a := &allowedDocs{shards: make([]*selection, len(c.shards))}
	for i := range a.shards {
		a.shards[i] = &selection{}
	}
	return a
}

// compact completes selections whose lists are filled: it counts them, and turns long lists into
// sets.
func (a *allowedDocs) compact(c *collection) *allowedDocs {
	for i, s := range a.shards {
		s.compact(c.shards[i].snap)
	}
	return a.withCount()
}

// intersect returns the documents that both allow; a nil receiver allows all.
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

// countByShard calls count with the number of the ascending document numbers that belong to each
// shard.
func (g shardGroup) countByShard(numbers []uint32, count func(sh *shard, n int)) {
	for i := range g {
		end := len(numbers)
		if i+1 < len(g) {
			end, _ = slices.BinarySearch(numbers, g[i+1].base)
		}
		count(&g[i], end)
		numbers = numbers[end:]
	}
}

// guardRead is [storage.Guard] for reads of this shard. It does nothing if the collection has only
// this one: then the guard of the call names its file already.
func (sh *shard) guardRead(c *call, err *error) func() {
	if len(c.coll.shards) == 1 {
		return func() {}
	}
	return storage.Guard(sh.snap.Path(), err)
}
