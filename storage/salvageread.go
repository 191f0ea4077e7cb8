package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/kernels"
)

// liveness says how it is known which documents are deleted.
type liveness int

const (
	byTombstones liveness = iota
	byIDs                 // tombstones are damaged, but every live document has an id
	uncertain
)

// Standing is what is known of a document.
type Standing int

// Standings of a document.
const (
	Dead Standing = iota
	Alive
	Uncertain // the tombstones are damaged
)

// findLiveness reads the tombstones, and the ids if they are damaged: deleting a
// document removes its id.
func (w *Wreck) findLiveness() error {
	deleted := int64(-1)
	if w.state != nil {
		deleted = int64(w.state.Docs - w.state.Live)
	}
	w.dead = roaring.New()
	if deleted == 0 {
		return nil
	}
	_, err := w.record(keyTombstones, func(b []byte) error {
		bm := roaring.New()
		if err := bm.UnmarshalBinary(b); err != nil {
			return err
		}
		if n := bm.GetCardinality(); deleted >= 0 && n != uint64(deleted) {
			return fmt.Errorf("%d of %d", n, deleted)
		}
		w.dead = bm
		return nil
	})
	if err == nil {
		return nil
	}
	w.note("tombstones: %v", err)
	w.alive, w.dead = roaring.New(), nil
	broken := false
	err = w.eachID(context.Background(), w.finds.ids, func(_ string, ordinal uint32, err error) {
		if err != nil {
			broken = true
			return
		}
		w.alive.Add(ordinal)
	})
	if err != nil {
		return err
	}
	w.liveness = uncertain
	if !broken && !w.finds.idsBroken && (w.state == nil || w.alive.GetCardinality() == uint64(w.state.Live)) {
		w.liveness = byIDs
	}
	return nil
}

// Standing tells whether a document is live.
func (w *Wreck) Standing(ordinal uint32) Standing {
	switch {
	case w.liveness == byTombstones && w.dead.Contains(ordinal):
		return Dead
	case w.liveness == byTombstones, w.alive.Contains(ordinal):
		return Alive
	case w.liveness == byIDs:
		return Dead
	}
	return Uncertain
}

// Certain reports whether it is known of each document if it is live.
func (w *Wreck) Certain() bool { return w.liveness != uncertain }

// Docs is the number of ordinals that are known of.
func (w *Wreck) Docs() uint32 {
	if w.state != nil {
		return w.state.Docs
	}
	n := uint32(0)
	if len(w.chunks) > 0 {
		last := w.chunks[len(w.chunks)-1]
		n = last.first + last.count
	}
	if w.alive != nil && !w.alive.IsEmpty() {
		n = max(n, w.alive.Maximum()+1)
	}
	return n
}

// Chunks is the number of chunks whose documents are known.
func (w *Wreck) Chunks() int { return len(w.chunks) }

// Chunk reads chunk i. Its table is there even where its arrays are damaged,
// which err says without naming the file.
func (w *Wreck) Chunk(i int) (*DocTable, *kernels.Chunk, error) {
	table, ch, err := w.chunk(i)
	if err != nil {
		w.note("%v", err)
	}
	return table, ch, err
}

