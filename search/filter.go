package search

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/index"
)

// Filter says which documents may be returned: those of a list of ids, those that a
// condition is true of, those of a set of ordinals, or where there are several, those that
// are in each. A nil *Filter restricts nothing; one without any, or with an empty list,
// matches nothing, and a search with it returns nothing. It is not to be changed once it has
// been used, and any number of searches may use it at a time.
//
// In JSON it is {"ids": […], "allow_missing": true, "where": "year >= ?", "params":
// [2000]}, without what is not there.
type Filter struct {
	// IDs of the documents that may be returned.
	IDs []string
	// AllowMissing passes over ids that name no live document; otherwise they
	// are an error ([ErrUnknownID]).
	AllowMissing bool
	// Where is the condition; nil: none. That it names a field which no document has
	// is an error ([condition.ErrUnknownField]).
	Where *condition.Condition
	// Docs, where set, are the documents that may be returned, by ordinal; ordinals that
	// are none of a live document are passed over. It has no form in JSON.
	Docs *roaring.Bitmap

	prepared *prepared
}

// prepared is what a filter lets through of an index at one moment.
type prepared struct {
	mu      sync.Mutex
	version uint64 // of the snapshot
	allowed *selection
}

// Only returns the filter that lets these documents through.
func Only(ids ...string) *Filter { return &Filter{IDs: ids} }

// Where returns the filter that lets the documents through that a condition is true of,
// prepared as [Filter.Prepared] says.
func Where(c *condition.Condition) *Filter { return (&Filter{Where: c}).Prepared() }

// Prepared returns the filter as one that remembers what it lets through: as long as
// the index does not change, further searches have it at once. That takes a bit for
// each document of the index, or less. After a change the next search finds it anew.
func (f *Filter) Prepared() *Filter {
	p := *f
	p.prepared = &prepared{}
	return &p
}

// on returns what the filter lets through of a snapshot.
func (f *Filter) on(ctx context.Context, snap *index.Snapshot) (*selection, error) {
	p := f.prepared
	if p == nil {
		return f.find(ctx, snap)
	}
	p.mu.Lock()
	allowed, version := p.allowed, p.version
	p.mu.Unlock()
	if allowed != nil && version == snap.Version() {
		return allowed, nil
	}
	allowed, err := f.find(ctx, snap)
	if err == nil {
		p.mu.Lock()
		p.allowed, p.version = allowed, snap.Version()
		p.mu.Unlock()
	}
	return allowed, err
}

func (f *Filter) find(ctx context.Context, snap *index.Snapshot) (*selection, error) {
	s := &selection{}
	if f.Docs != nil {
		docs := selected(f.Docs, snap)
		if f.IDs == nil && f.Where == nil {
			return docs, nil
		}
		rest := *f
		rest.Docs = nil
		s, err := rest.find(ctx, snap)
		if err != nil {
			return nil, err
		}
		return s.and(docs, snap), nil
	}
	if f.IDs != nil || f.Where == nil {
		if err := s.include(snap, "filter", f.IDs, f.AllowMissing); err != nil {
			return nil, err
		}
	}
	if f.Where == nil {
		return s.settled(snap), nil
	}
	docs, err := snap.Select(ctx, f.Where)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	if f.IDs != nil {
		s.list = slices.DeleteFunc(s.list, func(d uint32) bool { return !docs.Contains(d) })
		return s.settled(snap), nil
	}
	return selected(docs, snap), nil
}

// selected are the documents of a set that a search may return.
func selected(docs *roaring.Bitmap, snap *index.Snapshot) *selection {
	s := &selection{}
	live, _ := snap.LiveSet()
	if docs.GetCardinality() <= listed(live) {
		s.list = slices.DeleteFunc(docs.ToArray(), func(d uint32) bool { return int(d/64) >= len(live) || !inSet(live, d) })
		return s.settled(snap)
	}
	s.set = make([]uint64, len(live))
	for it := docs.ManyIterator(); ; {
		var some [256]uint32
		n := it.NextMany(some[:])
		for n > 0 && int(some[n-1]/64) >= len(live) { // ascending
			n--
		}
		if n == 0 {
			break
		}
		mark(s.set, some[:n])
	}
	for w := range s.set {
		s.set[w] &= live[w]
	}
	s.count = population(s.set)
	return s
}

// Ordinals is what the filter lets through of a snapshot, of the documents that have
// vectors: for searches by other means.
func (f *Filter) Ordinals(ctx context.Context, snap *index.Snapshot) (*roaring.Bitmap, error) {
	s, err := f.on(ctx, snap)
	if err != nil {
		return nil, err
	}
	return roaring.BitmapOf(s.docs(nil)...), nil
}

// listed is up to how many documents a list is shorter than a set.
func listed(live []uint64) uint64 { return 2 * uint64(len(live)) } // 4 bytes each, 8 a word

