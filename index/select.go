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

// Select returns the live ordinals for which a condition is true. Each field that the condition
// names must be in the payload of some live document, even as null; otherwise the error wraps
// [condition.ErrUnknownField], so that a misspelt name is not taken for a field that is always
// NULL. If there are no live documents, no name is an error.
func (s *Snapshot) Select(ctx context.Context, c *condition.Condition) (docs *roaring.Bitmap, err error) {
	perIndex, err := SelectAll(ctx, []*Snapshot{s}, c)
	if err != nil {
		return nil, err
	}
	return perIndex[0], nil
}

// SelectAll does Select over several indexes, which may each lack fields that documents of another
// have. It returns a set of ordinals for each.
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

// selectWithoutCheck is Select for callers that have checked the fields of the condition.
func (s *Snapshot) selectWithoutCheck(ctx context.Context, c *condition.Condition) (docs *roaring.Bitmap, err error) {
	err = s.withSelector(func(m *metadata.Selector) (err error) {
		docs, err = m.Select(ctx, c)
		return err
	})
	return docs, err
}

// UnknownFields returns the fields of a condition that no live document of the indexes has.
func UnknownFields(
	ctx context.Context, snaps []*Snapshot, c *condition.Condition,
) (unknown []condition.Field, err error) {
	existing, err := findFields(ctx, snaps, c.Fields())
	if err != nil {
		return nil, err
	}
	for _, f := range c.Fields() {
		if !existing[f] {
			unknown = append(unknown, f)
		}
	}
	return unknown, nil
}

// checkFields checks that each field of the condition is in one of the indexes.
func checkFields(ctx context.Context, snaps []*Snapshot, c *condition.Condition) error {
	if !slices.ContainsFunc(snaps, func(s *Snapshot) bool { return s.Len() > 0 }) {
		return nil
	}
	existing, err := findFields(ctx, snaps, c.Fields())
	if err != nil {
		return err
	}
	err = c.Check(func(f condition.Field) bool { return existing[f] })
	return addFieldNames(ctx, snaps, err)
}

// addFieldNames adds the existing fields to an error about an unknown field.
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

// Fields returns the fields of the live documents of the indexes, sorted.
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

// findFields looks the fields up in the indexes, and returns those that some live document has.
func findFields(
	ctx context.Context, snaps []*Snapshot, fields []condition.Field,
) (existing map[condition.Field]bool, err error) {
	existing = map[condition.Field]bool{
		condition.FieldID:      true,
		condition.FieldOrdinal: true,
		fieldPassageOf:         true,
		fieldPassageNumber:     true,
	}
	for _, s := range snaps {
		err := s.withSelector(func(m *metadata.Selector) error { return m.FindFields(ctx, fields, existing) })
		if err != nil {
			return nil, err
		}
	}
	return existing, nil
}

// Facet has the number of documents with each value of a field; each passage counts by itself.
type Facet = metadata.Facet

// FacetOptions selects the values to count, and how many to return.
type FacetOptions = metadata.FacetOptions

// Defaults of [FacetOptions].
const (
	DefaultFacetValues = metadata.DefaultFacetValues
	DefaultFacetMemory = metadata.DefaultFacetMemory
)

// ErrTooManyValues reports that the distinct values of a field exceed the memory for them.
var ErrTooManyValues = metadata.ErrTooManyValues

// Facet counts the values of a field over live documents: all of them, or those of a set of
// ordinals, such as the result of [Snapshot.Select] or the hits of a search. o may be nil. See
// [FacetAll].
func (s *Snapshot) Facet(
	ctx context.Context, f condition.Field, docs *roaring.Bitmap, o *FacetOptions,
) (*Facet, error) {
	return FacetAll(ctx, []*Snapshot{s}, f, []*roaring.Bitmap{docs}, o)
}

// FacetAll does Facet over several indexes as one, with a set of ordinals for each. docs may be nil
// for all documents of all indexes, and a set may be nil for all documents of its index.
//
// Counts are exact. They come from the field runs, and from payloads where the runs do not have the
// values: long texts, arrays and objects, and fields beyond the limits of docs/conditions.md.
//
// Errors: [condition.ErrUnknownField], [ErrTooManyValues], that of the context, and [ErrOption] for
// negative options and for the id and the ordinal, which differ in every document.
func FacetAll(
	ctx context.Context, snaps []*Snapshot, f condition.Field, docs []*roaring.Bitmap, o *FacetOptions,
) (*Facet, error) {
	if o == nil {
		o = &FacetOptions{}
	}
	switch {
	case o.Values < 0 || o.Memory < 0:
		return nil, fmt.Errorf("%w: facet of %d values in %d bytes; neither may be negative",
			ErrOption, o.Values, o.Memory)
	case f == condition.FieldID || f == condition.FieldOrdinal:
		return nil, fmt.Errorf("%w: facet of %s: every document has its own", ErrOption, f)
	}
	if !o.Lenient {
		existing, err := findFields(ctx, snaps, []condition.Field{f})
		if err != nil {
			return nil, err
		}
		if !existing[f] {
			return nil, addFieldNames(ctx, snaps, &condition.UnknownFieldError{Field: f})
		}
	}
	c := metadata.NewCounter(f, o)
	for i, s := range snaps {
		var ordinals *roaring.Bitmap
		if docs != nil {
			ordinals = docs[i]
		}
		err := s.withSelector(func(m *metadata.Selector) error { return c.Count(ctx, m, ordinals) })
		if err != nil {
			return nil, err
		}
	}
	return c.Facet(ctx)
}