func (w *Wreck) chunk(i int) (*DocTable, *kernels.Chunk, error) {
	c := &w.chunks[i]
	b, err := w.open(keyIn(c.number, keyDocs), c.page.values[1])
	if err != nil {
		return nil, nil, fmt.Errorf("document table of chunk %d: %w", c.number, err) // it was sound before
	}
	t, err := parseDocTable(b)
	if err != nil {
		return nil, nil, fmt.Errorf("chunk %d: %w", c.number, err)
	}
	table := &DocTable{First: t.first}
	for d := range t.count {
		table.Lengths = append(table.Lengths, t.length(d))
		table.IDs = append(table.IDs, t.id(d))
		table.Payloads = append(table.Payloads, t.hasPayload(d))
	}
	ch := &kernels.Chunk{CodeBytes: CodeBytes(w.header.Centroids)}
	if ch.Offsets, err = t.offsets(); err != nil {
		return table, nil, fmt.Errorf("chunk %d: %w", c.number, err)
	}
	tokens := ch.Tokens()
	for _, a := range []struct {
		at  int
		n   int
		dst *[]byte
	}{
		{0, tokens * ch.CodeBytes, &ch.Codes}, {2, tokens * 2, &ch.Factors}, {3, tokens * w.codec.RowBytes(), &ch.Residuals},
	} {
		key := chunkKeys[a.at]
		b, err := w.open(keyIn(c.number, key), c.page.values[a.at])
		if err == nil && len(b) != a.n+tailBytes {
			err = fmt.Errorf("%d bytes for %d tokens", len(b), tokens)
		}
		if err != nil {
			return table, nil, fmt.Errorf("%s of chunk %d: %w", key, c.number, err)
		}
		*a.dst = b[:a.n]
	}
	if err := ch.Validate(&w.codec); err != nil {
		return table, nil, fmt.Errorf("chunk %d: %w", c.number, err)
	}
	return table, ch, nil
}

// eachID visits the ids whose checksum is right; err is for those where it is
// not. Leaf pages of other things have none.
func (w *Wreck) eachID(ctx context.Context, pages []leafPage, visit func(id string, ordinal uint32, err error)) error {
	for _, l := range pages {
		if err := ctx.Err(); err != nil {
			return err
		}
		elements, err := w.elements(l)
		if err != nil {
			visit("", 0, err)
		}
		for _, e := range elements {
			if e.bucket || e.value.size != 4+crcSize {
				visit("", 0, errChecksum)
				continue
			}
			b, err := w.open(e.key, e.value)
			if err != nil {
				visit("", 0, err)
				continue
			}
			visit(string(e.key), binary.LittleEndian.Uint32(b), nil)
		}
	}
	return nil
}

// IDs finds the ids of documents whose tables are lost: those of the set, as far
// as they are there.
func (w *Wreck) IDs(ctx context.Context, of *roaring.Bitmap) (map[uint32]string, error) {
	found := map[uint32]string{}
	add := func(id string, ordinal uint32, err error) {
		if err == nil && of.Contains(ordinal) {
			found[ordinal] = id
		}
	}
	if of.IsEmpty() {
		return found, nil
	}
	err := w.eachID(ctx, w.finds.ids, add)
	if err == nil && uint64(len(found)) < of.GetCardinality() {
		err = w.eachID(ctx, w.findStrays().ids, add)
	}
	return found, err
}

// payloadAt is where the payload of a document is.
type payloadAt struct {
	ordinal uint32
	value   span
}

func (w *Wreck) listPayload(pages []leafPage) []payloadAt {
	list := []payloadAt{}
	for _, l := range pages {
		elements, _ := w.elements(l)
		for _, e := range elements {
			if len(e.key) == 4 && !e.bucket {
				list = append(list, payloadAt{binary.BigEndian.Uint32(e.key), e.value})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b payloadAt) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return list
}

// Payload reads what was stored beside a document that has something.
func (w *Wreck) Payload(ordinal uint32) ([]byte, error) {
	if w.payload == nil {
		w.payload = w.listPayload(w.finds.payload)
	}
	p, err := w.payloadOf(w.payload, ordinal)
	if err == nil {
		return p, nil
	}
	if w.misplaced == nil {
		w.misplaced = w.listPayload(w.findStrays().payload)
	}
	if p, serr := w.payloadOf(w.misplaced, ordinal); serr == nil {
		return p, nil
	}
	w.note("payload of document %d: %v", ordinal, err)
	return nil, w.bad(err, "payload of document %d", ordinal)
}

func (w *Wreck) payloadOf(list []payloadAt, ordinal uint32) ([]byte, error) {
	err := fmt.Errorf("not found")
	i, _ := slices.BinarySearchFunc(list, ordinal, func(p payloadAt, o uint32) int { return cmp.Compare(p.ordinal, o) })
	for ; i < len(list) && list[i].ordinal == ordinal; i++ {
		b, oerr := w.open(key32(ordinal), list[i].value)
		if oerr == nil {
			return b, nil
		}
		err = oerr
	}
	return nil, err
}
