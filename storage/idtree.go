package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/plaid-ir/plaid/storage/internal/boltfile"
)

// Every value has a checksum that covers its key, but a key that is not found has no value: a
// flipped bit in it, or a wrong page in the tree of ids, would make a document "not found" and let
// its id be added again. So the first time that an id is not found, the whole tree of ids is
// compared with the document tables, whose checksums were verified when the snapshot was opened:
//
//  1. Every key leads to a live document with that id.
//  2. There are as many keys as live documents.
//  3. Keys are in order, so that a search finds each.
//
// That takes about 0.2 microseconds per document, once for an open file, and no memory. Later
// commits of this handle are built from pages that have passed.

// checkedIDs remembers for the snapshots of one handle that their ids were checked.
type checkedIDs struct {
	mu    sync.Mutex
	since int // snapshots from this transaction on have passed. 0 means none
}

// CheckIDs checks that no document table has an id that is missing in the tree of ids, once for each
// state of the file. Without this call, the first look-up of an unknown id does so.
func (v *Snapshot) CheckIDs() (err error) {
	defer Guard(v.file.path, &err)()
	return v.checkIDs()
}

// checkIDs is CheckIDs without its guard against faults. It remembers the result.
func (v *Snapshot) checkIDs() error {
	ids := &v.handle.checkedIDs
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.since > 0 && v.tx.ID() >= ids.since {
		return nil
	}
	if err := v.WaitComplete(context.Background()); err != nil {
		return err
	}
	if v.idsFault == nil {
		v.idsFault = v.walkIDs()
	}
	if v.idsFault == nil {
		ids.since = v.tx.ID()
	}
	return v.idsFault
}

// walkIDs compares the tree of ids with the document tables.
func (v *Snapshot) walkIDs() error {
	found, parents := uint32(0), uint32(0)
	visit := func(id, sealed []byte) error {
		ordinal, passages, err := v.unsealID(id, sealed)
		if err != nil || ordinal >= v.state.Docs { // staged by an addition that is not committed yet
			return err
		}
		if passages > 0 {
			parents++
			return v.checkPassageRun(string(id), ordinal, passages)
		}
		if !v.Live(ordinal) || !v.tableHasID(ordinal, string(id)) {
			return v.corruptError(nil, "id %q leads to document %d, which is %q", id, ordinal, v.ID(ordinal))
		}
		found++
		return nil
	}
	t := idTree{file: v.handle.file, pageSize: int64(v.handle.pageSize), visit: visit}
	var err error
	if root := uint64(v.ids.Root()); root > 0 {
		err = t.visitPage(root, 0, nil, nil)
	} else { // a few ids lie in the page of the parent bucket
		var last []byte
		err = v.ids.ForEach(func(id, sealed []byte) error {
			if last != nil && bytes.Compare(last, id) >= 0 {
				return errKeyOrder
			}
			last = id
			return visit(id, sealed)
		})
	}
	switch {
	case errors.Is(err, ErrCorrupt):
		return err
	case err != nil:
		return v.corruptError(err, "ids")
	case found != v.state.Live:
		return v.corruptError(nil, "%d ids for %d live documents", found, v.state.Live)
	case parents != v.state.PassageParents:
		return v.corruptError(nil, "%d documents are stored as passages, %d expected", parents, v.state.PassageParents)
	}
	return nil
}

var errKeyOrder = errors.New("keys are not in order")

// idTree walks the pages of the bucket of ids by reading the file, which needs no lock, since the
// pages of an open transaction do not change. bbolt's cursor would not do: it also visits keys that
// a search does not find because a key above them is damaged.
type idTree struct {
	file     io.ReaderAt
	pageSize int64
	pages    [][]byte // a buffer for each depth
	visit    func(id, sealed []byte) error
}

