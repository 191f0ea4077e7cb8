package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/kernels"
)

// chunkKeys are the values of a chunk in key order.
var chunkKeys = [4][]byte{keyCodes, keyDocs, keyFactors, keyResiduals}

// wreckChunk is a chunk whose document table is sound.
type wreckChunk struct {
	number       uint32
	first, count uint32
	page         chunkPage
}

// survey walks the tree and finds all that a salvage cannot do without.
func (w *Wreck) survey(ctx context.Context) error {
	err := checkPages(ctx, w.file, func(ids [2]uint64, page int) bool { return ids[page] == w.tx.ID })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && !w.tx.DamagedMeta {
		w.note("B+tree: %v", err)
	}
	w.tree(w.root, place{role: inRoot}, 0)
	if w.free != nil {
		for i := range w.free {
			if w.free[i]&w.reached[i] != 0 {
				w.note("list of free pages: some of them are in use")
				w.free = nil
				break
			}
		}
	}
	if err := w.chooseGeneration(); err != nil {
		return err
	}
	header, err := w.record(keyHeader, func(b []byte) error {
		var h Header
		if err := json.Unmarshal(b, &h); err != nil {
			return err
		}
		return h.validate()
	})
	if err != nil {
		return w.bad(err, "the header is lost, without which vectors cannot be decoded")
	}
	_ = json.Unmarshal(header, &w.header)
	if err := w.findCodec(); err != nil {
		return w.bad(err, "the codec is lost, without which vectors cannot be decoded")
	}
	if err := w.findState(); err != nil {
		return err
	}
	w.findChunks()
	return w.findLiveness()
}

// chooseGeneration follows the frame, as far as it can be read.
func (w *Wreck) chooseGeneration() error {
	if v, ok := w.frame[string(keyFormat)]; ok {
		b, err := w.open(keyFormat, v)
		if err != nil || len(b) != formatValueSize || string(b[:len(magic)]) != string(magic) {
			w.note("format record: checksum mismatch")
		} else if n := binary.LittleEndian.Uint16(b[len(magic):]); n > FormatVersion {
			return fmt.Errorf("%s: %w: it is format %d, this program reads up to %d", w.path, ErrVersion, n, FormatVersion)
		}
	} else if len(w.faults) == 0 {
		return fmt.Errorf("%s: %w: a bbolt file of another program", w.path, ErrNotIndex)
	}
	w.finds = newFinds()
	v, ok := w.frame[string(keyCurrent)]
	if !ok && len(w.faults) == 0 {
		return fmt.Errorf("%s: %w", w.path, ErrUnfinished)
	}
	if b, err := w.open(keyCurrent, v); ok && err == nil && len(b) == 8 {
		if g := w.gens[binary.LittleEndian.Uint64(b)]; g != nil {
			w.finds = g
			return nil
		}
		w.note("generation %d is missing", binary.LittleEndian.Uint64(b))
		return nil
	}
	w.note("the generation pointer is damaged")
	switch len(w.gens) {
	case 0:
		return nil
	case 1:
		for _, g := range w.gens {
			w.finds = g
		}
		return nil
	}
	return w.bad(nil, "the generation pointer is damaged, and there are %d generations: an interrupted build's cannot be told from the index", len(w.gens))
}

