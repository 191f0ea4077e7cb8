package search

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Filter selects the documents that a search may return by a list of ids, a condition, or a set of
// ordinals; if several are set, a document must meet all. A nil *Filter restricts nothing. A filter
// with none of them, or with an empty list, matches nothing. Do not change a filter after its first
// use; concurrent searches may share it.
//
// In JSON it is {"ids": […], "allow_missing": true, "where": "year >= ?", "parameters": [2000]},
// without empty fields.
type Filter struct {
	// IDs of the documents that may be returned.
	IDs []string
	// AllowMissing skips ids that name no live document; otherwise they are an error
	// ([ErrUnknownID]).
	AllowMissing bool
	// Where is the condition. nil means none. A condition on a field that no document has is an
	// error ([condition.ErrUnknownField]).
	Where *condition.Condition
	// Docs, where set, has the ordinals of the documents that may be returned. Ordinals of
	// documents that are not live are skipped. It has no JSON form.
	Docs *roaring.Bitmap

	cache *allowedCache
}

// allowedCache holds the allowed documents of a filter for one state of a collection.
type allowedCache struct {
	mu       sync.Mutex
	versions []uint64 // of the snapshots
	allowed  *allowedDocs
}

// Only returns a filter that allows these documents.
func Only(ids ...string) *Filter { return &Filter{IDs: ids} }

// Where returns a filter that allows the documents for which a condition is true. It caches them as
// [Filter.Prepared] does.
func Where(c *condition.Condition) *Filter { return (&Filter{Where: c}).Prepared() }

// Prepared returns a filter that caches the documents that it allows: as long as the index does not
// change, further searches use them at once. The cache uses one bit for each document of the index,
// or less. The first search after a change computes it again.
func (f *Filter) Prepared() *Filter {
	p := *f
	p.cache = &allowedCache{}
	return &p
}

// allowedIn returns the documents of a collection that the filter allows, from the cache if it has
// one.
func (f *Filter) allowedIn(ctx context.Context, c *collection) (*allowedDocs, error) {
	p := f.cache
	if p == nil {
		return f.findAllowed(ctx, c)
	}
	now := c.versions()
	p.mu.Lock()
	allowed, versions := p.allowed, p.versions
	p.mu.Unlock()
	if allowed != nil && slices.Equal(versions, now) {
		return allowed, nil
	}
	allowed, err := f.findAllowed(ctx, c)
	if err == nil {
		p.mu.Lock()
		p.allowed, p.versions = allowed, now
		p.mu.Unlock()
	}
	return allowed, err
}

// findAllowed computes the documents that the filter allows.
func (f *Filter) findAllowed(ctx context.Context, c *collection) (allowed *allowedDocs, err error) {
	if f.Docs != nil {
		if len(c.shards) > 1 {
			return nil, fmt.Errorf("%w: filter: a set of ordinals is ambiguous where several indexes are searched",
				ErrOption)
		}
		allowed = (&allowedDocs{shards: []*selection{newSelection(f.Docs, c.firstSnapshot())}}).withCount()
	}
	if f.IDs != nil || f.Docs == nil && f.Where == nil {
		listed, err := lookUpIDs(ctx, c, "filter", f.IDs, f.AllowMissing)
		if err != nil {
			return nil, err
		}
		allowed = allowed.intersect(listed, c)
	}
	if f.Where == nil {
		return allowed, nil
	}
	snaps := make([]*index.Snapshot, len(c.shards))
	for i := range snaps {
		snaps[i] = c.shards[i].snap
	}
	docs, err := index.SelectAll(ctx, snaps, f.Where)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	selected := &allowedDocs{shards: make([]*selection, len(snaps))}
	for i, snap := range snaps {
		selected.shards[i] = newSelection(docs[i], snap)
	}
	return allowed.intersect(selected.withCount(), c), nil
}

