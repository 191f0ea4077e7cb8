package wreck

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// livenessSource is the source from which the Reader knows which documents are deleted.
type livenessSource int

const (
	byTombstones livenessSource = iota
	byIDs                       // the tombstones are damaged, but the ids are complete: only live documents have one
	noSource                    // both are damaged
)

// Liveness is the knowledge whether a document is live.
type Liveness int

// The values of Liveness.
const (
	Dead Liveness = iota
	Alive
	Uncertain // the tombstones are damaged, and the ids do not tell
)

// findPayloadDocs reads the set of documents with a payload.
func (w *Reader) findPayloadDocs() {
	w.payloadDocs = roaring.New()
	if w.state != nil && w.state.PayloadDocs == 0 {
		return
	}
	want := int64(-1)
	if w.state != nil {
		want = int64(w.state.PayloadDocs)
	}
	var err error
	if w.payloadDocs, err = w.readBitmap(layout.KeyPayloadDocs, want); err != nil {
		w.noteFault("bitmap of the documents with payload: %v", err)
	}
}

// findPassages reads the set of ordinals that are passages.
func (w *Reader) findPassages() {
	if w.state != nil && w.state.Passages == 0 {
		w.passages = roaring.New()
		return
	}
	want := int64(-1)
	if w.state != nil {
		want = int64(w.state.Passages)
	}
	var err error
	if w.passages, err = w.readBitmap(layout.KeyPassages, want); err != nil {
		w.noteFault("bitmap of the passages: %v", err)
	}
}

// Passages returns the ordinals that are passages, or nil if their bitmap is lost, so that only
// payloads identify passages.
func (w *Reader) Passages() *roaring.Bitmap { return w.passages }