// record is a value of the generation that is there once: where the tree has
// it, or else among the strays.
func (w *Wreck) record(key []byte, valid func([]byte) error) ([]byte, error) {
	try := func(candidates []span) (b []byte, n int, err error) {
		for _, v := range candidates {
			found, oerr := w.open(key, v)
			if oerr == nil {
				oerr = valid(found)
			}
			if oerr != nil {
				err = oerr
				continue
			}
			b = found
			n++
		}
		return b, n, err
	}
	b, n, err := try(w.finds.values[string(key)])
	if n == 1 {
		return b, nil
	}
	if err != nil {
		w.note("%s: %v", key, err)
	}
	b, n, _ = try(w.findStrays().values[string(key)])
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

// findStrays looks through the pages that are in use but were not reached, and
// through those that were found in the place of others.
func (w *Wreck) findStrays() *finds {
	if w.strays != nil {
		return w.strays
	}
	w.strays = newFinds()
	if w.free == nil {
		w.note("the pages that the tree does not lead to are not looked at: without the list of free pages, " +
			"what was removed cannot be told from what is lost")
		return w.strays
	}
	inUse := func(id uint64) bool { return id >= 2 && id < w.pages && !bit(w.free, id) }
	for _, l := range w.loose {
		if inUse(l.id) {
			w.stray(l)
		}
	}
	for id := uint64(2); id < w.pages; id++ {
		h, err := w.head(int64(id) * w.page)
		if err != nil || h.flags != pageLeaf || !inUse(h.id) || bit(w.reached, id) {
			continue
		}
		if h.id != id { // of another place, if what is there is not it
			if own, err := w.head(int64(h.id) * w.page); err == nil && own.id == h.id {
				continue
			}
		}
		w.stray(leafPage{int64(id) * w.page, w.size, h.id})
	}
	return w.strays
}

// stray sorts the values of a page by what they may be; checksums decide.
func (w *Wreck) stray(l leafPage) {
	elements, _ := w.elements(l)
	if c, ok := asChunk(elements); ok {
		w.strays.chunks = append(w.strays.chunks, c)
	}
	for _, e := range elements {
		if !e.bucket {
			w.strays.values[string(e.key)] = append(w.strays.values[string(e.key)], e.value)
			continue
		}
		var b [bucketHeader]byte
		if _, err := w.file.ReadAt(b[:], e.value.at); err != nil || e.value.size < bucketHeader+pageHeader {
			continue
		}
		if binary.NativeEndian.Uint64(b[:]) == 0 { // within the value; others have pages of their own
			w.stray(leafPage{e.value.at + bucketHeader, min(e.value.at+e.value.size, w.size), l.id})
		}
	}
	w.strays.ids = append(w.strays.ids, l)
	w.strays.payload = append(w.strays.payload, l)
}

func (w *Wreck) findCodec() error {
	h := &w.header
	typ, err := floatType(h.CentroidType)
	if err != nil {
		return err
	}
	cb, err := h.codebook()
	if err != nil {
		return err
	}
	size := h.Centroids * h.Dim * typ.Size()
	data, err := w.record(keyCentroids, func(b []byte) error {
		if len(b) != size {
			return fmt.Errorf("%d bytes, not %d", len(b), size)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.codec = kernels.Codec{
		Centroids: kernels.Centroids{K: h.Centroids, Dim: h.Dim, Type: typ, Data: data},
		Codebook:  cb, FactorMax: h.FactorMax,
	}
	arrays, missing := 1, []string(nil)
	for _, x := range []struct {
		key []byte
		n   int
		dst *[]float32
	}{{keyCutoffs, 1<<h.Nbits - 1, &w.cutoffs}, {keyDimScale, h.Dim, &w.codec.DimScale}, {keyCentroidScale, h.Centroids, &w.codec.CentroidScale}} {
		b, err := w.array(x.key, x.n, arrays < h.Arrays)
		if err != nil {
			missing = append(missing, err.Error())
			continue
		}
		arrays++
		for i := 0; i < len(b); i += 4 {
			*x.dst = append(*x.dst, math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		}
	}
	if arrays != h.Arrays {
		return fmt.Errorf("%d of %d arrays are found (%s)", arrays, h.Arrays, strings.Join(missing, "; "))
	}
	return w.codec.Validate()
}

// array is one of the optional arrays; strays are looked at only where one is
// still missing.
func (w *Wreck) array(key []byte, n int, wanted bool) ([]byte, error) {
	if _, there := w.finds.values[string(key)]; !there && !wanted {
		return nil, fmt.Errorf("%s: not found", key)
	}
	return w.record(key, func(b []byte) error {
		if len(b) != 4*n {
			return fmt.Errorf("%d bytes, not %d", len(b), 4*n)
		}
		return nil
	})
}

// findState reads the counters. Without them, all chunks count, if it is sure
// that none of them is a writer's that never committed.
func (w *Wreck) findState() error {
	b, err := w.record(keyState, func(b []byte) error {
		var s State
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		return s.validate()
	})
	if err == nil {
		w.state = new(State)
		return json.Unmarshal(b, w.state)
	}
	w.note("state: %v", err)
	_, current := w.frame[string(keyCurrent)]
	if _, staging := w.frame[string(keyStaging)]; staging || !current {
		return w.bad(err, "the state record is lost, and what an interrupted writer left cannot be told from what was committed")
	}
	return nil
}

// findChunks finds the document tables, in document order.
func (w *Wreck) findChunks() {
	missing := map[uint32]bool{}
	if w.state != nil {
		for _, seg := range w.state.Segments {
			for _, c := range seg.Chunks {
				missing[c] = true
			}
		}
	}
	wanted := func(number uint32) bool { return w.state == nil || missing[number] }
	found := map[uint32]bool{}
	var broken []chunkPage
	for _, p := range w.finds.chunks {
		c, err := w.readTable(p)
		if err != nil {
			broken = append(broken, p)
			if wanted(p.number) {
				w.note("document table of chunk %d: %v", p.number, err)
			}
		} else if wanted(p.number) && !found[p.number] {
			found[p.number] = true
			delete(missing, p.number)
			w.chunks = append(w.chunks, c)
		}
	}
	if len(missing) > 0 || w.state == nil && len(w.faults) > 0 {
		w.addStrayChunks(append(broken, w.findStrays().chunks...), func(n uint32) bool { return wanted(n) && !found[n] })
	}
	slices.SortFunc(w.chunks, func(a, b wreckChunk) int {
		return int(int64(a.first) - int64(b.first))
	})
	next := uint32(0)
	w.chunks = slices.DeleteFunc(w.chunks, func(c wreckChunk) bool {
		if c.first < next || w.state != nil && uint64(c.first)+uint64(c.count) > uint64(w.state.Docs) {
			w.note("chunk %d: its documents are those of another one", c.number)
			return true
		}
		next = c.first + c.count
		return false
	})
}

// addStrayChunks takes chunks by the number that their checksums prove. One
// that is there twice is not taken.
func (w *Wreck) addStrayChunks(pages []chunkPage, wanted func(uint32) bool) {
	byNumber := map[uint32][]wreckChunk{}
	for _, p := range pages {
		number, ok := w.provenNumber(p)
		if !ok || !wanted(number) {
			continue
		}
		p.number = number
		if c, err := w.readTable(p); err == nil {
			byNumber[number] = append(byNumber[number], c)
		}
	}
	for number, list := range byNumber {
		if len(list) > 1 {
			w.note("chunk %d is there %d times", number, len(list))
			continue
		}
		w.chunks = append(w.chunks, list[0])
	}
}

func (w *Wreck) readTable(p chunkPage) (wreckChunk, error) {
	b, err := w.open(keyIn(p.number, keyDocs), p.values[1])
	if err != nil {
		return wreckChunk{}, err
	}
	t, err := parseDocTable(b)
	if err != nil {
		return wreckChunk{}, err
	}
	return wreckChunk{p.number, t.first, uint32(t.count), p}, nil
}

// provenNumber is the number for which the checksum of the document table and
// that of another value are right: it is unwound from the checksums, which
// cover it.
func (w *Wreck) provenNumber(p chunkPage) (uint32, bool) {
	var numbers [4]uint32
	var ok [4]bool
	for i, v := range p.values {
		b, err := w.read(v)
		if err != nil || len(b) < crcSize {
			continue
		}
		n := len(b) - crcSize
		numbers[i], ok[i] = numberOf(chunkKeys[i], b[:n], binary.LittleEndian.Uint32(b[n:])), true
	}
	for i := range numbers {
		if i != 1 && ok[i] && ok[1] && numbers[i] == numbers[1] {
			return numbers[1], true
		}
	}
	return 0, false
}

// crcTop finds the entry of the CRC table by its highest byte, which is
// different for each.
var crcTop = func() (top [256]byte) {
	for i, x := range castagnoli {
		top[x>>24] = byte(i)
	}
	return top
}()

// numberOf inverts keyIn: the number for which checksum(keyIn(number, key),
// value) is sum. There is one for every sum.
func numberOf(key, value []byte, sum uint32) uint32 {
	state := ^sum
	back := func(b byte) {
		i := crcTop[state>>24]
		state = (state^castagnoli[i])<<8 | uint32(i^b)
	}
	for i := len(value) - 1; i >= 0; i-- {
		back(value[i])
	}
	for i := len(key) - 1; i >= 0; i-- {
		back(key[i])
	}
	for range 4 {
		back(0)
	}
	return binary.BigEndian.Uint32(binary.LittleEndian.AppendUint32(nil, ^state))
}

// Note reads what PutNote stored, as far as it is sound.
func (w *Wreck) Note(name string, dst any) bool {
	k := noteKey(name)
	return w.json(k, dst)
}

// Defaults are the stored search parameters, as far as they are sound.
func (w *Wreck) Defaults() *Defaults {
	var r defaultsRecord
	if !w.json(keyDefaults, &r) || w.gens[r.Generation] != w.finds || r.Validate() != nil {
		return nil
	}
	return &r.Defaults
}

func (w *Wreck) json(key []byte, dst any) bool {
	v, ok := w.frame[string(key)]
	if !ok {
		return false
	}
	b, err := w.open(key, v)
	if err != nil {
		w.note("%s: %v", key, err)
		return false
	}
	return json.NewDecoder(bytes.NewReader(b)).Decode(dst) == nil
}
