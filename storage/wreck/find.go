package wreck

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// chunkKeys are the keys of the values of a chunk, in ascending order.
var chunkKeys = [4][]byte{layout.KeyCodes, layout.KeyDocs, layout.KeyFactors, layout.KeyResiduals}

// docsKeyIndex is the index of layout.KeyDocs, the key of the document table, in chunkKeys.
const docsKeyIndex = 1

// foundChunk is a chunk whose document table is sound.
type foundChunk struct {
	number       uint32
	first, count uint32
	page         chunkPage
	noted        bool // its damage is among the faults
}

// findContent walks the tree, and reads everything that a salvage needs before documents: the
// generation, its header, codec and state, the document tables, and the sets of documents.
func (w *Reader) findContent() error {
	// Walk the tree. A fault of it is noted; the walk skips damaged pages.
	err := boltfile.CheckTransaction(w.ctx, w.file, w.transaction.ID)
	if ctxErr := w.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if err != nil && !w.transaction.DamagedMeta {
		w.noteFault("B+tree: %v", err)
	}
	w.walkTree(w.root, parentBucket{role: inRoot}, 0)
	// A list of free pages that names a page of the tree cannot be trusted.
	for i := range w.freePages {
		if w.freePages[i]&w.reached[i] != 0 {
			w.noteFault("list of free pages: some of them are in use")
			w.freePages = nil
			break
		}
	}
	// Read the records of the current generation.
	if err := w.selectGeneration(); err != nil {
		return err
	}
	_, err = w.findValue(layout.KeyHeader, func(b []byte) error {
		var h storage.Header
		if err := decodeJSON(b, &h); err != nil {
			return err
		}
		w.header = h
		return nil
	})
	if err != nil {
		return w.corruptError(err, "the header is lost, without which vectors cannot be decoded")
	}
	if err := w.findCodec(); err != nil {
		return w.corruptError(err, "the codec is lost, without which vectors cannot be decoded")
	}
	if err := w.findState(); err != nil {
		return err
	}
	// Find the documents.
	w.findChunks()
	w.findPayloadDocs()
	w.findPassages()
	w.findLiveness()
	return nil
}

// selectGeneration sets w.current to the current generation. Without a sound pointer, it selects the
// only generation; several are an error.
func (w *Reader) selectGeneration() error {
	// The format record.
	if v, ok := w.frameRecord(layout.KeyFormat); ok {
		b, err := w.readSealed(layout.KeyFormat, v)
		if err != nil || len(b) != layout.FormatValueSize || string(b[:len(layout.Magic)]) != string(layout.Magic) {
			w.noteFault("format record: checksum mismatch")
		} else if format := binary.LittleEndian.Uint16(b[len(layout.Magic):]); format != storage.FormatVersion {
			return fmt.Errorf("%s: %w: it is format %d, this program reads format %d",
				w.path, storage.ErrVersion, format, storage.FormatVersion)
		}
	} else if len(w.faults) == 0 {
		return fmt.Errorf("%s: %w: a bbolt file of another program", w.path, storage.ErrNotIndex)
	}
	// A sound file without a pointer is an unfinished build.
	w.current = newFoundValues()
	v, hasPointer := w.frameRecord(layout.KeyCurrent)
	_, staging := w.frameRecord(layout.KeyStaging)
	if !hasPointer && len(w.faults) == 0 && (staging || len(w.generations) == 0) {
		return fmt.Errorf("%s: %w", w.path, storage.ErrUnfinished)
	}
	// The generation of the pointer, or else the only one.
	if b, err := w.readSealed(layout.KeyCurrent, v); hasPointer && err == nil && len(b) == 8 {
		if g := w.generations[binary.LittleEndian.Uint64(b)]; g != nil {
			w.current = g
			return nil
		}
		w.noteFault("generation %d is missing", binary.LittleEndian.Uint64(b))
	} else {
		w.noteFault("the generation pointer is damaged")
	}
	switch len(w.generations) {
	case 0:
		return nil
	case 1:
		for _, g := range w.generations {
			w.current = g
		}
		return nil
	}
	return w.corruptError(nil, "the current generation is not found, and there are %d: "+
		"that of an interrupted build cannot be told from the index", len(w.generations))
}