// newSelection returns the documents of a set that have vectors and are live.
func newSelection(docs *roaring.Bitmap, snap *index.Snapshot) *selection {
	s := &selection{}
	live, _ := snap.LiveSet()
	if docs.GetCardinality() <= maxListLength(live) {
		notLive := func(d uint32) bool { return int(d/64) >= len(live) || !hasBit(live, d) }
		s.list = slices.DeleteFunc(docs.ToArray(), notLive)
		return s.compact(snap)
	}
	if end := 64 * uint64(len(live)); uint64(docs.Maximum()) >= end {
		docs = docs.Clone()
		docs.RemoveRange(end, 1<<32)
	}
	s.set = make([]uint64, len(live))
	docs.WriteDenseTo(s.set)
	for w := range s.set {
		s.set[w] &= live[w]
	}
	s.count = countBits(s.set)
	return s
}

// Ordinals returns the documents of a snapshot that the filter allows and that have vectors. It is
// for searches by other means than vectors.
func (f *Filter) Ordinals(ctx context.Context, snap *index.Snapshot) (*roaring.Bitmap, error) {
	a, err := f.allowedIn(ctx, newCollection(snap))
	if err != nil {
		return nil, err
	}
	return roaring.BitmapOf(a.shards[0].appendOrdinals(nil)...), nil
}

// maxListLength is the number of documents up to which a list (4 bytes a document) is not longer
// than a set (8 bytes a word).
func maxListLength(live []uint64) uint64 { return 2 * uint64(len(live)) }

// selection is the documents of an index that a query may return: a shared set, which must not be
// changed, or a list in ascending order, whichever is shorter.
type selection struct {
	set   []uint64 // one bit an ordinal. nil means that list has them
	list  []uint32
	count int

	once      sync.Once
	flattened []uint32 // the list that ordinals returns for a set
}

// ordinals returns the documents in ascending order. Callers must not change the slice.
func (s *selection) ordinals() []uint32 {
	if s.set == nil {
		return s.list
	}
	s.once.Do(func() { s.flattened = appendBits(nil, s.set) })
	return s.flattened
}

// compact sets the count of a selection with a list, and turns a long list into a set.
func (s *selection) compact(snap *index.Snapshot) *selection {
	s.count = len(s.list)
	if live, _ := snap.LiveSet(); uint64(s.count) > maxListLength(live) {
		s.set = make([]uint64, len(live))
		setBits(s.set, s.list)
		s.list = nil
	}
	return s
}

// intersect returns the documents that are in both.
func (s *selection) intersect(t *selection, snap *index.Snapshot) *selection {
	if s.set != nil && t.set == nil {
		s, t = t, s
	}
	common := &selection{}
	if s.set == nil {
		for _, d := range s.list {
			if t.contains(d) {
				common.list = append(common.list, d)
			}
		}
		return common.compact(snap)
	}
	common.set = slices.Clone(s.set)
	for w := range common.set {
		common.set[w] &= t.set[w]
	}
	common.count = countBits(common.set)
	return common
}

// without returns the selection without some ordinals.
func (s *selection) without(ordinals *roaring.Bitmap) *selection {
	if ordinals.IsEmpty() {
		return s
	}
	remaining := &selection{}
	if s.set == nil {
		for _, d := range s.list {
			if !ordinals.Contains(d) {
				remaining.list = append(remaining.list, d)
			}
		}
		remaining.count = len(remaining.list)
		return remaining
	}
	remaining.set = slices.Clone(s.set)
	for it := ordinals.Iterator(); it.HasNext(); {
		if d := it.Next(); int(d/64) < len(remaining.set) {
			remaining.set[d/64] &^= 1 << (d % 64)
		}
	}
	remaining.count = countBits(remaining.set)
	return remaining
}

// allowedByQuery returns a function that computes the documents that query i may return. Those that
// the options allow are computed once, when a query first needs them.
func (o *Options) allowedByQuery(ctx context.Context, c *collection, qs []Query) func(i int) (*allowedDocs, error) {
	common := sync.OnceValues(func() (*allowedDocs, error) { return o.allowedIn(ctx, c) })
	return func(i int) (*allowedDocs, error) {
		f := qs[i].Filter
		if f == nil {
			return common()
		}
		s, err := f.allowedIn(ctx, c)
		if err != nil || o.Filter == nil && o.Mode != Candidates {
			return s, err
		}
		commonDocs, err := common()
		if err != nil {
			return nil, err
		}
		return commonDocs.intersect(s, c), nil
	}
}