// selection are the documents that a query may return: a set, which is shared and
// not to be changed, or a list in ascending order, whichever is shorter.
type selection struct {
	set     []uint64 // one bit an ordinal
	list    []uint32
	count   int
	missing int // ids that named nothing

	once sync.Once
	flat []uint32 // what ordinals returns of a set
}

// ordinals are the documents in ascending order, not to be changed.
func (s *selection) ordinals() []uint32 {
	if s.set == nil {
		return s.list
	}
	s.once.Do(func() { s.flat = appendSet(nil, s.set) })
	return s.flat
}

// settled counts a list, and makes a set of a long one.
func (s *selection) settled(snap *index.Snapshot) *selection {
	s.count = len(s.list)
	if live, _ := snap.LiveSet(); uint64(s.count) > listed(live) {
		s.set = make([]uint64, len(live))
		mark(s.set, s.list)
		s.list = nil
	}
	return s
}

// and is what is in both.
func (s *selection) and(t *selection, snap *index.Snapshot) *selection {
	if s.set != nil && t.set == nil {
		s, t = t, s
	}
	both := &selection{missing: s.missing + t.missing}
	if s.set == nil {
		for _, d := range s.list {
			if t.has(d) {
				both.list = append(both.list, d)
			}
		}
		return both.settled(snap)
	}
	both.set = slices.Clone(s.set)
	for w := range both.set {
		both.set[w] &= t.set[w]
	}
	both.count = population(both.set)
	return both
}

// selecting returns a function that finds what the i-th query may return. What the
// queries have in common is found once, for the first that asks.
func (o *Options) selecting(ctx context.Context, snap *index.Snapshot, qs []Query) func(i int) (*selection, error) {
	common := sync.OnceValues(func() (*selection, error) { return o.selection(ctx, snap) })
	return func(i int) (*selection, error) {
		f := qs[i].Filter
		if f == nil {
			return common()
		}
		s, err := f.on(ctx, snap)
		if err != nil || o.Filter == nil && o.Mode != Candidates {
			return s, err
		}
		all, err := common()
		if err != nil {
			return nil, err
		}
		return all.and(s, snap), nil
	}
}

// selection is what the options let through.
func (o *Options) selection(ctx context.Context, snap *index.Snapshot) (*selection, error) {
	if o.Filter == nil && o.Mode != Candidates {
		set, n := snap.LiveSet()
		return &selection{set: set, count: n}, nil
	}
	var s *selection
	if o.Mode == Candidates {
		s = &selection{}
		if err := s.include(snap, "candidates", o.Candidates, o.AllowMissing); err != nil {
			return nil, err
		}
		s.settled(snap)
	}
	if o.Filter == nil {
		return s, nil
	}
	f, err := o.Filter.on(ctx, snap)
	if err != nil || s == nil {
		return f, err
	}
	return s.and(f, snap), nil
}

// include looks ids up and includes the documents that a search may return.
func (s *selection) include(snap *index.Snapshot, what string, ids []string, allowMissing bool) error {
	live, _ := snap.LiveSet()
	for _, id := range ids {
		ordinal, ok, err := snap.Ordinal(id)
		switch {
		case err != nil:
			return err
		case ok && inSet(live, ordinal):
			s.list = append(s.list, ordinal)
		case ok: // it is empty
		case !allowMissing:
			return fmt.Errorf("%s: %w: %q", what, ErrUnknownID, id)
		default:
			s.missing++
		}
	}
	slices.Sort(s.list)
	s.list = slices.Compact(s.list)
	return nil
}

// docs appends the documents in ascending order.
func (s *selection) docs(dst []uint32) []uint32 {
	if s.set == nil {
		return append(dst, s.list...)
	}
	return appendSet(dst, s.set)
}

// bits is the selection as a set of so many words; dst is used if it has to be made.
func (s *selection) bits(dst []uint64, words int) []uint64 {
	if s.set != nil {
		return s.set
	}
	dst = zeroed(dst, words)
	mark(dst, s.list)
	return dst
}

func (s *selection) has(d uint32) bool {
	if s.set != nil {
		return inSet(s.set, d)
	}
	_, ok := slices.BinarySearch(s.list, d)
	return ok
}

func inSet(set []uint64, d uint32) bool { return set[d/64]>>(d%64)&1 == 1 }

func mark(set []uint64, docs []uint32) {
	for _, d := range docs {
		set[d/64] |= 1 << (d % 64)
	}
}

func appendSet(dst []uint32, set []uint64) []uint32 {
	for w, v := range set {
		for ; v != 0; v &= v - 1 {
			dst = append(dst, uint32(w*64+bits.TrailingZeros64(v)))
		}
	}
	return dst
}

func zeroed(s []uint64, n int) []uint64 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

func population(set []uint64) int {
	n := 0
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	return n
}
