package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// chosen is a selection in one shard, without its condition. What is nil restricts nothing.
type chosen struct {
	Ordinals []uint64 `json:"ordinals,omitzero"`
	IDs      []string `json:"ids,omitzero"`
}

// selection is what is meant in a shard, with a condition or none.
func (s *shardAt) selection(where *condition.Condition) collection.Selection {
	if s.Only == nil {
		return collection.Selection{Where: where}
	}
	return collection.Selection{Numbers: s.Only.Ordinals, IDs: s.Only.IDs, Where: where}
}

// split takes a selection apart: a shard gets the ids and the numbers that belong to it. Shards that are
// not in the map have nothing of a list.
func (m *Map) split(s *collection.Selection) map[int]*chosen {
	parts := map[int]*chosen{}
	of := func(shard int) *chosen {
		p := parts[shard]
		if p == nil {
			p = &chosen{}
			if s.Numbers != nil {
				p.Ordinals = []uint64{}
			}
			if s.IDs != nil {
				p.IDs = []string{}
			}
			parts[shard] = p
		}
		return p
	}
	for _, n := range s.Numbers {
		if shard := n >> 32; shard < uint64(m.Shards) {
			p := of(int(shard))
			p.Ordinals = append(p.Ordinals, n&math.MaxUint32)
		}
	}
	for _, id := range s.IDs {
		p := of(m.shardOf(id))
		p.IDs = append(p.IDs, id)
	}
	if s.Numbers != nil && s.IDs != nil { // both have to let a document through
		for shard, p := range parts {
			if len(p.Ordinals) == 0 || len(p.IDs) == 0 {
				delete(parts, shard)
			}
		}
	}
	if s.Numbers == nil && s.IDs == nil {
		for shard := range m.Shards {
			of(shard)
		}
	}
	return parts
}

// every is all shards of a map.
func every(m *Map) []int {
	all := make([]int, m.Shards)
	for s := range all {
		all[s] = s
	}
	return all
}

// whereOf is a condition in the form in which it travels; nil: none.
func whereOf(c *condition.Condition) (*search.Filter, error) {
	if c == nil {
		return nil, nil
	}
	if slices.Contains(c.Fields(), condition.FieldOrdinal) {
		return nil, fmt.Errorf("%w: a condition over %s, which means nothing in several shards", search.ErrOption,
			condition.FieldOrdinal)
	}
	return &search.Filter{Where: c}, nil
}

// lenient is a condition as a shard looks at it: that it does not know a field is for others to judge.
func lenient(f *search.Filter) *condition.Condition {
	if f == nil || f.Where == nil {
		return nil
	}
	return f.Where.Lenient()
}

// known checks that each field of a condition is known in one of the shards at least.
func known[T any](c *condition.Condition, parts map[int]*T, of func(*T) *answered) error {
	if c == nil || len(parts) == 0 {
		return nil
	}
	docs := uint64(0)
	for _, p := range parts {
		docs += of(p).Docs
	}
	if docs == 0 {
		return nil
	}
	return c.Check(func(f condition.Field) bool {
		for _, p := range parts {
			if a := of(p); a.Docs > 0 && !slices.Contains(a.Unknown, f) {
				return true
			}
		}
		return false
	})
}

const (
	// mostRead is about how many bytes of documents an answer has, and mostListed how many documents.
	mostRead, mostListed = 4 << 20, 1 << 15
	// listBlock is how many entries of a list are read at a time, and bareBlock of documents without metadata
	// and vectors.
	listBlock, bareBlock = 256, 1 << 15
)

// documentsAsk asks for documents of shards.
type documentsAsk struct {
	asked
	Where    *search.Filter `json:"where,omitempty"`
	Limit    int            `json:"limit,omitempty"`
	Metadata bool           `json:"metadata,omitempty"`
	Vectors  bool           `json:"vectors,omitempty"`
}

// documentsFound are some of them; More says that there are others.
type documentsFound struct {
	answered
	Documents []foundDocument `json:"documents,omitzero"`
	More      bool            `json:"more,omitempty"`
}

func (f *documentsFound) common() *answered { return &f.answered }

// foundDocument is a document of a shard.
type foundDocument struct {
	At       int    `json:"at,omitempty"` // place in the list
	Ordinal  uint64 `json:"ordinal"`
	ID       string `json:"id"`
	Of       string `json:"of,omitempty"`
	Passage  int    `json:"passage,omitempty"`
	Metadata []byte `json:"metadata,omitzero"`
	Vectors  []byte `json:"vectors,omitzero"`
}

