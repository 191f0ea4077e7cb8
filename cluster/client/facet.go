package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

// Facet counts the values of a field in the documents of a selection without document ids, as
// [index.Snapshot.Facet] does; what it may hold it may for each shard on its node too. Each
// shard is counted in one state of it, as long as its values fit into one message. Errors
// are those of Documents, and [index.ErrTooManyValues].
func (f *Client) Facet(ctx context.Context, field condition.Field, s collection.Selection, o index.FacetOptions) (*index.Facet, error) {
	if field == condition.FieldID || field == condition.FieldOrdinal {
		return nil, fmt.Errorf("%w: facet of %s: every document has its own", index.ErrOption, field)
	}
	if s.Numbers != nil {
		return nil, fmt.Errorf("%w: document ids of a facet", collection.ErrSelection)
	}
	if o.Memory == 0 {
		o.Memory = index.DefaultFacetMemory
	}
	m, err := f.collection()
	if err != nil {
		return nil, err
	}
	looks, err := f.looksOf(m, s)
	if err != nil {
		return nil, err
	}
	if err := f.knownFields(ctx, s.Where, field, o.Lenient); err != nil {
		return nil, err
	}
	counter := metadata.NewCounter(field, &o)
	var mu sync.Mutex
	err = f.each(m, func(shard int) error {
		for _, l := range looks[shard] {
			for first := true; ; first = false {
				l.Facet = &wire.FacetLook{Field: string(field), Memory: o.Memory, After: afterOf(l.Facet, first)}
				found, err := f.look(ctx, m, shard, l)
				if err != nil {
					return err
				}
				if found.Facet == nil {
					return fmt.Errorf("shard %d: %w: no facet", shard, wire.ErrMessage)
				}
				page := facetOf(found.Facet, first)
				mu.Lock()
				err = counter.Merge(page)
				mu.Unlock()
				if err != nil {
					return err
				}
				if !found.Facet.More || len(found.Facet.Values) == 0 {
					break
				}
				last := found.Facet.Values[len(found.Facet.Values)-1]
				l.Facet.After = &last
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return counter.Facet(ctx)
}

func afterOf(l *wire.FacetLook, first bool) *wire.FacetValue {
	if first || l == nil {
		return nil
	}
	return l.After
}

// facetOf is a page of values; the documents are counted with the first.
func facetOf(found *wire.FacetFound, first bool) *index.Facet {
	page := &index.Facet{}
	if first {
		page.Docs, page.Missing, page.Null = found.Docs, found.Missing, found.Null
	}
	for i := range found.Values {
		page.Values = append(page.Values, metadata.ValueCount{Value: found.Values[i].Literal(), Docs: found.Values[i].Docs})
	}
	return page
}

// looksOf are questions for the documents of a selection, several where the list of ids of a
// shard does not fit into one message; none where it has no ids of a shard.
func (f *Client) looksOf(m *topology.Map, s collection.Selection) ([][]*wire.Look, error) {
	const most = 2 << 20 // bytes of a list in one message
	looks := make([][]*wire.Look, m.Shards())
	var filter []byte
	if s.Where != nil {
		var err error
		if filter, err = whereJSON(s.Where); err != nil {
			return nil, err
		}
	}
	if s.IDs == nil {
		for shard := range looks {
			looks[shard] = []*wire.Look{{All: filter == nil, Filter: filter}}
		}
		return looks, nil
	}
	sizes := make([]int, m.Shards())
	// A document and its passages are in one question: else it might be counted in two.
	ids := unique(s.IDs)
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(topology.Whole(a), topology.Whole(b)) })
	before := ""
	for _, id := range ids {
		shard := m.ShardOf(id)
		size := 3 + len(id)
		if looks[shard] == nil || sizes[shard]+size > most && topology.Whole(id) != before {
			looks[shard], sizes[shard] = append(looks[shard], &wire.Look{Filter: filter}), 0
		}
		before = topology.Whole(id)
		l := looks[shard][len(looks[shard])-1]
		l.IDs = append(l.IDs, id)
		sizes[shard] += size
	}
	return looks, nil
}

// knownFields makes sure that some document has each field of a condition, if there is one,
// and, unless that may be missing in all, a field beside.
func (f *Client) knownFields(ctx context.Context, where *condition.Condition, field condition.Field, lenient bool) error {
	if where != nil {
		if err := f.CheckFields(ctx, where); err != nil {
			return err
		}
	}
	if lenient {
		return nil
	}
	has, err := condition.Parse(string(field) + " IS NULL")
	if err != nil {
		return err
	}
	null, err := has.Bind()
	if err != nil {
		return err
	}
	err = f.CheckFields(ctx, null)
	if unknown := (*condition.UnknownFieldError)(nil); errors.As(err, &unknown) {
		return unknown // without the place in a condition that nobody has written
	}
	return err
}

// SetPayload sets fields in the payloads of the documents of some ids, as UpdatePayload does in
// those that a condition is true of. Ids of no document are passed over. A shard has some
// hundreds of ids in one change, each of which is atomic.
func (f *Client) SetPayload(ctx context.Context, ids []string, set condition.Fields, o *WriteOptions) (*WriteReport, error) {
	const most, bytes = 512, 256 << 10 // in a change
	if err := set.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", index.ErrOption, err)
	}
	if o == nil {
		o = &WriteOptions{}
	}
	w, done, err := f.writing(ctx, o)
	if err != nil {
		return nil, err
	}
	defer done()
	rest := map[int][]string{}
	for _, id := range unique(ids) {
		s := w.m.ShardOf(id)
		rest[s] = append(rest[s], id)
	}
	for len(rest) > 0 {
		clear(w.batches)
		for s, ids := range rest {
			n, size := 0, 0
			for n < min(len(ids), most) && size < bytes {
				size += len(ids[n])
				n++
			}
			where, err := isAmong(ids[:n])
			if err != nil {
				return w.end(err)
			}
			choice, err := choiceOf(where, set)
			if err != nil {
				return w.end(err)
			}
			w.batches[s] = &wire.Batch{ID: wire.NewID(), Op: wire.Set, Shard: s, Choice: choice}
			if rest[s] = ids[n:]; len(rest[s]) == 0 {
				delete(rest, s)
			}
		}
		if err := w.flush(); err != nil {
			return w.end(err)
		}
	}
	return w.end(nil)
}

// isAmong is the condition that the id of a document, or of that of a passage, is one of a list.
func isAmong(ids []string) (*condition.Condition, error) {
	fields := []condition.Field{condition.FieldID, condition.MakeField(vectors.PassageField, "of")}
	var params []any
	var tests []string
	for _, f := range fields {
		for _, id := range ids {
			params = append(params, id)
		}
		tests = append(tests, string(f)+" IN ("+strings.Repeat("?,", len(ids)-1)+"?)")
	}
	expr, err := condition.ParsePlaceholders(strings.Join(tests, " OR "))
	if err != nil {
		return nil, err
	}
	return expr.Bind(params...)
}
