package metadata

import (
	"context"
	"math"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Ids and ordinals are fields of every document, but not in the payload.

// selectByID looks single ids up, and evaluates other tests for each document.
func (s *Selector) selectByID(ctx context.Context, t *condition.Test, wanted condition.Truth) (*roaring.Bitmap, error) {
	_, ids, ok := t.Points()
	if !ok {
		return s.testEach(ctx, t, wanted, func(ordinal uint32) condition.Value {
			return condition.Value{Kind: condition.Text, Text: s.snapshot.ID(ordinal)}
		})
	}
	found := roaring.New()
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		ordinal, ok, err := s.snapshot.Ordinal(id.Text)
		if err != nil {
			return found, err
		}
		if ok {
			found.Add(ordinal)
		}
	}
	return s.liveMatches(found, wanted, t.NeverFalse()), nil
}

// selectByOrdinal selects ordinals by ranges if the test has any, and otherwise evaluates it for
// each.
func (s *Selector) selectByOrdinal(
	ctx context.Context, t *condition.Test, wanted condition.Truth,
) (*roaring.Bitmap, error) {
	found := roaring.New()
	if points, _, ok := t.Points(); ok {
		for _, p := range points {
			found.AddRange(ordinalRange(&condition.Span{Low: p, High: p}))
		}
		return s.liveMatches(found, wanted, t.NeverFalse()), nil
	}
	if spans, _, ok := t.Spans(minTruthFor(wanted)); ok {
		for i := range spans {
			found.AddRange(ordinalRange(&spans[i]))
		}
		return s.liveMatches(found, wanted, t.NeverFalse()), nil
	}
	return s.testEach(ctx, t, wanted, func(ordinal uint32) condition.Value {
		return condition.Value{Kind: condition.Integer, Int: int64(ordinal)}
	})
}

// liveMatches returns the live documents with the wanted truth, given those for which a test is
// true: the live ones of found if wanted is True, otherwise those outside of found. neverFalse means
// that the test is false of no document, but unknown.
func (s *Selector) liveMatches(found *roaring.Bitmap, wanted condition.Truth, neverFalse bool) *roaring.Bitmap {
	switch {
	case wanted == condition.True:
		return roaring.And(s.live, found)
	case neverFalse:
		return roaring.New()
	}
	return roaring.AndNot(s.live, found)
}

// testEach evaluates a test for each live document.
func (s *Selector) testEach(
	ctx context.Context, t *condition.Test, wanted condition.Truth, value func(uint32) condition.Value,
) (*roaring.Bitmap, error) {
	found, evaluation := roaring.New(), condition.NewEvaluation(ctx)
	for it := s.live.Iterator(); it.HasNext(); {
		ordinal := it.Next()
		truth, err := evaluation.Truth(t, value(ordinal))
		if err != nil {
			return found, err
		}
		if truth == wanted {
			found.Add(ordinal)
		}
	}
	return found, nil
}

// ordinalRange returns the ordinals in a span of numbers, from first to before end.
func ordinalRange(s *condition.Span) (first, end uint64) {
	reached := func(o uint64) bool { return !s.Above(condition.Value{Kind: condition.Integer, Int: int64(o)}) }
	passed := func(o uint64) bool { return s.Below(condition.Value{Kind: condition.Integer, Int: int64(o)}) }
	return firstOrdinalWhere(reached), firstOrdinalWhere(passed)
}

// firstOrdinalWhere returns the first ordinal for which holds is true. It must be true for all
// later ones.
func firstOrdinalWhere(holds func(uint64) bool) uint64 {
	lo, hi := uint64(0), uint64(math.MaxUint32)
	for lo < hi {
		if mid := (lo + hi) / 2; holds(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
