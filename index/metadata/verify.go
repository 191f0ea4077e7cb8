package metadata

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Verify derives what the runs have from the payloads and compares. Errors are as those
// of Select.
func (s *Selector) Verify(ctx context.Context) error {
	for i := range s.runs {
		if _, err := s.verifyRun(ctx, &s.runs[i]); err != nil {
			return err
		}
	}
	return nil
}

// Lost are the fields, in order, of which a former version has lost documents when it
// merged runs ([Selector.Former]), and how many documents that is.
func (s *Selector) Lost(ctx context.Context) (fields []condition.Field, docs uint64, err error) {
	found := map[condition.Field]bool{}
	for i := range s.runs {
		if s.runs[i].kind != formerRun {
			continue
		}
		lost, err := s.verifyRun(ctx, &s.runs[i])
		if err != nil {
			return nil, 0, err
		}
		all := roaring.New()
		for f, of := range lost {
			found[f] = true
			all.Or(of)
		}
		docs += all.GetCardinality()
	}
	return slices.Sorted(maps.Keys(found)), docs, nil
}

// verifyRun compares a run with one that is made of the payloads, and has no limits but
// keeps the same fields. Of a run of a former version it compares what the run has, and
// returns the documents that it lacks of the fields that it has.
func (s *Selector) verifyRun(ctx context.Context, r *counted) (lost map[condition.Field]*roaring.Bitmap, err error) {
	present := map[condition.Field]*roaring.Bitmap{}
	if r.kind == formerRun {
		for _, f := range r.names {
			docs, _, err := r.present(f)
			if err != nil {
				return nil, ofRun(r.id, err)
			}
			present[f] = docs
		}
	}
	lost = map[condition.Field]*roaring.Bitmap{}
	stored := Builder{keeps: func(condition.Field, uint32) bool { return true }}
	derived, leftOut := Builder{}, roaring.New()
	derived.keeps = func(f condition.Field, ordinal uint32) bool {
		if _, kept := slices.BinarySearch(r.names, f); !kept {
			leftOut.Add(ordinal)
			return false
		}
		if r.kind != formerRun || present[f].Contains(ordinal) {
			return true
		}
		if lost[f] == nil {
			lost[f] = roaring.New()
		}
		lost[f].Add(ordinal)
		return false
	}
	if err := stored.absorbValues(ctx, r.Run, r.counts); err != nil {
		return nil, ofRun(r.id, err)
	}
	for it := r.counts.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		payload, err := s.docs.Payload(ordinal)
		if err != nil {
			return nil, err
		}
		if err := derived.Add(ctx, ordinal, payload); err != nil {
			return nil, err
		}
	}
	if r.kind == formerRun {
		leftOut = &stored.leftOut // it does not say
	}
	derived.leftOut.Or(leftOut)
	derived.formless = stored.formless
	what, err := differ(&stored, &derived)
	if err == nil && what != "" {
		err = &RunError{r.id, fmt.Errorf("%s does not follow from the payloads", what)}
	}
	return lost, err
}

// differ says in what two runs differ.
func differ(stored, derived *Builder) (what string, err error) {
	if !stored.leftOut.Equals(&derived.leftOut) {
		return "which documents have other fields", nil
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
		if !slices.EqualFunc(values[0], values[1], bytes.Equal) || !stored.formless && !stored.fields[f].forms.Equals(&derived.fields[f].forms) {
			return fmt.Sprintf("field %s", f), nil
		}
	}
	return "", nil
}