// visitPage visits a page and all pages below it. Their keys must be at least minKey and less than
// end, unless these are nil.
//
// The header of a page has its number at offset 0, its kind at 8, the number of keys at 10, and the
// number of overflow pages at 12. The element of a key in a branch has the offset and the size of the
// key at 0 and 4, and the child at 8; in a leaf it has flags at 0, the offset and the size of the key
// at 4 and 8, and the size of the value, which follows the key, at 12.
func (t *idTree) visitPage(id uint64, depth int, minKey, end []byte) error {
	page, err := t.readPage(id, depth)
	if err != nil {
		return err
	}
	ne := binary.NativeEndian
	flags, count := ne.Uint16(page[8:]), int(ne.Uint16(page[10:]))
	leaf := flags == boltfile.PageLeaf
	tooLong := boltfile.PageHeaderSize+count*boltfile.ElementSize > len(page)
	if flags != boltfile.PageBranch && !leaf || tooLong || count == 0 && depth > 0 {
		return fmt.Errorf("page %d of kind %#x has %d keys", id, flags, count)
	}
	for i := range count {
		key, keyEnd, err := pageKey(page, leaf, i)
		next := end // the key after this one
		if err == nil && i+1 < count {
			next, _, err = pageKey(page, leaf, i+1)
		}
		if err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
		// The first key of a branch may exceed minKey: bbolt searches its first page also for
		// smaller keys.
		tooSmall := minKey != nil && bytes.Compare(key, minKey) < 0 && (leaf || i > 0)
		if tooSmall || next != nil && bytes.Compare(key, next) >= 0 {
			return fmt.Errorf("page %d, key %d: %w", id, i, errKeyOrder)
		}
		e := page[boltfile.PageHeaderSize+i*boltfile.ElementSize:]
		switch {
		case leaf:
			size := int64(ne.Uint32(e[12:]))
			if ne.Uint32(e) != 0 || keyEnd+size > int64(len(page)) {
				return fmt.Errorf("page %d, value %d is not that of an id", id, i)
			}
			err = t.visit(key, page[keyEnd:keyEnd+size])
		case i == 0:
			err = t.visitPage(ne.Uint64(e[8:]), depth+1, minKey, next)
		default:
			err = t.visitPage(ne.Uint64(e[8:]), depth+1, key, next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pageKey returns key i of a page, and the offset of its end.
func pageKey(page []byte, leaf bool, i int) (key []byte, keyEnd int64, err error) {
	element := boltfile.PageHeaderSize + i*boltfile.ElementSize
	lengths := page[element:] // the offset of the key from the element on, and its size
	if leaf {
		lengths = page[element+4:] // after the flags
	}
	begin := int64(element) + int64(binary.NativeEndian.Uint32(lengths))
	end := begin + int64(binary.NativeEndian.Uint32(lengths[4:]))
	if end > int64(len(page)) {
		return nil, 0, fmt.Errorf("key %d ends beyond the page", i)
	}
	return page[begin:end], end, nil
}

// readPage reads a page with its overflow into the buffer of its depth.
func (t *idTree) readPage(id uint64, depth int) ([]byte, error) {
	if depth == boltfile.MaxDepth {
		return nil, fmt.Errorf("page %d is %d levels deep", id, depth)
	}
	if depth == len(t.pages) {
		t.pages = append(t.pages, make([]byte, t.pageSize))
	}
	p := t.pages[depth][:t.pageSize]
	offset := int64(id) * t.pageSize
	if _, err := t.file.ReadAt(p, offset); err != nil {
		return nil, err
	}
	ne := binary.NativeEndian
	if got := ne.Uint64(p); got != id {
		return nil, fmt.Errorf("page %d says that it is page %d", id, got)
	}
	size := (int64(ne.Uint32(p[12:])) + 1) * t.pageSize
	if size > maxIDPageBytes {
		return nil, fmt.Errorf("page %d has %d bytes", id, size)
	}
	if size > t.pageSize {
		if int64(cap(t.pages[depth])) < size {
			t.pages[depth] = make([]byte, size)
		}
		p = t.pages[depth][:size]
		if _, err := t.file.ReadAt(p, offset); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// maxIDPageBytes bounds the bytes of a page, so that a damaged one does not exhaust the memory. A sound
// one has at most two of the longest keys in addition to one page.
const maxIDPageBytes = 1 << 24
