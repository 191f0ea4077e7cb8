package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// bbolt's own check runs in a goroutine of its own, where a damaged page ends
// the process. This one reads the file instead of mapped memory: it makes sure
// that every page of the tree is of a known kind, within the file, and used
// once, and that the list of free pages is exactly the others.

const (
	pageHeader     = 16
	pageBranch     = 0x01
	pageLeaf       = 0x02
	pageFreelist   = 0x10
	elementSize    = 16
	leafBucketFlag = 0x01
	bucketHeader   = 16
	noFreelist     = ^uint64(0)
	manyFree       = 0xffff // the count of a longer free list is its first entry
)

// treeFault says of the error of a check that the tree is damaged, unless the check was
// broken off.
func treeFault(ctx context.Context, path string, err error) error {
	if done := ctx.Err(); done != nil && errors.Is(err, done) {
		return err
	}
	return corrupt(path, err, "B+tree")
}

type pageChecker struct {
	ctx  context.Context // of tree
	r    io.ReaderAt
	size int64
	used []uint64 // one bit a page
	n    uint64   // pages
}

// checkNewest checks the pages of the last transaction. It runs before bbolt
// follows a page number: one that leads back to a page above would have it
// recurse until the process dies.
func checkNewest(ctx context.Context, f *os.File) error {
	return checkPages(ctx, f, func(ids [2]uint64, page int) bool { return ids[page] >= ids[1-page] })
}

// checkTransaction checks the pages of the transaction with the given id. It
// does not look if later commits have replaced that transaction's root.
func checkTransaction(ctx context.Context, f *os.File, txid uint64) error {
	return checkPages(ctx, f, func(ids [2]uint64, page int) bool { return ids[page] == txid })
}

// checkPages checks the pages of the first meta page that want accepts, given
// the transaction ids of both.
func checkPages(ctx context.Context, f *os.File, want func(ids [2]uint64, page int) bool) error {
	first, err := readMeta(f, 0)
	if err != nil {
		return err
	}
	ne := binary.NativeEndian
	var metas [2][metaOffset + metaSize]byte
	var ids [2]uint64
	for page := range metas {
		if _, err := f.ReadAt(metas[page][:], int64(page)*first.pageSize); err != nil {
			return err
		}
		ids[page] = ne.Uint64(metas[page][metaOffset+48:])
	}
	for page := range metas {
		if !want(ids, page) {
			continue
		}
		m := metas[page][metaOffset:]
		c := &pageChecker{ctx: ctx, r: f, size: first.pageSize, n: ne.Uint64(m[40:])}
		c.used = make([]uint64, (c.n+63)/64)
		if err := c.use(0, 2); err != nil {
			return err
		}
		if err := c.tree(ne.Uint64(m[16:])); err != nil {
			return err
		}
		return c.free(ne.Uint64(m[32:]))
	}
	return nil
}

func (c *pageChecker) use(id, count uint64) error {
	if id >= c.n || count > c.n-id {
		return fmt.Errorf("pages %d to %d of %d", id, id+count, c.n)
	}
	for p := id; p < id+count; p++ {
		if c.used[p/64]>>(p%64)&1 == 1 {
			return fmt.Errorf("page %d is used twice", p)
		}
		c.used[p/64] |= 1 << (p % 64)
	}
	return nil
}

// page reads the header and claims the page and its overflow.
func (c *pageChecker) page(id uint64) (flags, count uint16, bytes int64, err error) {
	var h [pageHeader]byte
	if id < 2 || id >= c.n {
		return 0, 0, 0, fmt.Errorf("page %d of %d", id, c.n)
	}
	if _, err := c.r.ReadAt(h[:], int64(id)*c.size); err != nil {
		return 0, 0, 0, err
	}
	ne := binary.NativeEndian
	if got := ne.Uint64(h[:]); got != id {
		return 0, 0, 0, fmt.Errorf("page %d says that it is page %d", id, got)
	}
	overflow := uint64(ne.Uint32(h[12:]))
	return ne.Uint16(h[8:]), ne.Uint16(h[10:]), int64(overflow+1) * c.size, c.use(id, overflow+1)
}

