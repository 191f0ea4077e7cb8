package node

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// among are the live documents that the ids and the filter of a question let through; nil:
// all. Fields of the filter that no document has are noted in f.
func among(ctx context.Context, snap *index.Snapshot, l *wire.Look, filter []byte, f *wire.Found) (docs *roaring.Bitmap, err error) {
	if l.IDs != nil {
		if docs, _, err = snap.Named(ctx, l.IDs); err != nil {
			return nil, err
		}
	}
	if filter == nil {
		return docs, nil
	}
	where, err := conditionOf(filter)
	if err != nil {
		return nil, err
	}
	if f.Unknown, err = unknownFields(ctx, []*index.Snapshot{snap}, where); err != nil {
		return nil, err
	}
	chosen, err := snap.Select(ctx, where.Lenient())
	if err == nil && docs != nil {
		chosen.And(docs)
	}
	return chosen, err
}

// facet counts the values of a field.
func facet(ctx context.Context, snap *index.Snapshot, l *wire.Look, f *wire.Found) error {
	field, err := condition.ParseField(l.Facet.Field)
	if err != nil {
		return fmt.Errorf("%w: %w", wire.ErrMessage, err)
	}
	docs, err := among(ctx, snap, l, l.Filter, f)
	if err != nil {
		return err
	}
	all, err := snap.Facet(ctx, field, docs, &index.FacetOptions{Values: math.MaxInt32, Memory: max(l.Facet.Memory, 1), Lenient: true})
	if err != nil {
		return err
	}
	f.Facet = &wire.FacetFound{Docs: all.Docs, Missing: all.Missing, Null: all.Null}
	values := all.Values
	slices.SortFunc(values, func(a, b metadata.ValueCount) int { return a.Value.Compare(b.Value) })
	if l.Facet.After != nil {
		last := l.Facet.After.Literal()
		values = values[sort.Search(len(values), func(i int) bool { return values[i].Value.Compare(last) > 0 }):]
	}
	room := maxLook / 2 // bytes that are no letters take six in JSON
	for i, v := range values {
		if room -= 100 + 2*len(v.Value.Text); room < 0 && i > 0 {
			f.Facet.More = true
			break
		}
		f.Facet.Values = append(f.Facet.Values, wire.NewFacetValue(v.Value, v.Docs))
	}
	return nil
}