// doDocuments reads documents of a shard.
func (c *Cluster) doDocuments(ctx context.Context, in *documentsAsk) (*answers[documentsFound], error) {
	return eachShard(ctx, c, &in.asked, (*documentsFound).common, in.Where, func(_ int, h *held,
		out *documentsFound) error {
		room, limit := max(mostRead/len(in.Shards), 1<<16), mostListed
		if in.Limit > 0 {
			limit = min(limit, in.Limit)
		}
		// read takes the documents of a selection; full says that there is no room for another.
		read := func(at int, s collection.Selection) (full bool, err error) {
			o := collection.ReadOptions{Metadata: in.Metadata, Vectors: in.Vectors, From: h.From}
			for d, err := range h.view.Documents(ctx, s, o) {
				if err != nil {
					return false, err
				}
				size := len(d.ID) + len(d.Metadata) + 4*len(d.Vectors) + 64
				if len(out.Documents) >= limit || len(out.Documents) > 0 && size > room {
					out.More = true
					return true, nil
				}
				room -= size
				out.Documents = append(out.Documents, foundDocument{
					at, d.Number, d.ID, d.Of, d.Passage, d.Metadata, bytesOf(d.Vectors),
				})
			}
			return false, ctx.Err()
		}
		if h.Only == nil {
			_, err := read(0, collection.Selection{Where: lenient(in.Where)})
			return err
		}
		for i := range max(len(h.Only.Ordinals), len(h.Only.IDs)) {
			s := collection.Selection{}
			if h.Only.Ordinals != nil {
				s.Numbers = h.Only.Ordinals[i : i+1]
			} else {
				s.IDs = h.Only.IDs[i : i+1]
			}
			if full, err := read(i, s); full || err != nil {
				return err
			}
		}
		return nil
	})
}