func (c *pageChecker) tree(id uint64) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	flags, count, bytes, err := c.page(id)
	if err != nil {
		return err
	}
	if int64(count)*elementSize+pageHeader > bytes {
		return fmt.Errorf("page %d has %d elements in %d bytes", id, count, bytes)
	}
	elements := make([]byte, int(count)*elementSize)
	at := int64(id)*c.size + pageHeader
	if _, err := c.r.ReadAt(elements, at); err != nil {
		return err
	}
	ne := binary.NativeEndian
	for i := range int(count) {
		e := elements[i*elementSize:]
		pos := int64(i) * elementSize
		switch flags {
		case pageBranch:
			if end := pos + int64(ne.Uint32(e)) + int64(ne.Uint32(e[4:])); end > bytes-pageHeader {
				return fmt.Errorf("page %d, element %d ends beyond the page", id, i)
			}
			if err := c.tree(ne.Uint64(e[8:])); err != nil {
				return err
			}
		case pageLeaf:
			off, ksize, vsize := int64(ne.Uint32(e[4:])), int64(ne.Uint32(e[8:])), int64(ne.Uint32(e[12:]))
			if pos+off+ksize+vsize > bytes-pageHeader {
				return fmt.Errorf("page %d, element %d ends beyond the page", id, i)
			}
			if ne.Uint32(e)&leafBucketFlag == 0 {
				continue
			}
			var b [bucketHeader]byte
			if vsize < bucketHeader {
				return fmt.Errorf("page %d, element %d is a bucket of %d bytes", id, i, vsize)
			}
			if _, err := c.r.ReadAt(b[:], at+pos+off+ksize); err != nil {
				return err
			}
			root := ne.Uint64(b[:])
			if root == 0 { // a small bucket lies within the value
				if err := c.inline(at+pos+off+ksize+bucketHeader, vsize-bucketHeader); err != nil {
					return fmt.Errorf("page %d, element %d: %w", id, i, err)
				}
				continue
			}
			if err := c.tree(root); err != nil {
				return err
			}
		default:
			return fmt.Errorf("page %d is of kind %#x", id, flags)
		}
	}
	return nil
}

// inline checks the page of a small bucket. bbolt may copy it to where a pointer
// that leads out of it is not to be recovered from.
func (c *pageChecker) inline(at, bytes int64) error {
	if bytes < pageHeader {
		return fmt.Errorf("a small bucket of %d bytes", bytes)
	}
	var h [pageHeader]byte
	if _, err := c.r.ReadAt(h[:], at); err != nil {
		return err
	}
	ne := binary.NativeEndian
	flags, count := ne.Uint16(h[8:]), int64(ne.Uint16(h[10:]))
	if flags != pageLeaf || count*elementSize+pageHeader > bytes {
		return fmt.Errorf("a small bucket of kind %#x with %d elements in %d bytes", flags, count, bytes)
	}
	elements := make([]byte, count*elementSize)
	if _, err := c.r.ReadAt(elements, at+pageHeader); err != nil {
		return err
	}
	for i := range count {
		e := elements[i*elementSize:]
		end := i*elementSize + int64(ne.Uint32(e[4:])) + int64(ne.Uint32(e[8:])) + int64(ne.Uint32(e[12:]))
		if end > bytes-pageHeader {
			return fmt.Errorf("element %d of a small bucket ends beyond it", i)
		}
		if ne.Uint32(e)&leafBucketFlag != 0 {
			return fmt.Errorf("element %d of a small bucket is a bucket", i)
		}
	}
	return nil
}

func (c *pageChecker) free(id uint64) error {
	if id == noFreelist {
		return nil
	}
	list, err := c.freeList(id)
	if err != nil {
		return err
	}
	for ; len(list) > 0; list = list[8:] {
		if err := c.use(binary.NativeEndian.Uint64(list), 1); err != nil {
			return fmt.Errorf("free list: %w", err)
		}
	}
	for p := range c.n {
		if c.used[p/64]>>(p%64)&1 == 0 {
			return fmt.Errorf("page %d is neither used nor free", p)
		}
	}
	return nil
}

// freeList reads the list of free pages at page id: their numbers, 8 bytes each.
func (c *pageChecker) freeList(id uint64) ([]byte, error) {
	flags, count16, bytes, err := c.page(id)
	if err != nil {
		return nil, err
	}
	if flags != pageFreelist {
		return nil, fmt.Errorf("page %d is of kind %#x, not a free list", id, flags)
	}
	ne := binary.NativeEndian
	at := int64(id)*c.size + pageHeader
	count := int64(count16)
	var word [8]byte
	if count16 == manyFree {
		if _, err := c.r.ReadAt(word[:], at); err != nil {
			return nil, err
		}
		count = int64(ne.Uint64(word[:]))
		at += 8
	}
	if count < 0 || count > bytes/8 {
		return nil, fmt.Errorf("free list of %d pages in %d bytes", count, bytes)
	}
	list := make([]byte, 8*count)
	_, err = c.r.ReadAt(list, at)
	return list, err
}
