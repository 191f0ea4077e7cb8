package metadata

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// Verify derives the values of the runs from the payloads again, and compares. Errors are those of
// Select.
func (s *Selector) Verify(ctx context.Context) error {
	for i := range s.runs {
		if err := s.verifyRun(ctx, &s.runs[i]); err != nil {
			return err
		}
	}
	return nil
}

// verifyRun compares a run with one that is built from the payloads, with the same fields and
// without limits.
func (s *Selector) verifyRun(ctx context.Context, r *countedRun) error {
	stored := Builder{keepField: func(condition.Field, uint32) bool { return true }}
	derived, leftOut := Builder{}, roaring.New()
	derived.keepField = func(f condition.Field, ordinal uint32) bool {
		_, kept := slices.BinarySearch(r.names, f)
		if !kept {
			leftOut.Add(ordinal)
		}
		return kept
	}
	if err := stored.absorbValues(ctx, r.Run, r.docsCounted); err != nil {
		return corruptRunError(s.snapshot, r.id, err)
	}
	for it := r.docsCounted.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		payload, err := s.snapshot.Payload(ordinal)
		if err != nil {
			return err
		}
		if err := derived.Add(ctx, ordinal, payload); err != nil {
			return err
		}
	}
	derived.leftOut.Or(leftOut)
	difference, err := firstDifference(&stored, &derived)
	if err == nil && difference != "" {
		err := fmt.Errorf("%s does not follow from the payloads", difference)
		return &storage.CorruptError{Path: s.snapshot.Path(), What: fmt.Sprintf("field run %d", r.id), Err: err}
	}
	return corruptRunError(s.snapshot, r.id, err)
}

// firstDifference describes the first difference between two runs. "" means that they are equal.
func firstDifference(stored, derived *Builder) (difference string, err error) {
	if !stored.leftOut.Equals(&derived.leftOut) {
		return "the set of documents with other fields", nil
	}
	fields := map[condition.Field]bool{}
	for _, b := range []*Builder{stored, derived} {
		for f := range b.fields {
			fields[f] = true
		}
	}
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		values := [2][][]byte{}
		for i, b := range []*Builder{stored, derived} {
			if b.fields[f] == nil {
				continue
			}
			err := b.fields[f].write(f, 0, func(key, value []byte) error {
				values[i] = append(values[i], value)
				return nil
			})
			if err != nil {
				return "", err
			}
		}
		if !slices.EqualFunc(values[0], values[1], bytes.Equal) {
			return fmt.Sprintf("field %s", f), nil
		}
	}
	return "", nil
}