// allowedIn returns the documents of a collection that the options allow, without the filters of
// queries.
func (o *Options) allowedIn(ctx context.Context, c *collection) (*allowedDocs, error) {
	if o.Filter == nil && o.Mode != Candidates {
		allowed := &allowedDocs{shards: make([]*selection, len(c.shards))}
		for i := range c.shards {
			set, n := c.shards[i].snap.LiveSet()
			allowed.shards[i] = &selection{set: set, count: n}
		}
		return allowed.withCount(), nil
	}
	var candidates *allowedDocs
	if o.Mode == Candidates {
		listed, err := lookUpIDs(ctx, c, "candidates", o.Candidates, o.AllowMissing)
		if err != nil || o.Filter == nil {
			return listed, err
		}
		candidates = listed
	}
	f, err := o.Filter.allowedIn(ctx, c)
	if err != nil {
		return nil, err
	}
	return candidates.intersect(f, c), nil
}

// lookUpIDs returns the documents with these ids in all shards, and their passages. listName
// names the list in errors. An id that no shard has is counted as missing if allowMissing is set,
// and otherwise an error.
func lookUpIDs(
	ctx context.Context, c *collection, listName string, ids []string, allowMissing bool,
) (*allowedDocs, error) {
	a := allowNone(c)
	missingByShard := make([][]string, len(c.shards)) // in the order of ids
	for i := range c.shards {
		snap := c.shards[i].snap
		docs, missing, err := snap.OrdinalsOfIDs(ctx, ids)
		if err != nil {
			return nil, err
		}
		missingByShard[i] = missing
		live, _ := snap.LiveSet()
		for it := docs.Iterator(); it.HasNext(); {
			if ordinal := it.Next(); hasBit(live, ordinal) { // documents without tokens are not live
				a.shards[i].list = append(a.shards[i].list, ordinal)
			}
		}
	}
	for _, id := range ids {
		found := false
		for i, missing := range missingByShard {
			if len(missing) > 0 && missing[0] == id {
				missingByShard[i] = missing[1:]
			} else {
				found = true
			}
		}
		switch {
		case found:
		case !allowMissing:
			err := fmt.Errorf("%s: %w: %.100q", listName, ErrUnknownID, id)
			for i := range c.shards {
				if other, e := c.shards[i].snap.FindOtherSpelling(id); e == nil && other != "" {
					other = strconv.QuoteToASCII(other)
					return nil, fmt.Errorf("%w; there is %.200s, which looks the same", err, other)
				}
			}
			return nil, err
		default:
			a.missingIDs++
		}
	}
	return a.compact(c), nil
}

// allowHits returns the documents of hits as allowed documents.
func allowHits(c *collection, hits []Hit) *allowedDocs {
	a := allowNone(c)
	for i := range hits {
		s := a.shards[hits[i].Shard]
		s.list = append(s.list, hits[i].Ordinal)
	}
	for _, s := range a.shards {
		slices.Sort(s.list)
	}
	return a.compact(c)
}

// appendOrdinals appends the documents in ascending order.
func (s *selection) appendOrdinals(dst []uint32) []uint32 {
	if s.set == nil {
		return append(dst, s.list...)
	}
	return appendBits(dst, s.set)
}

// bitset returns the selection as a set of this many words: its own, or a new one in the memory of
// dst.
func (s *selection) bitset(dst []uint64, words int) []uint64 {
	if s.set != nil {
		return s.set
	}
	dst = zeroedWords(dst, words)
	setBits(dst, s.list)
	return dst
}

func (s *selection) contains(d uint32) bool {
	if s.set != nil {
		return hasBit(s.set, d)
	}
	_, ok := slices.BinarySearch(s.list, d)
	return ok
}

func hasBit(set []uint64, d uint32) bool { return set[d/64]>>(d%64)&1 == 1 }

func setBits(set []uint64, docs []uint32) {
	for _, d := range docs {
		set[d/64] |= 1 << (d % 64)
	}
}

func appendBits(dst []uint32, set []uint64) []uint32 {
	for w, v := range set {
		for ; v != 0; v &= v - 1 {
			dst = append(dst, uint32(w*64+bits.TrailingZeros64(v)))
		}
	}
	return dst
}

func zeroedWords(s []uint64, n int) []uint64 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

func countBits(set []uint64) int {
	n := 0
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	return n
}
