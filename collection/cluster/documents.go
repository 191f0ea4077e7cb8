package cluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// splitSelection is a selection that is split by shard.
type splitSelection struct {
	selection  *collection.Selection
	shardCount int
	byShard    map[int]*collection.Selection // the entries of a list by shard, with ordinals for numbers
	indices    map[int][]int                 // indices in the list of those entries
}

// newSplitSelection splits a selection. Numbers of shards that do not exist are dropped.
func newSplitSelection(s *collection.Selection, shards int) *splitSelection {
	p := &splitSelection{s, shards, map[int]*collection.Selection{}, map[int][]int{}}
	shardList := func(shard, i int) *collection.Selection {
		if p.byShard[shard] == nil {
			p.byShard[shard] = &collection.Selection{}
		}
		p.indices[shard] = append(p.indices[shard], i)
		return p.byShard[shard]
	}
	for i, n := range s.Numbers {
		if shard := n >> 32; shard < uint64(shards) {
			l := shardList(int(shard), i)
			l.Numbers = append(l.Numbers, n&math.MaxUint32)
		}
	}
	for i, id := range s.IDs {
		l := shardList(index.HashShard(documentIDOf(id), shards), i)
		l.IDs = append(l.IDs, id)
	}
	return p
}

// shardNumbers returns the shards that may have documents of the selection: all, unless it is a list.
func (p *splitSelection) shardNumbers() []int {
	if p.selection.Numbers != nil || p.selection.IDs != nil {
		return sortedKeys(p.byShard)
	}
	shards := make([]int, p.shardCount)
	for s := range shards {
		shards[s] = s
	}
	return shards
}

// toLenient returns a selection whose condition ignores unknown fields: they may be known in another shard.
func toLenient(s collection.Selection) collection.Selection {
	if s.Where != nil {
		s.Where = s.Where.Lenient()
	}
	return s
}

// forShards returns the part of the selection for some shards.
func (p *splitSelection) forShards(shards ...int) (s collection.Selection) {
	if p.selection.Numbers != nil {
		s.Numbers = []uint64{}
	}
	if p.selection.IDs != nil {
		s.IDs = []string{}
	}
	s.Where = p.selection.Where
	for _, shard := range shards {
		if l := p.byShard[shard]; l != nil {
			s.Numbers, s.IDs = append(s.Numbers, l.Numbers...), append(s.IDs, l.IDs...)
		}
	}
	return toLenient(s)
}

// allShards returns the numbers of all shards of a map.
func allShards(m *Map) []int {
	return newSplitSelection(&collection.Selection{}, m.Shards).shardNumbers()
}

// oneShard returns a function that selects one shard.
func oneShard(shard int) func(*Map) []int { return func(*Map) []int { return []int{shard} } }

// shardsOf returns a function that selects the shards that may have documents of a selection.
func shardsOf(s collection.Selection) func(*Map) []int {
	return func(m *Map) []int { return newSplitSelection(&s, m.Shards).shardNumbers() }
}

// checkWhere refuses conditions over ordinals, which mean nothing in several shards.
func checkWhere(c *condition.Condition) error {
	if c != nil && slices.Contains(c.Fields(), condition.FieldOrdinal) {
		return fmt.Errorf("%w: a condition over %s, which means nothing in several shards", search.ErrOption,
			condition.FieldOrdinal)
	}
	return nil
}

// checkKnownFields returns an error if a field of a condition is unknown in every shard that has documents.
func checkKnownFields[T any, P answer[T]](c *condition.Condition, byShard map[int]*T) error {
	docs := uint64(0)
	for _, p := range byShard {
		docs += P(p).commonHead().Docs
	}
	if c == nil || docs == 0 {
		return nil
	}
	return c.Check(func(f condition.Field) bool {
		for _, p := range byShard {
			if a := P(p).commonHead(); a.Docs > 0 && !slices.Contains(a.Unknown, f) {
				return true
			}
		}
		return false
	})
}

// floats are encoded as base64 of little-endian numbers.
type floats []float32

