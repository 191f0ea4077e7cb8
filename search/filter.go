package search

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/index"
)

// Filter is a set of documents by id. A nil *Filter restricts nothing; an
// empty set matches nothing, and a search with it returns nothing.
type Filter struct {
	// IDs of the documents that may be returned.
	IDs []string `json:"ids"`
	// AllowMissing passes over ids that name no live document; otherwise they
	// are an error ([ErrUnknownID]).
	AllowMissing bool `json:"allow_missing,omitempty"`
}

// Only returns the filter that lets these documents through.
func Only(ids ...string) *Filter { return &Filter{IDs: ids} }

// selection are the documents that a query may return: a set, which is shared and
// not to be changed, or a list in ascending order, whichever is shorter.
type selection struct {
	set     []uint64 // one bit an ordinal
	list    []uint32
	count   int
	missing int // ids that named nothing
}

// selecting returns a function that looks the ids of the options up, once.
func (o *Options) selecting(snap *index.Snapshot) func() (*selection, error) {
	if o.Filter == nil && o.Mode != Candidates {
		set, n := snap.LiveSet()
		s := &selection{set: set, count: n}
		return func() (*selection, error) { return s, nil }
	}
	return sync.OnceValues(func() (*selection, error) { return o.selection(snap) })
}

func (o *Options) selection(snap *index.Snapshot) (*selection, error) {
	s := &selection{}
	var err error
	if o.Filter != nil {
		if err = s.include(snap, "filter", o.Filter.IDs, o.Filter.AllowMissing); err != nil {
			return nil, err
		}
	}
	if o.Mode == Candidates {
		filtered := s.list
		s.list = nil
		if err = s.include(snap, "candidates", o.Candidates, o.AllowMissing); err != nil {
			return nil, err
		}
		if o.Filter != nil {
			s.list = slices.DeleteFunc(s.list, func(d uint32) bool {
				_, ok := slices.BinarySearch(filtered, d)
				return !ok
			})
		}
	}
	s.count = len(s.list)
	if live, _ := snap.LiveSet(); s.count > 2*len(live) { // 4 bytes each, 8 a word
		s.set = make([]uint64, len(live))
		mark(s.set, s.list)
		s.list = nil
	}
	return s, nil
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
