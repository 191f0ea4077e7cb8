package search

import (
	"fmt"
	"sync"

	"github.com/plaid-ir/plaid/index"
)

// Filter is a set of documents by id. A nil *Filter restricts nothing; an
// empty set matches nothing, and a search with it returns nothing.
type Filter struct {
	// IDs of the documents that may be returned.
	IDs []string
	// AllowMissing passes over ids that name no live document; otherwise they
	// are an error ([ErrUnknownID]).
	AllowMissing bool
}

// Only returns the filter that lets these documents through.
func Only(ids ...string) *Filter { return &Filter{IDs: ids} }

// filtered are the live documents of a filter.
type filtered struct {
	set     []uint64
	missing int
}

// resolveOnce makes all searches with these options share the look-up of the
// filter's ids, when the first one needs it.
func (o *Options) resolveOnce(snap *index.Snapshot) {
	if o.Filter == nil {
		return
	}
	o.filtered = sync.OnceValues(func() (f filtered, err error) {
		live, _ := snap.LiveSet()
		f.set = make([]uint64, len(live))
		f.missing, err = o.Filter.resolve(snap, f.set)
		return f, err
	})
}

// allow writes the live documents that Filter lets through into set.
func (o *Options) allow(snap *index.Snapshot, set []uint64) (missing int, err error) {
	if o.filtered == nil {
		return o.Filter.resolve(snap, set)
	}
	f, err := o.filtered()
	copy(set, f.set)
	return f.missing, err
}

// resolve writes the filter's live documents into set.
func (f *Filter) resolve(snap *index.Snapshot, set []uint64) (missing int, err error) {
	return resolveIDs(snap, f.IDs, f.AllowMissing, "filter", set)
}

func resolveIDs(snap *index.Snapshot, ids []string, allowMissing bool, what string, set []uint64) (missing int, err error) {
	for _, id := range ids {
		ordinal, ok, err := snap.Ordinal(id)
		switch {
		case err != nil:
			return 0, err
		case ok:
			set[ordinal/64] |= 1 << (ordinal % 64)
		case !allowMissing:
			return 0, fmt.Errorf("%s: %w: %q", what, ErrUnknownID, id)
		default:
			missing++
		}
	}
	return missing, nil
}
