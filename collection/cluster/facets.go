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
	"github.com/plaid-ir/plaid/search"
)

// facetsAsk asks for the values of a field in documents of shards.
type facetsAsk struct {
	asked
	Where  *search.Filter  `json:"where,omitempty"`
	Field  condition.Field `json:"field"`
	Memory int64           `json:"memory"`
}

type facetsFound struct {
	answered
	Documents uint64       `json:"documents"`
	Missing   uint64       `json:"missing,omitempty"`
	Null      uint64       `json:"null,omitempty"`
	Values    []facetValue `json:"values,omitzero"`
}

func (f *facetsFound) common() *answered { return &f.answered }

// facetValue is a [condition.Literal], and how many documents have it.
type facetValue struct {
	Kind condition.Kind `json:"kind"`
	Form condition.Form `json:"form,omitempty"`
	Int  int64          `json:"int,omitempty"`
	Real float64        `json:"real,omitempty"`
	Text string         `json:"text,omitempty"`
	Docs uint64         `json:"docs"`
}

// doFacets counts the values of a field.
func (c *Cluster) doFacets(ctx context.Context, in *facetsAsk) (*answers[facetsFound], error) {
	return eachShard(ctx, c, &in.asked, (*facetsFound).common, in.Where, func(_ int, h *held, out *facetsFound) error {
		o := index.FacetOptions{Values: math.MaxInt32, Memory: max(in.Memory, 1), Lenient: true}
		facets, err := h.view.Facets(ctx, []condition.Field{in.Field}, h.selection(lenient(in.Where)), o)
		if err != nil {
			return err
		}
		f := facets[0]
		out.Documents, out.Missing, out.Null, out.Values = f.Docs, f.Missing, f.Null, make([]facetValue, len(f.Values))
		for i, v := range f.Values {
			out.Values[i] = facetValue{v.Value.Kind, v.Value.Form, v.Value.Int, v.Value.Real, v.Value.Text, v.Docs}
		}
		return nil
	})
}

// Facets implements [collection.Faceter]. What a facet may hold it may hold in each node too.
func (v *view) Facets(ctx context.Context, fields []condition.Field, s collection.Selection,
	o index.FacetOptions) ([]*index.Facet, error) {
	facets := make([]*index.Facet, len(fields))
	left := cmp.Or(o.Memory, index.DefaultFacetMemory)
	for i, f := range fields {
		o.Memory = max(left, 1) // 0 is the default
		var err error
		if facets[i], err = v.facet(ctx, f, s, o); err != nil {
			return nil, err
		}
		left -= facets[i].Bytes()
	}
	return facets, nil
}

func (v *view) facet(ctx context.Context, field condition.Field, s collection.Selection,
	o index.FacetOptions) (*index.Facet, error) {
	if field == condition.FieldID || field == condition.FieldOrdinal {
		return nil, fmt.Errorf("%w: facet of %s: every document has its own", index.ErrOption, field)
	}
	where, err := whereOf(s.Where)
	if err != nil {
		return nil, err
	}
	if !o.Lenient {
		err := v.s.checkField(ctx, field)
		if unknown, ok := errors.AsType[*condition.UnknownFieldError](err); ok {
			return nil, unknown // without the place in a condition that no user has written
		}
		if err != nil {
			return nil, err
		}
	}
	if err := v.s.checkFields(ctx, s.Where); err != nil {
		return nil, err
	}
	which := every
	if s.IDs != nil || s.Numbers != nil {
		which = func(m *Map) []int { return sorted(m.split(&s)) }
	}
	_, found, err := all(ctx, v.s, "facets", which, func(m *Map, a *asked) any {
		if s.IDs != nil || s.Numbers != nil {
			a.restrict(m.split(&s))
		}
		return &facetsAsk{*a, where, field, o.Memory}
	}, (*facetsFound).common)
	if err != nil {
		return nil, err
	}
	counter := metadata.NewCounter(field, &o)
	for _, shard := range sorted(found) {
		f := found[shard]
		page := &index.Facet{Docs: f.Documents, Missing: f.Missing, Null: f.Null, Values: make([]metadata.ValueCount,
			len(f.Values))}
		for i, v := range f.Values {
			value := condition.Value{Kind: v.Kind, Int: v.Int, Real: v.Real, Text: v.Text}
			page.Values[i] = metadata.ValueCount{Value: condition.Literal{Value: value, Form: v.Form}, Docs: v.Docs}
		}
		if err := counter.Merge(page); err != nil {
			return nil, err
		}
	}
	return counter.Facet(ctx)
}

// checkField makes sure that a document has a field.
func (s *shards) checkField(ctx context.Context, field condition.Field) error {
	e, err := condition.Parse(string(field) + " IS NULL")
	if err != nil {
		return err
	}
	null, err := e.Bind()
	if err != nil {
		return err
	}
	return s.checkFields(ctx, null)
}

// checkFields makes sure that some document has each field of a condition.
func (s *shards) checkFields(ctx context.Context, where *condition.Condition) error {
	if where == nil || where.IsLenient() {
		return nil
	}
	filter, err := whereOf(where)
	if err != nil {
		return err
	}
	look := func(strict bool) (map[int]*lookFound, error) {
		in := func(_ *Map, a *asked) any { return &lookAsk{asked: *a, Where: filter, Strict: strict} }
		_, looks, err := all(ctx, s, "look", every, in, (*lookFound).common)
		return looks, err
	}
	looks, err := look(false)
	if err != nil {
		return err
	}
	if err = known(where, looks, (*lookFound).common); err != nil {
		if _, better := look(true); errors.Is(better, condition.ErrUnknownField) {
			return better // it names the fields that there are
		}
	}
	return err
}
