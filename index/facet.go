package index

import (
	"context"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Facet is how many documents have each value of a field.
type Facet = metadata.Facet

// FacetCount is how many documents have a value.
type FacetCount = metadata.ValueCount

// FacetOptions say what to count, and how much of it to return.
type FacetOptions = metadata.FacetOptions

// Defaults of [FacetOptions].
const (
	DefaultFacetValues = metadata.DefaultFacetValues
	DefaultFacetMemory = metadata.DefaultFacetMemory
)

// NewFacetCounter adds up facets of one field that were counted in several places, with all
// their values.
func NewFacetCounter(f condition.Field, o *FacetOptions) *metadata.Counter {
	return metadata.NewCounter(f, o)
}

// ErrTooManyValues: the distinct values of a field do not fit in the memory for them.
var ErrTooManyValues = metadata.ErrTooManyValues

// Facet counts the values that live documents have in a field: all of them, or those of a
// set of ordinals, such as that of [Snapshot.Select] or of the hits of a search. o may be
// nil. See [FacetAll].
func (s *Snapshot) Facet(ctx context.Context, f condition.Field, docs *roaring.Bitmap, o *FacetOptions) (*Facet, error) {
	return FacetAll(ctx, []*Snapshot{s}, f, []*roaring.Bitmap{docs}, o)
}

// FacetAll is Facet over several indexes as one, with a set of ordinals for each. Without
// sets all documents count, and with a set that is nil all of its index.
//
// Counts are exact. They come from what is kept beside the payloads, and from the payloads
// where that does not tell: long texts, arrays and objects, and fields beyond the limits of
// docs/conditions.md.
//
// Errors: [condition.ErrUnknownField], [ErrTooManyValues], [ErrOption] for
// options that are negative and for the id and the ordinal, of which every document has its
// own, and that of the context.
func FacetAll(ctx context.Context, snaps []*Snapshot, f condition.Field, docs []*roaring.Bitmap, o *FacetOptions) (*Facet, error) {
	if o == nil {
		o = &FacetOptions{}
	}
	switch {
	case o.Values < 0 || o.Memory < 0:
		return nil, fmt.Errorf("%w: facet: %d values, %d bytes", ErrOption, o.Values, o.Memory)
	case f == condition.FieldID || f == condition.FieldOrdinal:
		return nil, fmt.Errorf("%w: facet of %s: every document has its own", ErrOption, f)
	}
	if !o.Lenient {
		known, err := findFields(ctx, snaps, []condition.Field{f})
		if err != nil {
			return nil, err
		}
		if !known[f] {
			return nil, unknownField(ctx, snaps, &condition.UnknownFieldError{Field: f})
		}
	}
	c := metadata.NewCounter(f, o)
	for i, s := range snaps {
		var among *roaring.Bitmap
		if docs != nil {
			among = docs[i]
		}
		if err := s.withSelector(func(m *metadata.Selector) error { return c.Count(ctx, m, among) }); err != nil {
			return nil, err
		}
	}
	return c.Facet(ctx)
}
