package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// facetsRequest asks for the values of a field in the selected documents of shards.
type facetsRequest struct {
	Only   collection.Selection `json:"only"`
	Field  condition.Field      `json:"field"`
	Memory int64                `json:"memory"`
}

type facetsAnswer struct {
	answerHead
	Facet  index.Facet  `json:"facet"` // without its values, which are in Values
	Values []facetValue `json:"values,omitzero"`
}

// facetValue is a [metadata.ValueCount] with all its fields: the JSON of a literal would lose some.
type facetValue struct {
	plainValue
	Form  condition.Form
	Count uint64
}

// plainValue is a value without its JSON methods.
type plainValue condition.Value

// doFacets counts the values of a field in shards.
func (c *Cluster) doFacets(ctx context.Context, target *shardTarget,
	in *facetsRequest) (*answers[facetsAnswer], error) {
	split := newSplitSelection(&in.Only, target.ShardCount)
	null, err := nullCondition(in.Field)
	if err != nil {
		return nil, err
	}
	return eachShard(ctx, c, target, func(h *openShard, out *facetsAnswer) error {
		o := index.FacetOptions{Values: math.MaxInt32, Memory: max(in.Memory, 1), Lenient: true}
		facets, err := h.snapshot.Facets(ctx, []condition.Field{in.Field}, split.forShards(h.Shard), o)
		if err != nil {
			return err
		}
		for _, v := range facets[0].Values {
			out.Values = append(out.Values, facetValue{plainValue(v.Value.Value), v.Value.Form, v.Docs})
		}
		out.Facet = *facets[0]
		out.Facet.Values = nil
		return nil
	}, in.Only.Where, null)
}

// Facets implements [collection.Faceter]. Each node, too, may use the memory of the options for one facet.
func (v *shardedSnapshot) Facets(ctx context.Context, fields []condition.Field, s collection.Selection,
	o index.FacetOptions) ([]*index.Facet, error) {
	facets := make([]*index.Facet, len(fields))
	err := v.coll.withinOneGeneration(ctx, func() (err error) {
		remaining, o := cmp.Or(o.Memory, index.DefaultFacetMemory), o
		for i, f := range fields {
			o.Memory = max(remaining, 1) // 0 would mean the default
			if facets[i], err = v.countFacet(ctx, f, s, o); err != nil {
				return err
			}
			remaining -= facets[i].Bytes()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return facets, nil
}

// countFacet counts the values of one field in all shards.
func (v *shardedSnapshot) countFacet(ctx context.Context, field condition.Field, s collection.Selection,
	o index.FacetOptions) (*index.Facet, error) {
	if field == condition.FieldID || field == condition.FieldOrdinal {
		return nil, fmt.Errorf("%w: facet of %s: every document has its own", index.ErrOption, field)
	}
	if err := checkWhere(s.Where); err != nil {
		return nil, err
	}
	null, err := nullCondition(field)
	if err != nil {
		return nil, err
	}
	selectShards := shardsOf(s)
	if s.Where != nil || !o.Lenient { // every shard may know the fields
		selectShards = allShards
	}
	in := &facetsRequest{s, field, o.Memory}
	_, byShard, err := readAllShards[facetsAnswer](ctx, v.coll, "facets", selectShards, in)
	if err == nil {
		err = checkAnsweredFields(ctx, v.coll, s.Where, byShard)
	}
	if err == nil && !o.Lenient {
		err = checkAnsweredFields(ctx, v.coll, null, byShard)
		if unknown, ok := errors.AsType[*condition.UnknownFieldError](err); ok {
			err = unknown // without the position in a condition that the user has not written
		}
	}
	if err != nil {
		return nil, err
	}
	counter := metadata.NewCounter(field, &o)
	for _, shard := range sortedKeys(byShard) {
		f := byShard[shard].Facet
		for _, v := range byShard[shard].Values {
			value := condition.Literal{Value: condition.Value(v.plainValue), Form: v.Form}
			f.Values = append(f.Values, metadata.ValueCount{Value: value, Docs: v.Count})
		}
		if err := counter.Merge(&f); err != nil {
			return nil, err
		}
	}
	return counter.Facet(ctx)
}

// nullCondition returns the condition "field IS NULL", by which shards find out whether they know the field.
func nullCondition(field condition.Field) (*condition.Condition, error) {
	e, err := condition.Parse(string(field) + " IS NULL")
	if err != nil {
		return nil, err
	}
	return e.Bind()
}
