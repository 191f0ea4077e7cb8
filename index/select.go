package index

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Select returns the ordinals of the live documents that a condition is true of.
// Every field that the condition names must be in the payload of some live document,
// be it null; otherwise the error wraps [condition.ErrUnknownField], so that a
// misspelt name is not taken for one that is NULL everywhere. Where there are no live
// documents, no name is an error.
func (s *Snapshot) Select(ctx context.Context, c *condition.Condition) (docs *roaring.Bitmap, err error) {
	perIndex, err := SelectAll(ctx, []*Snapshot{s}, c)
	if err != nil {
		return nil, err
	}
	return perIndex[0], nil
}

// SelectAll is Select over several indexes, of which each may lack fields that
// documents of another one have. It returns a set of ordinals for each.
func SelectAll(ctx context.Context, snaps []*Snapshot, c *condition.Condition) (docs []*roaring.Bitmap, err error) {
	if err := checkFields(ctx, snaps, c); err != nil {
		return nil, err
	}
	docs = make([]*roaring.Bitmap, len(snaps))
	for i, s := range snaps {
		if docs[i], err = s.selectWithoutCheck(ctx, c); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// selectWithoutCheck is Select for who has looked for the fields of the condition.
func (s *Snapshot) selectWithoutCheck(ctx context.Context, c *condition.Condition) (docs *roaring.Bitmap, err error) {
	err = s.withSelector(func(m *metadata.Selector) (err error) {
		docs, err = m.Select(ctx, c)
		return err
	})
	return docs, err
}

// UnknownFields are the fields of a condition that no live document of the indexes has.
func UnknownFields(ctx context.Context, snaps []*Snapshot, c *condition.Condition) (unknown []condition.Field, err error) {
	known, err := findFields(ctx, snaps, c.Fields())
	if err != nil {
		return nil, err
	}
	for _, f := range c.Fields() {
		if !known[f] {
			unknown = append(unknown, f)
		}
	}
	return unknown, nil
}

// checkFields makes sure that each field of the condition is in one of the indexes.
func checkFields(ctx context.Context, snaps []*Snapshot, c *condition.Condition) error {
	if !slices.ContainsFunc(snaps, func(s *Snapshot) bool { return s.Len() > 0 }) {
		return nil
	}
	known, err := findFields(ctx, snaps, c.Fields())
	if err != nil {
		return err
	}
	err = c.Check(func(f condition.Field) bool { return known[f] })
	return addFieldNames(ctx, snaps, err)
}

// addFieldNames adds to an error that a field is not known the ones that there are.
func addFieldNames(ctx context.Context, snaps []*Snapshot, err error) error {
	var unknown *condition.UnknownFieldError
	if errors.As(err, &unknown) {
		fields, fieldsErr := Fields(ctx, snaps)
		if fieldsErr != nil {
			return fieldsErr
		}
		unknown.Fields = fields
	}
	return err
}

// Fields are those that live documents of the indexes have.
func Fields(ctx context.Context, snaps []*Snapshot) ([]condition.Field, error) {
	fields := []condition.Field{}
	for _, s := range snaps {
		err := s.withSelector(func(m *metadata.Selector) error {
			fieldsOfSnapshot, err := m.Fields(ctx)
			fields = append(fields, fieldsOfSnapshot...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields), nil
}

func findFields(ctx context.Context, snaps []*Snapshot, fields []condition.Field) (known map[condition.Field]bool, err error) {
	known = map[condition.Field]bool{condition.FieldID: true, condition.FieldOrdinal: true, fieldPassageOf: true, fieldPassageNumber: true}
	for _, s := range snaps {
		err := s.withSelector(func(m *metadata.Selector) error { return m.FindFields(ctx, fields, known) })
		if err != nil {
			return nil, err
		}
	}
	return known, nil
}

// Facet is how many documents have each value of a field; each passage counts by itself.
type Facet = metadata.Facet

// FacetOptions say what to count, and how much of it to return.
type FacetOptions = metadata.FacetOptions

// Defaults of [FacetOptions].
const (
	DefaultFacetValues = metadata.DefaultFacetValues
	DefaultFacetMemory = metadata.DefaultFacetMemory
)

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
			return nil, addFieldNames(ctx, snaps, &condition.UnknownFieldError{Field: f})
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