// MarshalText implements [encoding.TextMarshaler].
func (v floats) MarshalText() ([]byte, error) {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (v *floats) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil || len(b)%4 != 0 {
		return fmt.Errorf("%d bytes are not base64 of 32-bit numbers", len(text))
	}
	*v = make(floats, len(b)/4)
	for i := range *v {
		(*v)[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return nil
}

const (
	// maxReadBytes is about how many bytes of documents an answer may have, and maxListed how many documents.
	maxReadBytes, maxListed = 4 << 20, 1 << 15
	// listBlock is how many entries of a list are read at a time, and bareBlock how many if neither metadata nor
	// vectors are read.
	listBlock, bareBlock = 256, 1 << 15
)

// documentsRequest asks for documents of shards.
type documentsRequest struct {
	Only collection.Selection   `json:"only"`
	Read collection.ReadOptions `json:"read"`
}

// documentsAnswer has documents of a shard. More says that there are more.
type documentsAnswer struct {
	answerHead
	Documents []wireStoredDocument `json:"documents,omitzero"`
	More      bool                 `json:"more,omitempty"`
}

// wireStoredDocument is a document whose metadata and vectors are encoded separately: JSON would change their form.
type wireStoredDocument struct {
	collection.StoredDocument
	Metadata []byte `json:",omitzero"`
	Vectors  floats `json:",omitzero"`
	At       int    // index in the list of the shard
}

// stored returns the document with its metadata and vectors.
func (d *wireStoredDocument) stored() collection.StoredDocument {
	d.StoredDocument.Metadata, d.StoredDocument.Vectors = d.Metadata, d.Vectors
	return d.StoredDocument
}

// doDocuments reads documents of shards, as many as an answer may have.
func (c *Cluster) doDocuments(ctx context.Context, target *shardTarget,
	in *documentsRequest) (*answers[documentsAnswer], error) {
	split := newSplitSelection(&in.Only, target.ShardCount)
	return eachShard(ctx, c, target, func(h *openShard, out *documentsAnswer) error {
		remaining, limit := max(maxReadBytes/len(target.Shards), 1<<16), maxListed
		if in.Read.Limit > 0 {
			limit = min(limit, in.Read.Limit)
		}
		o := in.Read
		o.Limit, o.From = 0, 0
		if in.Read.From>>32 == uint64(h.Shard) {
			o.From = in.Read.From & math.MaxUint32
		}
		// readEntry reads documents of one entry of the list, or of the whole selection if that has none.
		readEntry := func(index int, s collection.Selection) error {
			for d, err := range h.snapshot.Documents(ctx, s, o) {
				if err != nil {
					return err
				}
				size := len(d.ID) + len(d.Metadata) + 4*len(d.Vectors) + 64
				if len(out.Documents) >= limit || len(out.Documents) > 0 && size > remaining {
					out.More = true
					break
				}
				remaining -= size
				d.Number = documentNumber(h.Shard, d.Number)
				out.Documents = append(out.Documents, wireStoredDocument{d, d.Metadata, d.Vectors, index})
			}
			return ctx.Err()
		}
		s := split.forShards(h.Shard)
		if s.Numbers == nil && s.IDs == nil {
			return readEntry(0, s)
		}
		for i := 0; i < listLength(&s) && !out.More; i++ {
			if err := readEntry(i, sublist(&s, i, i+1)); err != nil {
				return err
			}
		}
		return nil
	}, in.Only.Where)
}

// documentNumber returns the number of a document of a shard: the shard in the upper 32 bits.
func documentNumber(shard int, ordinal uint64) uint64 { return uint64(shard)<<32 | ordinal }

// listLength returns the length of the list of a selection.
func listLength(s *collection.Selection) int { return max(len(s.Numbers), len(s.IDs)) }

// sublist returns the entries from i to j of the list of a selection.
func sublist(s *collection.Selection, i, j int) collection.Selection {
	if s.Numbers != nil {
		return collection.Selection{Numbers: s.Numbers[i:j]}
	}
	return collection.Selection{IDs: s.IDs[i:j]}
}

// readDocuments yields documents until yield returns false: those of a list in its order, others in the order of their
// numbers. Documents of a shard that come in one answer are of one state of the shard.
func (s *shardedCollection) readDocuments(ctx context.Context, sel collection.Selection, o collection.ReadOptions,
	yield func(collection.StoredDocument) bool) error {
	if err := sel.Check(); err != nil {
		return err
	}
	n, limit := 0, o.Limit
	limited := func(d collection.StoredDocument) bool {
		n++
		return yield(d) && n != limit
	}
	if sel.Numbers == nil && sel.IDs == nil {
		return s.readByNumber(ctx, sel, o, limited)
	}
	if listLength(&sel) == 0 {
		_, err := s.currentMap(ctx)
		return err
	}
	block := listBlock
	if !o.Metadata && !o.Vectors {
		block = bareBlock
	}
	if limit > 0 {
		block = min(block, max(limit, 16))
	}
	o.Limit, o.From = 0, 0
	_, err := (&listReader{s, o, nil, limited}).readInBlocks(ctx, sel, block)
	return err
}

// listReader reads the documents of lists. All of them have the numbers of one generation.
type listReader struct {
	*shardedCollection
	o     collection.ReadOptions
	m     *Map // of the first list, nil before it has been read
	yield func(collection.StoredDocument) bool
}

// readInBlocks reads the documents of a list, block entries at a time. wantsMore is false if yield has ended the
// reading.
func (r *listReader) readInBlocks(ctx context.Context, sel collection.Selection,
	block int) (wantsMore bool, err error) {
	wantsMore = true
	for i := 0; i < listLength(&sel) && wantsMore && err == nil; i += block {
		wantsMore, err = r.readBlock(ctx, sublist(&sel, i, min(i+block, listLength(&sel))))
	}
	return wantsMore, err
}

// readBlock reads the documents of a list in one answer. If they do not fit, it reads them in halves.
func (r *listReader) readBlock(ctx context.Context, sel collection.Selection) (wantsMore bool, err error) {
	in := &documentsRequest{sel, r.o}
	m, pages, err := readAllShards[documentsAnswer](ctx, r.shardedCollection, "documents", shardsOf(sel), in)
	if err != nil {
		return false, err
	}
	// Check that documents still have the numbers that they had before.
	if r.m = cmp.Or(r.m, m); m.Current.Base != r.m.Current.Base {
		return false, fmt.Errorf("%q: %w", r.name, errRebuilt)
	}
	// Put the documents in the order of the list.
	n, indices := listLength(&sel), newSplitSelection(&sel, m.Shards).indices
	byEntry := make([][]collection.StoredDocument, n)
	for shard, page := range pages {
		if page.More && n > 1 {
			return r.readInBlocks(ctx, sel, (n+1)/2)
		}
		if page.More {
			return r.readPassages(ctx, sel)
		}
		for i := range page.Documents {
			d := &page.Documents[i]
			if d.At < 0 || d.At >= len(indices[shard]) {
				return false, fmt.Errorf("shard %d: %w: place %d of a list", shard, errMessage, d.At)
			}
			entry := indices[shard][d.At]
			byEntry[entry] = append(byEntry[entry], d.stored())
		}
	}
	for _, d := range slices.Concat(byEntry...) {
		if !r.yield(d) {
			return false, nil
		}
	}
	return true, nil
}

// readPassages reads a document whose passages do not fit into one answer: first their numbers, then the passages by
// number.
func (r *listReader) readPassages(ctx context.Context, sel collection.Selection) (wantsMore bool, err error) {
	if sel.Numbers != nil || !r.o.Metadata && !r.o.Vectors {
		return false, fmt.Errorf("%w: document %q", collection.ErrTooLarge, sel.IDs)
	}
	numbers, read := []uint64{}, 0
	bare := &listReader{r.shardedCollection, collection.ReadOptions{}, r.m, func(d collection.StoredDocument) bool {
		numbers = append(numbers, d.Number)
		return true
	}}
	if _, err = bare.readBlock(ctx, sel); err != nil {
		return false, err
	}
	full := &listReader{r.shardedCollection, r.o, r.m, func(d collection.StoredDocument) bool {
		read++
		return r.yield(d)
	}}
	wantsMore, err = full.readInBlocks(ctx, collection.Selection{Numbers: numbers}, listBlock)
	if wantsMore && err == nil && read < len(numbers) {
		err = fmt.Errorf("%w: document %q was changed while it was read", collection.ErrUnreachable, sel.IDs)
	}
	return wantsMore, err
}

// readByNumber reads the documents of a selection without a list, in the order of their numbers.
func (s *shardedCollection) readByNumber(ctx context.Context, sel collection.Selection, o collection.ReadOptions,
	yield func(collection.StoredDocument) bool) error {
	if err := checkWhere(sel.Where); err != nil {
		return err
	}
	m, pages, err := readAllShards[documentsAnswer](ctx, s, "documents", allShards, &documentsRequest{sel, o})
	if err == nil {
		err = checkAnsweredFields(ctx, s, sel.Where, pages)
	}
	if err != nil {
		return err
	}
	// Read the remaining documents of each shard.
	for shard := int(o.From >> 32); shard < m.Shards; shard++ {
		page := pages[shard]
		pages[shard] = nil // lets its memory be freed
		for {
			for i := range page.Documents {
				if !yield(page.Documents[i].stored()) {
					return nil
				}
			}
			if !page.More || len(page.Documents) == 0 {
				break
			}
			o.From = page.Documents[len(page.Documents)-1].Number + 1
			in := &documentsRequest{sel, o}
			_, next, err := readAllShards[documentsAnswer](ctx, s, "documents", oneShard(shard), in)
			if err == nil {
				err = s.checkSameNumbers(ctx, m)
			}
			if err != nil {
				return err
			}
			if page = next[shard]; len(page.Documents) > 0 && page.Documents[0].Number < o.From {
				return fmt.Errorf("shard %d: %w: document %d again", shard, errMessage, page.Documents[0].Number)
			}
		}
	}
	return nil
}

// Documents implements [collection.Snapshot].
func (v *shardedSnapshot) Documents(ctx context.Context, s collection.Selection,
	o collection.ReadOptions) iter.Seq2[collection.StoredDocument, error] {
	return func(yield func(collection.StoredDocument, error) bool) {
		stopped := false
		err := v.coll.readDocuments(ctx, s, o, func(d collection.StoredDocument) bool {
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
			yield(collection.StoredDocument{}, err)
		}
	}
}

// hitsWithPayloads returns the hits of rankings, with their payloads if wanted. It reads the payloads that did not fit
// into an answer, and leaves out hits that were deleted meanwhile.
func (s *shardedCollection) hitsWithPayloads(ctx context.Context, m *Map, withPayloads bool,
	rankings ...[]wireHit) ([][]search.Hit, error) {
	missing, payloads := map[uint64]bool{}, map[uint64]json.RawMessage{}
	for _, hits := range rankings {
		for i := range hits {
			for p := range passagesOf(&hits[i].Hit) {
				if withPayloads && hits[i].lacksPayloads() {
					missing[collection.HitNumber(p)] = true
				}
			}
		}
	}
	if len(missing) > 0 {
		sel := collection.Selection{Numbers: sortedKeys(missing)}
		err := s.readDocuments(ctx, sel, collection.ReadOptions{Metadata: true},
			func(d collection.StoredDocument) bool {
				payloads[d.Number] = d.Metadata
				return true
			})
		if err == nil {
			err = s.checkSameNumbers(ctx, m)
		}
		if err != nil {
			return nil, err
		}
	}
	out := make([][]search.Hit, len(rankings))
	for i, hits := range rankings {
		out[i] = make([]search.Hit, 0, len(hits))
		for j := range hits {
			if h := &hits[j]; !withPayloads || h.fillPayloads(payloads) {
				out[i] = append(out[i], h.Hit)
			}
		}
	}
	return out, nil
}

// fillPayloads gives a hit its payloads: those that came with it, or those read by document number. It reports whether
// all of its documents still exist.
func (h *wireHit) fillPayloads(payloads map[uint64]json.RawMessage) bool {
	if h.lacksPayloads() {
		h.Payloads = nil
		for p := range passagesOf(&h.Hit) {
			payload, found := payloads[collection.HitNumber(p)]
			if !found {
				return false
			}
			h.Payloads = append(h.Payloads, payload)
		}
	}
	setPayloads(&h.Hit, h.Payloads)
	return true
}
