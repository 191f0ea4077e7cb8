package server

import (
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// facetsIn asks how many documents have each value of some fields.
type facetsIn struct {
	Fields []string `json:"fields" doc:"fields of the metadata, as in conditions: lang, author.name"`
	Values *int     `json:"values,omitempty" doc:"how many values of each field, those of the most documents; default 10"`
	restriction
}

type facetsOut struct {
	Facets []*index.Facet `json:"facets" doc:"one for each of fields, in their order"`
}

const (
	mostFacets = 100 // fields of a request
	// facetMemory is what the distinct values of a field may take while they are counted, with
	// those of other fields that are returned. Where there is little for all answers it is half
	// of that.
	facetMemory = 32 << 20
)

func facetRoutes() []route {
	return []route{typed(route{method: "POST", pattern: "/indices/{name}/facets", id: "facets", tag: "metadata", need: Read, group: searching, params: []param{conditionParam},
		summary: "How many documents have each value of a field", fails: []Code{CodeNotSupported},
		doc:     "Of all documents, or of those that a search with the same restriction could return.",
		example: `{"fields": ["lang"], "filter_condition": "year >= 2020"}`}, facets)}
}

func facets(q *request, in *facetsIn) (out facetsOut, err error) {
	o := index.FacetOptions{Values: index.DefaultFacetValues, Memory: min(facetMemory, q.s.answers.most/2), Lenient: q.wants(preferNull)}
	switch {
	case len(in.Fields) == 0:
		return out, bad("fields is empty")
	case len(in.Fields) > mostFacets:
		return out, bad("there are %d fields; %d are the most", len(in.Fields), mostFacets)
	case in.Values != nil && *in.Values < 1:
		return out, bad("values is %d; want 1 or more", *in.Values)
	case in.Values != nil:
		o.Values = *in.Values
	}
	fields := make([]condition.Field, len(in.Fields))
	for i, name := range in.Fields {
		if fields[i], err = condition.ParseField(name); err != nil {
			return out, bad("fields[%d]: %w", i, err)
		}
	}
	err = q.view(func(_ collection.Collection, v collection.View) error {
		counting, ok := v.(collection.Faceter)
		if !ok {
			return collection.Unsupported("facets")
		}
		among, err := in.selection(q)
		if err != nil {
			return err
		}
		if err := q.memory.take(q.ctx, o.Memory); err != nil {
			return err
		}
		ctx, end := q.span("facets")
		out.Facets, err = counting.Facets(ctx, fields, among, o)
		end(err)
		return err
	})
	if err != nil {
		return out, err
	}
	for _, f := range out.Facets {
		const each = 64 // bytes of a value, beside its text
		for i := range f.Values {
			if err := q.spend(each + len(f.Values[i].Value.String())); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}