// bytesOf are numbers in the form in which they travel.
func bytesOf(v []float32) []byte {
	if v == nil {
		return nil
	}
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// floatsOf is the inverse.
func floatsOf(b []byte) ([]float32, error) {
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("%w: vectors of %d bytes", errMessage, len(b))
	}
	if b == nil {
		return nil, nil
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v, nil
}

// numberIn is the number of a document of a shard.
func numberIn(shard int, ordinal uint64) uint64 { return uint64(shard)<<32 | ordinal }

func (d *foundDocument) stored(shard int) (out collection.Stored, err error) {
	out = collection.Stored{Number: numberIn(shard, d.Ordinal), ID: d.ID, Of: d.Of, Passage: d.Passage,
		Metadata: d.Metadata}
	out.Vectors, err = floatsOf(d.Vectors)
	return out, err
}

// documents gives documents until give returns false. Those of a list are in its order, others in the order
// of their numbers. Those of a shard that come in one answer are of one state of it.
func (s *shards) documents(ctx context.Context, sel collection.Selection, o collection.ReadOptions,
	give func(collection.Stored) bool) error {
	if err := sel.Check(); err != nil {
		return err
	}
	n := 0
	limited := func(d collection.Stored) bool {
		n++
		return give(d) && n != o.Limit
	}
	if sel.Numbers == nil && sel.IDs == nil {
		return s.inOrder(ctx, sel.Where, o, limited)
	}
	block := listBlock
	if !o.Metadata && !o.Vectors {
		block = bareBlock
	}
	if o.Limit > 0 {
		block = min(block, max(o.Limit, 16))
	}
	if len(sel.Numbers)+len(sel.IDs) == 0 {
		_, err := s.current(ctx)
		return err
	}
	for i := 0; i < max(len(sel.Numbers), len(sel.IDs)); i += block {
		some := collection.Selection{}
		if sel.Numbers != nil {
			some.Numbers = sel.Numbers[i:min(i+block, len(sel.Numbers))]
		} else {
			some.IDs = sel.IDs[i:min(i+block, len(sel.IDs))]
		}
		if goOn, err := s.listed(ctx, some, o, limited); err != nil || !goOn {
			return err
		}
	}
	return nil
}

// listed reads the documents of a list, which is halved if an answer has no room for it.
func (s *shards) listed(ctx context.Context, sel collection.Selection, o collection.ReadOptions,
	give func(collection.Stored) bool) (goOn bool, err error) {
	m, err := s.current(ctx)
	if err != nil {
		return false, err
	}
	// places are those in the list of what a shard is asked for.
	places := map[int][]int{}
	for i, n := range sel.Numbers {
		places[int(n>>32)] = append(places[int(n>>32)], i)
	}
	for i, id := range sel.IDs {
		shard := m.shardOf(id)
		places[shard] = append(places[shard], i)
	}
	only := m.split(&sel)
	_, pages, err := all(ctx, s, "documents", func(*Map) []int { return sorted(only) }, func(_ *Map, a *asked) any {
		a.restrict(only)
		return &documentsAsk{asked: *a, Metadata: o.Metadata, Vectors: o.Vectors}
	}, (*documentsFound).common)
	if err != nil {
		return false, err
	}
	n := max(len(sel.Numbers), len(sel.IDs))
	found := make([][]collection.Stored, n)
	for shard, page := range pages {
		if page.More {
			return s.halved(ctx, sel, n, o, give)
		}
		for i := range page.Documents {
			d := &page.Documents[i]
			if d.At < 0 || d.At >= len(places[shard]) {
				return false, fmt.Errorf("shard %d: %w: place %d of a list", shard, errMessage, d.At)
			}
			out, err := d.stored(shard)
			if err != nil {
				return false, err
			}
			found[places[shard][d.At]] = append(found[places[shard][d.At]], out)
		}
	}
	for _, docs := range found {
		for _, d := range docs {
			if !give(d) {
				return false, nil
			}
		}
	}
	return true, nil
}

// halved reads a list of n entries in two parts. One entry is a document of many passages, which are then
// listed themselves.
func (s *shards) halved(ctx context.Context, sel collection.Selection, n int, o collection.ReadOptions,
	give func(collection.Stored) bool) (goOn bool, err error) {
	if n == 1 {
		if sel.Numbers != nil || !o.Metadata && !o.Vectors {
			return false, fmt.Errorf("%w: document %q", errTooLarge, sel.IDs)
		}
		numbers := []uint64{}
		_, err := s.listed(ctx, sel, collection.ReadOptions{}, func(d collection.Stored) bool {
			numbers = append(numbers, d.Number)
			return true
		})
		if err != nil {
			return false, err
		}
		goOn = true
		for some := range slices.Chunk(numbers, listBlock) {
			if goOn, err = s.listed(ctx, collection.Selection{Numbers: some}, o, give); err != nil || !goOn {
				return goOn, err
			}
		}
		return true, nil
	}
	first, rest := sel, sel
	if sel.Numbers != nil {
		first.Numbers, rest.Numbers = sel.Numbers[:n/2], sel.Numbers[n/2:]
	} else {
		first.IDs, rest.IDs = sel.IDs[:n/2], sel.IDs[n/2:]
	}
	if goOn, err = s.listed(ctx, first, o, give); err != nil || !goOn {
		return goOn, err
	}
	return s.listed(ctx, rest, o, give)
}

// inOrder reads the documents that a condition is true of; nil: all.
func (s *shards) inOrder(ctx context.Context, where *condition.Condition, o collection.ReadOptions,
	give func(collection.Stored) bool) error {
	filter, err := whereOf(where)
	if err != nil {
		return err
	}
	began := int(o.From >> 32)
	from := map[int]uint64{began: o.From & math.MaxUint32}
	in := func(_ *Map, a *asked) any {
		for i := range a.Shards {
			a.Shards[i].From = from[a.Shards[i].Shard]
		}
		return &documentsAsk{asked: *a, Where: filter, Limit: o.Limit, Metadata: o.Metadata, Vectors: o.Vectors}
	}
	m, pages, err := all(ctx, s, "documents", every, in, (*documentsFound).common)
	if err == nil {
		if err = known(where, pages, (*documentsFound).common); err != nil {
			err = s.checkFields(ctx, where)
		}
	}
	if err != nil {
		return err
	}
	for shard := began; shard < m.Shards; shard++ {
		page := pages[shard]
		pages[shard] = nil // what was read may be forgotten
		for {
			for i := range page.Documents {
				d, err := page.Documents[i].stored(shard)
				if err != nil {
					return err
				}
				if !give(d) {
					return nil
				}
			}
			if !page.More || len(page.Documents) == 0 {
				break
			}
			from = map[int]uint64{shard: page.Documents[len(page.Documents)-1].Ordinal + 1}
			_, more, err := all(ctx, s, "documents", func(*Map) []int { return []int{shard} }, in, (*documentsFound).common)
			if err != nil {
				return err
			}
			page = more[shard]
		}
	}
	return nil
}

// Documents implements [collection.View].
func (v *view) Documents(ctx context.Context, s collection.Selection,
	o collection.ReadOptions) iter.Seq2[collection.Stored, error] {
	return func(yield func(collection.Stored, error) bool) {
		stopped := false
		err := v.s.documents(ctx, s, o, func(d collection.Stored) bool {
			if ctx.Err() != nil {
				return false
			}
			stopped = !yield(d, nil)
			return !stopped
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil && !stopped {
			yield(collection.Stored{}, err)
		}
	}
}