// readBitmap reads a set of documents, which must have want elements unless want is negative. It returns
// nil after an error.
func (w *Reader) readBitmap(key []byte, want int64) (found *roaring.Bitmap, err error) {
	_, err = w.findValue(key, func(b []byte) error {
		bm := roaring.New()
		if err := bm.UnmarshalBinary(b); err != nil {
			return err
		}
		if n := bm.GetCardinality(); want >= 0 && n != uint64(want) {
			return fmt.Errorf("%d of %d", n, want)
		}
		found = bm
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// PayloadsKnown reports whether the set of documents with a payload is known.
func (w *Reader) PayloadsKnown() bool { return w.payloadDocs != nil }

// UnknownPayloads returns the number of payloads that are lost although it is not known which
// documents had them: the number in the state, less the payloads found. It is 0 if the set of
// documents with a payload is known, or the state is damaged.
func (w *Reader) UnknownPayloads() int64 {
	if w.payloadDocs != nil || w.state == nil {
		return 0
	}
	found := roaring.New()
	for _, p := range append(w.sortedPayloads(w.current.payload), w.sortedPayloads(w.findStrays().payload)...) {
		if w.Liveness(p.ordinal) != Dead {
			if _, err := w.readSealed(layout.NumberKey(p.ordinal), p.value); err == nil {
				found.Add(p.ordinal)
			}
		}
	}
	return max(int64(w.state.PayloadDocs)-int64(found.GetCardinality()), 0)
}

// findLiveness finds out which documents are deleted: by the tombstones, or, if these are damaged, by
// the ids, since deleting a document removes its id.
func (w *Reader) findLiveness() {
	deleted := int64(-1)
	if w.state != nil {
		deleted = int64(w.state.Docs - w.state.Live)
	}
	w.deletedDocs = roaring.New()
	if deleted == 0 {
		return
	}
	var err error
	if w.deletedDocs, err = w.readBitmap(layout.KeyTombstones, deleted); err == nil {
		return
	}
	w.noteFault("tombstones: %v", err)
	w.liveDocs = roaring.New()
	idsBroken := w.current.idsBroken
	w.visitIDs(w.current.ids, func(_ string, ordinal uint32, err error) {
		if err != nil {
			idsBroken = true
			return
		}
		w.liveDocs.Add(ordinal)
	})
	w.livenessSource = noSource
	if !idsBroken && (w.state == nil || w.liveDocs.GetCardinality() == uint64(w.state.Live)) {
		w.livenessSource = byIDs
	}
}

// Liveness returns whether a document is live.
func (w *Reader) Liveness(ordinal uint32) Liveness {
	switch {
	case w.livenessSource == byTombstones && w.deletedDocs.Contains(ordinal):
		return Dead
	case w.livenessSource == byTombstones, w.liveDocs.Contains(ordinal):
		return Alive
	case w.livenessSource == byIDs:
		return Dead
	}
	return Uncertain
}

// LivenessKnown reports whether no document is Uncertain.
func (w *Reader) LivenessKnown() bool { return w.livenessSource != noSource }

// Docs returns the number of ordinals: that of the state or, if the state is damaged, one more than
// the largest ordinal found.
func (w *Reader) Docs() uint32 {
	if w.state != nil {
		return w.state.Docs
	}
	n := uint32(0)
	if len(w.chunks) > 0 {
		last := w.chunks[len(w.chunks)-1]
		n = last.first + last.count
	}
	if w.liveDocs != nil && !w.liveDocs.IsEmpty() {
		n = max(n, w.liveDocs.Maximum()+1)
	}
	return n
}

// Chunks returns the number of chunks whose document tables are sound.
func (w *Reader) Chunks() int { return len(w.chunks) }

// Chunk is the readable content of a chunk.
type Chunk struct {
	Table   *storage.DocTable
	Arrays  *kernels.Chunk // nil if the arrays do not fit the table or the codec
	Damaged map[int]error  // the errors of damaged documents, by their index in the table
}

// Chunk reads chunk i. Its errors do not name the file.
func (w *Reader) Chunk(i int) (*Chunk, error) {
	c := &w.chunks[i]
	t, err := w.docTable(c.number, c.page)
	if err != nil {
		return nil, fmt.Errorf("document table of chunk %d: %w", c.number, err) // it was sound in Open
	}
	chunk := &Chunk{Table: &storage.DocTable{First: t.First}, Damaged: map[int]error{}}
	for d := range t.Count {
		chunk.Table.Lengths = append(chunk.Table.Lengths, t.Length(d))
		chunk.Table.IDs = append(chunk.Table.IDs, t.ID(d))
	}
	stored, err := w.openChunk(c.number, c.page)
	if err == nil {
		err = stored.CheckWidths(storage.CodeBytes(w.header.Centroids), w.codec.RowBytes())
	}
	if ctxErr := w.ctx.Err(); ctxErr != nil {
		return nil, ctxErr
	}
	if err != nil {
		w.noteChunk(c, err)
		for d := range t.Count {
			chunk.Damaged[d] = fmt.Errorf("chunk %d: %w", c.number, err)
		}
		return chunk, nil
	}
	chunk.Arrays = &stored.Chunk
	for d := range t.Count {
		if err := w.checkDoc(stored, d); err != nil {
			chunk.Damaged[d] = fmt.Errorf("chunk %d: %w", c.number, err)
		}
	}
	if n := len(chunk.Damaged); n > 0 {
		w.noteChunk(c, fmt.Errorf("%d of %d documents are damaged", n, t.Count))
	}
	return chunk, nil
}

// noteChunk adds the damage of a chunk to the faults, once.
func (w *Reader) noteChunk(c *foundChunk, err error) {
	if !c.noted {
		w.noteFault("chunk %d: %v", c.number, err)
	}
	c.noted = true
}

// checkDoc verifies the arrays of a document.
func (w *Reader) checkDoc(c *layout.Chunk, doc int) error {
	if err := c.CheckCodes(doc); err != nil {
		return fmt.Errorf("%s: %w", layout.KeyCodes, err)
	}
	if err := c.CheckRows(doc); err != nil {
		return fmt.Errorf("%s and %s: %w", layout.KeyFactors, layout.KeyResiduals, err)
	}
	return c.ValidateCodes(&w.codec, int(c.Offsets[doc]), int(c.Offsets[doc+1]))
}

// openChunk reads the values of a chunk. An array that the end of the file cuts short is filled with
// zeros, so that its first documents can be read.
func (w *Reader) openChunk(number uint32, page chunkPage) (*layout.Chunk, error) {
	values := map[string][]byte{}
	for i, v := range page.values {
		b, err := w.readValue(v)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		values[string(chunkKeys[i])] = b
	}
	c, err := layout.OpenChunk(number, func(key []byte) []byte { return values[string(key)] })
	return &c, err
}

// docTable reads and verifies the document table of a chunk.
func (w *Reader) docTable(chunk uint32, page chunkPage) (t layout.EncodedDocTable, err error) {
	b, err := w.readValue(page.values[docsKeyIndex])
	if err != nil {
		return t, err
	}
	return layout.OpenDocTable(chunk, b)
}

// visitIDs calls visit with the ids in leaf pages and their ordinals. For a damaged id, and for each
// value of a page that has other content, err is not nil and the other arguments are zero.
func (w *Reader) visitIDs(pages []leafPage, visit func(id string, ordinal uint32, err error)) {
	for _, l := range pages {
		elements, err := w.readElements(l)
		if err != nil {
			visit("", 0, err)
		}
		for _, e := range elements {
			if e.bucket || e.value.size != 4+layout.ChecksumSize && e.value.size != 8+layout.ChecksumSize {
				visit("", 0, layout.ErrChecksum)
				continue
			}
			b, err := w.readSealed(e.key, e.value)
			if err != nil || !layout.IsValidID(b) {
				visit("", 0, cmp.Or(err, layout.ErrChecksum))
				continue
			}
			if ordinal, passages := layout.DecodeID(b); passages == 0 { // not a document stored as passages
				visit(string(e.key), ordinal, nil)
			}
		}
	}
}

// IDs finds the ids of a set of documents, whose document tables are lost, in the tree of ids and
// among the strays. Documents without a sound id are missing in the result.
func (w *Reader) IDs(docs *roaring.Bitmap) map[uint32]string {
	found := map[uint32]string{}
	add := func(id string, ordinal uint32, err error) {
		if err == nil && docs.Contains(ordinal) {
			found[ordinal] = id
		}
	}
	if docs.IsEmpty() {
		return found
	}
	w.visitIDs(w.current.ids, add)
	if uint64(len(found)) < docs.GetCardinality() {
		w.visitIDs(w.findStrays().ids, add)
	}
	return found
}

// payloadValue is the location of the payload of a document.
type payloadValue struct {
	ordinal uint32
	value   span
}

// sortedPayloads returns the payloads in leaf pages, sorted by ordinal, without verifying them.
func (w *Reader) sortedPayloads(pages []leafPage) []payloadValue {
	list := []payloadValue{}
	for _, l := range pages {
		elements, _ := w.readElements(l)
		for _, e := range elements {
			if len(e.key) == 4 && !e.bucket {
				list = append(list, payloadValue{layout.NumberFromKey(e.key), e.value})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b payloadValue) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return list
}

// Payload reads the payload of a document. It returns nil if the document had none, and also if none
// is found and it is not known whether there was one.
func (w *Reader) Payload(ordinal uint32) ([]byte, error) {
	if w.payloadDocs != nil && !w.payloadDocs.Contains(ordinal) {
		return nil, nil
	}
	if w.payloads == nil {
		w.payloads = w.sortedPayloads(w.current.payload)
	}
	p, err := w.findPayload(w.payloads, ordinal)
	if err == nil {
		return p, nil
	}
	if w.strayPayloads == nil {
		w.strayPayloads = w.sortedPayloads(w.findStrays().payload)
	}
	if p, serr := w.findPayload(w.strayPayloads, ordinal); serr == nil {
		return p, nil
	}
	if ctxErr := w.ctx.Err(); ctxErr != nil {
		return nil, ctxErr
	}
	if w.payloadDocs == nil {
		return nil, nil
	}
	w.noteFault("payload of document %d: %v", ordinal, err)
	return nil, w.corruptError(err, "payload of document %d", ordinal)
}

// findPayload returns the first sound payload of a document in a sorted list, or the last error.
func (w *Reader) findPayload(list []payloadValue, ordinal uint32) ([]byte, error) {
	err := fmt.Errorf("not found")
	byOrdinal := func(p payloadValue, o uint32) int { return cmp.Compare(p.ordinal, o) }
	i, _ := slices.BinarySearchFunc(list, ordinal, byOrdinal)
	for ; i < len(list) && list[i].ordinal == ordinal; i++ {
		b, valueErr := w.readSealed(layout.NumberKey(ordinal), list[i].value)
		if valueErr == nil {
			return b, nil
		}
		err = valueErr
	}
	return nil, err
}
