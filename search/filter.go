package search

import (
	"fmt"

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