// frameRecord finds a record of the frame by its key or, if the key is damaged, by the checksum, which
// covers the original key.
func (w *Reader) frameRecord(key []byte) (v span, ok bool) {
	if v, ok = w.frame[string(key)]; ok {
		return v, true
	}
	for k, v := range w.frame {
		if _, err := w.readSealed(key, v); err == nil {
			w.noteFault("record %q has the key %q", key, k)
			w.frame[string(key)] = v
			return v, true
		}
	}
	return span{}, false
}

// findValue finds the value of a key of the generation: in the tree, under a damaged key, or among the
// strays. It must be sound, pass check, and be unique.
func (w *Reader) findValue(key []byte, check func([]byte) error) ([]byte, error) {
	// openSound returns the last sound candidate, the number of these, and the last error.
	openSound := func(candidates []span) (b []byte, n int, err error) {
		for _, v := range candidates {
			value, valueErr := w.readSealed(key, v)
			if valueErr == nil {
				valueErr = check(value)
			}
			if valueErr != nil {
				err = valueErr
				continue
			}
			b = value
			n++
		}
		return b, n, err
	}
	b, n, err := openSound(w.current.values[string(key)])
	if n == 1 {
		return b, nil
	}
	if err != nil {
		w.noteFault("%s: %v", key, err)
	}
	if b, n, _ = openSound(w.current.unknownKeys()); n == 1 {
		w.noteFault("%s: its key is damaged", key)
		return b, nil
	}
	b, n, _ = openSound(w.findStrays().values[string(key)])
	switch {
	case n == 1:
		return b, nil
	case n > 1:
		return nil, fmt.Errorf("%s: the tree does not lead to it, and there are %d of them", key, n)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return nil, fmt.Errorf("%s: not found", key)
}

// decodeJSON parses and validates a JSON record.
func decodeJSON(b []byte, v interface{ Validate() error }) error {
	if err := json.Unmarshal(b, v); err != nil {
		return err
	}
	return v.Validate()
}

// findStrays reads the leaf pages that are in use but that the tree does not reach, and those that it
// reached in place of other pages. It does so once.
func (w *Reader) findStrays() *foundValues {
	if w.strays != nil {
		return w.strays
	}
	w.strays = newFoundValues()
	if w.freePages == nil {
		w.noteFault("pages that the tree does not lead to are not read: without the list of free pages, " +
			"lost content cannot be told from removed content")
		return w.strays
	}
	inUse := func(id uint64) bool { return id >= 2 && id < w.pages && !w.freePages.Has(id) }
	for _, l := range w.misplacedPages {
		if inUse(l.id) {
			w.sortStray(l)
		}
	}
	for id := uint64(2); id < w.pages; id++ {
		h, err := w.readHead(int64(id) * w.pageSize)
		if err != nil || h.flags != boltfile.PageLeaf || !inUse(h.id) || w.reached.Has(id) {
			continue
		}
		if h.id != id { // a copy of another page, unless that page is lost
			if original, err := w.readHead(int64(h.id) * w.pageSize); err == nil && original.id == h.id {
				continue
			}
		}
		w.sortStray(leafPage{int64(id) * w.pageSize, w.size, h.id})
	}
	return w.strays
}

// sortStray adds a page and its values to the strays under everything that they may be. Checksums
// decide later.
func (w *Reader) sortStray(l leafPage) {
	elements, _ := w.readElements(l)
	if c, ok := chunkFromElements(elements); ok {
		w.strays.chunks = append(w.strays.chunks, c)
	}
	for _, e := range elements {
		if !e.bucket {
			w.strays.values[string(e.key)] = append(w.strays.values[string(e.key)], e.value)
			continue
		}
		const minSize = boltfile.BucketHeaderSize + boltfile.PageHeaderSize
		var b [boltfile.BucketHeaderSize]byte
		if _, err := w.readAt(b[:], e.value.offset); err != nil || e.value.size < minSize {
			continue
		}
		if binary.NativeEndian.Uint64(b[:]) == 0 { // it lies within the value; other buckets have pages
			end := min(e.value.offset+e.value.size, w.size)
			w.sortStray(leafPage{e.value.offset + boltfile.BucketHeaderSize, end, l.id})
		}
	}
	w.strays.ids = append(w.strays.ids, l)
	w.strays.payload = append(w.strays.payload, l)
}

// findCodec reads the centroids and the arrays of the codec. All must be found.
func (w *Reader) findCodec() (err error) {
	if w.codec, err = w.header.EmptyCodec(); err != nil {
		return err
	}
	ct := &w.codec.Centroids
	size := ct.K * ct.Dim * ct.Type.Size()
	ct.Data, err = w.findValue(layout.KeyCentroids, func(b []byte) error {
		if len(b) != size {
			return fmt.Errorf("%d bytes, not %d", len(b), size)
		}
		return nil
	})
	if err != nil {
		return err
	}
	arrays, missing := 1, []string(nil)
	for _, a := range layout.CodecArrays(&w.codec, &w.cutoffs) {
		raw, err := w.findCodecArray(a, arrays < w.header.Arrays)
		if err != nil {
			missing = append(missing, err.Error())
			continue
		}
		arrays++
		*a.Values = layout.Floats(raw)
	}
	if arrays != w.header.Arrays {
		return fmt.Errorf("%d of %d arrays are found (%s)", arrays, w.header.Arrays, strings.Join(missing, "; "))
	}
	return w.codec.Validate()
}

// findCodecArray reads an optional array of the codec. If the tree does not have it, it is searched
// among the strays only if isMissing is set: the header counts more arrays than were found.
func (w *Reader) findCodecArray(a layout.CodecArray, isMissing bool) ([]byte, error) {
	if _, inTree := w.current.values[string(a.Key)]; !inTree && !isMissing {
		return nil, fmt.Errorf("%s: not found", a.Key)
	}
	return w.findValue(a.Key, func(b []byte) error {
		if len(b) != 4*a.Len {
			return fmt.Errorf("%d bytes, not %d", len(b), 4*a.Len)
		}
		return nil
	})
}

// findState reads the counters. If they are damaged, w.state is nil, and all chunks count; that is an
// error if a writer may have staged some of them without committing.
func (w *Reader) findState() error {
	_, err := w.findValue(layout.KeyState, func(b []byte) error {
		var s storage.State
		if err := decodeJSON(b, &s); err != nil {
			return err
		}
		w.state = &s
		return nil
	})
	if err == nil {
		return nil
	}
	w.state = nil
	w.noteFault("state: %v", err)
	_, current := w.frameRecord(layout.KeyCurrent)
	if _, staging := w.frameRecord(layout.KeyStaging); staging || !current {
		return w.corruptError(err, "the state record is lost, and content of an interrupted writer cannot be told "+
			"from committed content")
	}
	return nil
}

// findChunks reads the document tables, and sorts the chunks by their documents.
func (w *Reader) findChunks() {
	// The chunks of the state. Without a state, all chunks are wanted.
	missing := map[uint32]bool{}
	if w.state != nil {
		for _, seg := range w.state.Segments {
			for _, c := range seg.Chunks {
				missing[c] = true
			}
		}
	}
	wanted := func(number uint32) bool { return w.state == nil || missing[number] }
	// Chunks that the tree leads to.
	found := map[uint32]bool{}
	var broken []chunkPage
	for _, p := range w.current.chunks {
		c, err := w.readTable(p)
		if err != nil {
			broken = append(broken, p)
			if wanted(p.number) {
				w.noteFault("document table of chunk %d: %v", p.number, err)
			}
		} else if wanted(p.number) && !found[p.number] {
			found[p.number] = true
			delete(missing, p.number)
			w.chunks = append(w.chunks, c)
		}
	}
	// Strays, for chunks that are missing.
	if len(missing) > 0 || w.state == nil && len(w.faults) > 0 {
		isMissing := func(n uint32) bool { return wanted(n) && !found[n] }
		w.addStrayChunks(append(broken, w.findStrays().chunks...), isMissing)
	}
	// Discard chunks whose documents overlap.
	slices.SortFunc(w.chunks, func(a, b foundChunk) int { return cmp.Compare(a.first, b.first) })
	next := uint32(0)
	w.chunks = slices.DeleteFunc(w.chunks, func(c foundChunk) bool {
		if c.first < next || w.state != nil && uint64(c.first)+uint64(c.count) > uint64(w.state.Docs) {
			w.noteFault("chunk %d: its documents are those of another one", c.number)
			return true
		}
		next = c.first + c.count
		return false
	})
}

// addStrayChunks adds the wanted chunks among pages, by the number that their checksums prove. It
// skips a chunk that is found twice.
func (w *Reader) addStrayChunks(pages []chunkPage, wanted func(uint32) bool) {
	byNumber := map[uint32][]foundChunk{}
	for _, p := range pages {
		number, ok := w.provenNumber(p)
		if !ok || !wanted(number) {
			continue
		}
		if p.hasNumber {
			w.noteFault("chunk %d has the number %d", number, p.number)
		}
		p.number = number
		if c, err := w.readTable(p); err == nil {
			byNumber[number] = append(byNumber[number], c)
		}
	}
	for number, list := range byNumber {
		if len(list) > 1 {
			w.noteFault("chunk %d is there %d times", number, len(list))
			continue
		}
		w.chunks = append(w.chunks, list[0])
	}
}

// readTable reads the document table of a chunk.
func (w *Reader) readTable(p chunkPage) (foundChunk, error) {
	t, err := w.docTable(p.number, p)
	if err != nil {
		return foundChunk{}, err
	}
	return foundChunk{number: p.number, first: t.First, count: uint32(t.Count), page: p}, nil
}

// provenNumber returns the number of a chunk: it computes the number from the checksum of the document
// table, which covers it, and confirms it by the checksums of any document.
func (w *Reader) provenNumber(p chunkPage) (uint32, bool) {
	b, err := w.readValue(p.values[docsKeyIndex])
	if err != nil || len(b) < layout.ChecksumSize {
		return 0, false
	}
	n := len(b) - layout.ChecksumSize
	number := numberFromChecksum(layout.KeyDocs, b[:n], binary.LittleEndian.Uint32(b[n:]))
	c, err := w.openChunk(number, p)
	if err != nil {
		return 0, false
	}
	for doc := range c.Table.Count {
		if c.CheckCodes(doc) == nil || c.CheckRows(doc) == nil {
			return number, true
		}
	}
	return 0, false
}

// crcTop maps the highest byte of an entry of the CRC table to the index of the entry. These bytes are
// distinct.
var crcTop = func() (top [256]byte) {
	for i, x := range layout.Castagnoli {
		top[x>>24] = byte(i)
	}
	return top
}()

// numberFromChecksum returns the number n for which sum is the checksum of value under the key
// layout.ChecksumKey(n, key). There is exactly one for every sum.
//
// The four bytes of the number are the first that the CRC reads. So the function computes the CRC
// backwards, over value and key, to the state after these four bytes. Reading four bytes b from the
// initial state I gives the same state as reading four zero bytes from I XOR b. So the state before
// four zero bytes is I XOR b, and since all bits of I are set, its complement is b.
func numberFromChecksum(key, value []byte, sum uint32) uint32 {
	state := ^sum
	// removeByte computes the state before the CRC read the byte b.
	removeByte := func(b byte) {
		i := crcTop[state>>24]
		state = (state^layout.Castagnoli[i])<<8 | uint32(i^b)
	}
	for i := len(value) - 1; i >= 0; i-- {
		removeByte(value[i])
	}
	for i := len(key) - 1; i >= 0; i-- {
		removeByte(key[i])
	}
	for range 4 {
		removeByte(0)
	}
	return binary.BigEndian.Uint32(binary.LittleEndian.AppendUint32(nil, ^state))
}

// Note reads a note that storage.Tx.PutNote stored. It returns false if the note is missing or damaged.
func (w *Reader) Note(name string, dst any) bool {
	return w.readJSON(layout.NoteKey(name), dst)
}

// Defaults returns the stored search parameters, or nil if there are no sound ones.
func (w *Reader) Defaults() *storage.Defaults {
	var r struct {
		Generation uint64 `json:"generation"`
		storage.Defaults
	}
	if !w.readJSON(layout.KeyDefaults, &r) || w.generations[r.Generation] != w.current || r.Validate() != nil {
		return nil
	}
	return &r.Defaults
}

// readJSON decodes a JSON record of the frame. It returns false if the record is missing or damaged.
func (w *Reader) readJSON(key []byte, dst any) bool {
	v, ok := w.frameRecord(key)
	if !ok {
		return false
	}
	b, err := w.readSealed(key, v)
	if err != nil {
		w.noteFault("%s: %v", key, err)
		return false
	}
	return json.Unmarshal(b, dst) == nil
}
