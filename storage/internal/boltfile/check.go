// Package boltfile reads the file format of bbolt without bbolt: it locks a file, parses its pages,
// and checks its tree. The packages storage and storage/wreck use it.
package boltfile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// bbolt's own check runs in a separate goroutine, where a damaged page ends the process. This one
// reads the file instead of mapped memory. It checks that
//
//  1. every page of the tree is of a known kind, within the file, and used once;
//  2. every page begins with the key that leads to it: when bbolt writes, it finds a page in its
//     parent by its first key, and with a different key it would free pages that stay in the tree;
//  3. the list of free pages is exactly the pages that the tree does not use.

// Sizes and flags of pages and their elements. Numbers are in the byte order of the machine:
//
//   - The header of a page has its number at offset 0, its kind at 8, the number of elements at 10,
//     and the number of overflow pages at 12. The elements follow, and then the keys.
//   - An element of a branch has the offset of its key (from the element on) at 0, the size of the key
//     at 4, and the number of the child at 8.
//   - An element of a leaf has flags at 0, the offset and the size of its key at 4 and 8, and the size
//     of the value, which follows the key, at 12.
//   - The value of a bucket begins with its root page, or 0 if its only page follows in the value.
const (
	PageHeaderSize    = 16
	PageBranch        = 0x01
	PageLeaf          = 0x02
	PageFreeList      = 0x10
	ElementSize       = 16
	LeafBucketFlag    = 0x01
	BucketHeaderSize  = 16
	noFreeList        = ^uint64(0)
	longFreeListCount = 0xffff // a page count that means: the real count is the first entry of the list
	maxKeySize        = 32 << 10
)

// MaxDepth is far more than the number of levels of a B+tree of 2³² keys.
const MaxDepth = 40

// pageChecker checks the pages of one transaction.
type pageChecker struct {
	ctx      context.Context // ends the check
	file     io.ReaderAt
	pageSize int64
	pages    uint64
	used     PageSet

	skipLeaves bool // do not read leaves below branches
}

// newPageChecker returns a checker of a file with this number of pages.
func newPageChecker(ctx context.Context, file io.ReaderAt, pageSize int64, pages uint64) *pageChecker {
	return &pageChecker{ctx: ctx, file: file, pageSize: pageSize, pages: pages, used: NewPageSet(pages)}
}

// PageSet is a set of pages, with a bit per page of the file. A nil PageSet is empty.
type PageSet []uint64

// NewPageSet returns an empty set for a file with this number of pages.
func NewPageSet(pages uint64) PageSet { return make(PageSet, (pages+63)/64) }

// Has reports whether a page is in the set.
func (s PageSet) Has(page uint64) bool { return s != nil && s[page/64]>>(page%64)&1 == 1 }

// Add adds a page.
func (s PageSet) Add(page uint64) { s[page/64] |= 1 << (page % 64) }

// checkedPages selects the pages that a check reads.
type checkedPages bool

const (
	allPages     checkedPages = false
	branchesOnly checkedPages = true
)

// CheckNewest checks the pages of the last transaction. Run it before bbolt follows a page number:
// one that leads back to a parent page would make bbolt recurse until the process dies.
func CheckNewest(ctx context.Context, f *os.File) error {
	return checkPages(ctx, f, newestPage, allPages)
}

// newestPage selects the meta page of the last transaction.
func newestPage(ids [2]uint64, page int) bool { return ids[page] >= ids[1-page] }

// CheckBranches checks the branches of the last transaction and their parents, which is fast even in
// a large file of small values. It finds leaves without reading them all, since all leaves of a tree
// are at one depth.
func CheckBranches(ctx context.Context, f *os.File) error {
	return checkPages(ctx, f, newestPage, branchesOnly)
}

// CheckTransaction checks the pages of the transaction with the given id. It checks nothing if later
// commits have overwritten the meta page of that transaction.
func CheckTransaction(ctx context.Context, f *os.File, txid uint64) error {
	return checkPages(ctx, f, func(ids [2]uint64, page int) bool { return ids[page] == txid }, allPages)
}

// checkPages checks the transaction of the first meta page for which accept is true, given the
// transaction ids of both and the number of the page.
func checkPages(
	ctx context.Context, f *os.File, accept func(ids [2]uint64, page int) bool, selected checkedPages,
) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var metas [2]Meta
	if metas[0], err = ReadMeta(f, 0); err != nil {
		return err
	}
	pageSize := metas[0].PageSize
	metas[1], err = ReadMeta(f, pageSize)
	if err != nil && metas[1] == (Meta{}) {
		return err
	}
	for page, m := range metas {
		if !accept([2]uint64{metas[0].TxID, metas[1].TxID}, page) {
			continue
		}
		if m.Pages < 0 || m.Pages > info.Size()/pageSize {
			return fmt.Errorf("%d pages of %d bytes in a file of %d bytes", m.Pages, pageSize, info.Size())
		}
		c := newPageChecker(ctx, f, pageSize, uint64(m.Pages))
		c.skipLeaves = selected == branchesOnly
		if err := c.claimPages(0, 2); err != nil { // the meta pages
			return err
		}
		if err := c.checkTree(m.Root, nil); err != nil || c.skipLeaves {
			return err
		}
		return c.checkFreeList(m.FreeList)
	}
	return nil
}

// claimPages marks pages as used. Its error means that they are outside of the file, or used already.
func (c *pageChecker) claimPages(id, count uint64) error {
	if id >= c.pages || count > c.pages-id {
		return fmt.Errorf("pages %d to %d of %d", id, id+count, c.pages)
	}
	for p := id; p < id+count; p++ {
		if c.used.Has(p) {
			return fmt.Errorf("page %d is used twice", p)
		}
		c.used.Add(p)
	}
	return nil
}

// claimWithOverflow reads the header of a page, and claims the page with its overflow. bytes is the
// size of both.
func (c *pageChecker) claimWithOverflow(id uint64) (flags, count uint16, bytes int64, err error) {
	var h [PageHeaderSize]byte
	if id < 2 || id >= c.pages {
		return 0, 0, 0, fmt.Errorf("page %d of %d", id, c.pages)
	}
	if _, err := c.file.ReadAt(h[:], int64(id)*c.pageSize); err != nil {
		return 0, 0, 0, err
	}
	ne := binary.NativeEndian
	if got := ne.Uint64(h[:]); got != id {
		return 0, 0, 0, fmt.Errorf("page %d says that it is page %d", id, got)
	}
	overflow := uint64(ne.Uint32(h[12:]))
	return ne.Uint16(h[8:]), ne.Uint16(h[10:]), int64(overflow+1) * c.pageSize, c.claimPages(id, overflow+1)
}

// treePage is a page of the tree.
type treePage struct {
	id         uint64
	flags      uint16
	count      int
	offset     int64 // offset of its first element in the file
	bytes      int64 // bytes from there to the end of the page and its overflow
	elements   []byte
	firstBytes []byte // the bytes after the elements, where the first key is
}

// readTreePage claims and reads the elements of a page, and a number of bytes after them (keyBytes).
func (c *pageChecker) readTreePage(id uint64, keyBytes int) (p treePage, err error) {
	flags, count, bytes, err := c.claimWithOverflow(id)
	if err != nil {
		return p, err
	}
	p = treePage{
		id:     id,
		flags:  flags,
		count:  int(count),
		offset: int64(id)*c.pageSize + PageHeaderSize,
		bytes:  bytes - PageHeaderSize,
	}
	if int64(p.count)*ElementSize > p.bytes {
		return p, fmt.Errorf("page %d has %d elements in %d bytes", id, count, bytes)
	}
	size := max(p.count, 1) * ElementSize // checkCount reads the first element even if count is 0
	head := make([]byte, min(int64(size+keyBytes), p.bytes))
	if _, err := c.file.ReadAt(head, p.offset); err != nil {
		return p, err
	}
	p.elements, p.firstBytes = head[:size:size], head[size:]
	if err := checkCount(flags, p.count, p.elements); err != nil {
		return p, fmt.Errorf("page %d: %w", id, err)
	}
	return p, nil
}

// beginsWith reports whether the first key of the page is the given one. It is true for a nil key.
func (p *treePage) beginsWith(key []byte) bool {
	size := p.elements[4:] // size of the first key in a branch
	if p.flags == PageLeaf {
		size = p.elements[8:]
	}
	return key == nil ||
		p.count > 0 && int64(binary.NativeEndian.Uint32(size)) == int64(len(key)) && bytes.Equal(p.firstBytes, key)
}

// checkTree checks a page of the tree and all pages below it. key is the one that leads to it, nil
// for a root.
func (c *pageChecker) checkTree(id uint64, key []byte) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	p, err := c.readTreePage(id, len(key))
	switch {
	case err != nil:
		return err
	case p.flags != PageLeaf && (p.flags != PageBranch || p.count == 0):
		return fmt.Errorf("page %d is of kind %#x with %d elements", id, p.flags, p.count)
	case !p.beginsWith(key):
		return fmt.Errorf("page %d does not begin with the key that leads to it", id)
	case p.flags == PageLeaf:
		return c.checkLeaf(&p)
	}
	return c.checkBranch(&p)
}

// checkBranch checks that the keys of a branch follow each other without gaps, and checks its
// children.
func (c *pageChecker) checkBranch(p *treePage) error {
	ne := binary.NativeEndian
	checkChild := c.checkTree
	if c.skipLeaves {
		if leaves, err := c.isLeaf(ne.Uint64(p.elements[8:])); err != nil {
			return err
		} else if leaves { // then all children are leaves
			checkChild = func(id uint64, _ []byte) error { return c.claimPages(id, 1) }
		}
	}
	end := int64(p.count) * ElementSize // of the previous key; at first that of the elements
	keys := bufio.NewReader(io.NewSectionReader(c.file, p.offset+end, p.bytes-end))
	for i := range p.count {
		offset := i * ElementSize
		e := p.elements[offset:]
		keyOffset, size := int64(offset)+int64(ne.Uint32(e)), int64(ne.Uint32(e[4:]))
		switch {
		case keyOffset+size > p.bytes:
			return fmt.Errorf("page %d, element %d ends beyond the page", p.id, i)
		case keyOffset != end || size > maxKeySize:
			return fmt.Errorf("page %d, element %d has %d bytes at %d, behind %d", p.id, i, size, keyOffset, end)
		}
		end += size
		key := make([]byte, size)
		if _, err := io.ReadFull(keys, key); err != nil {
			return err
		}
		if err := checkChild(ne.Uint64(e[8:]), key); err != nil {
			return err
		}
	}
	return nil
}

// checkLeaf checks the values of a leaf, and the trees of its buckets.
func (c *pageChecker) checkLeaf(p *treePage) error {
	for i := range p.count {
		value, size, isBucket := locateLeafValue(p.elements, i)
		if value+size > p.bytes {
			return fmt.Errorf("page %d, element %d ends beyond the page", p.id, i)
		}
		if !isBucket {
			continue
		}
		if size < BucketHeaderSize {
			return fmt.Errorf("page %d, element %d is a bucket of %d bytes", p.id, i, size)
		}
		var head [BucketHeaderSize]byte
		if _, err := c.file.ReadAt(head[:], p.offset+value); err != nil {
			return err
		}
		if root := binary.NativeEndian.Uint64(head[:]); root != 0 {
			if err := c.checkTree(root, nil); err != nil {
				return err
			}
			continue
		}
		// A small bucket lies within the value.
		if err := c.checkSmallBucket(p.offset+value+BucketHeaderSize, size-BucketHeaderSize); err != nil {
			return fmt.Errorf("page %d, element %d: %w", p.id, i, err)
		}
	}
	return nil
}

// locateLeafValue returns the offset of the value of element i of a leaf, counted from the first
// element, its size, and whether it is a bucket.
func locateLeafValue(elements []byte, i int) (offset, size int64, isBucket bool) {
	ne := binary.NativeEndian
	e := elements[i*ElementSize:]
	offset = int64(i)*ElementSize + int64(ne.Uint32(e[4:])) + int64(ne.Uint32(e[8:])) // after its key
	return offset, int64(ne.Uint32(e[12:])), ne.Uint32(e)&LeafBucketFlag != 0
}

// isLeaf reports whether a page is a leaf, without claiming it.
func (c *pageChecker) isLeaf(id uint64) (bool, error) {
	var h [PageHeaderSize]byte
	if id < 2 || id >= c.pages {
		return false, fmt.Errorf("page %d of %d", id, c.pages)
	}
	_, err := c.file.ReadAt(h[:], int64(id)*c.pageSize)
	return binary.NativeEndian.Uint16(h[8:]) == PageLeaf, err
}

// checkCount compares the number of elements of a page with the offset of its first key, which
// directly follows the elements. Otherwise keys beyond a count that is too low would be lost
// unnoticed. For a count of 0, elements has one element, which must be zeros.
func checkCount(flags uint16, count int, elements []byte) error {
	ne := binary.NativeEndian
	first := int(ne.Uint32(elements)) // offset of the first key in a branch
	if flags == PageLeaf {
		first = int(ne.Uint32(elements[4:]))
	}
	if count > 0 && first == count*ElementSize || count == 0 && [ElementSize]byte(elements) == [ElementSize]byte{} {
		return nil
	}
	return fmt.Errorf("it says that it has %d keys, and the first of them is at byte %d", count, first)
}

// checkSmallBucket checks the page of a small bucket, which lies in a value. bbolt may copy it to the
// heap, where following a damaged pointer would crash the process.
func (c *pageChecker) checkSmallBucket(offset, bytes int64) error {
	if bytes < PageHeaderSize {
		return fmt.Errorf("a small bucket of %d bytes", bytes)
	}
	var h [PageHeaderSize]byte
	if _, err := c.file.ReadAt(h[:], offset); err != nil {
		return err
	}
	ne := binary.NativeEndian
	flags, count := ne.Uint16(h[8:]), int64(ne.Uint16(h[10:]))
	if flags != PageLeaf || count*ElementSize+PageHeaderSize > bytes {
		return fmt.Errorf("a small bucket of kind %#x with %d elements in %d bytes", flags, count, bytes)
	}
	if count == 0 {
		if bytes > PageHeaderSize {
			return fmt.Errorf("a small bucket of %d bytes without keys", bytes)
		}
		return nil
	}
	elements := make([]byte, count*ElementSize)
	if _, err := c.file.ReadAt(elements, offset+PageHeaderSize); err != nil {
		return err
	}
	if err := checkCount(flags, int(count), elements); err != nil {
		return fmt.Errorf("a small bucket: %w", err)
	}
	for i := range int(count) {
		value, size, isBucket := locateLeafValue(elements, i)
		if value+size > bytes-PageHeaderSize {
			return fmt.Errorf("element %d of a small bucket ends beyond it", i)
		}
		if isBucket {
			return fmt.Errorf("element %d of a small bucket is a bucket", i)
		}
	}
	return nil
}

// checkFreeList checks that every page is either used or free. A file may have no list of free pages.
func (c *pageChecker) checkFreeList(id uint64) error {
	if id == noFreeList {
		return nil
	}
	free, err := c.readFreeList(id)
	if err != nil {
		return err
	}
	for p := range c.pages {
		switch {
		case free.Has(p) && c.used.Has(p):
			return fmt.Errorf("free list: page %d is used twice", p)
		case !free.Has(p) && !c.used.Has(p):
			return fmt.Errorf("page %d is neither used nor free", p)
		}
	}
	return nil
}

// ReadFreeList reads the free pages of a transaction. It returns nil if the file has no list of them.
func (m *Meta) ReadFreeList(r io.ReaderAt) (PageSet, error) {
	if m.FreeList == noFreeList {
		return nil, nil
	}
	return newPageChecker(context.Background(), r, m.PageSize, uint64(m.Pages)).readFreeList(m.FreeList)
}

// readFreeList reads the list at page id, which bbolt writes in ascending order.
func (c *pageChecker) readFreeList(id uint64) (PageSet, error) {
	flags, count16, bytes, err := c.claimWithOverflow(id)
	if err != nil {
		return nil, err
	}
	if flags != PageFreeList {
		return nil, fmt.Errorf("page %d is of kind %#x, not a free list", id, flags)
	}
	ne := binary.NativeEndian
	offset := int64(id)*c.pageSize + PageHeaderSize
	count := int64(count16)
	var word [8]byte
	if count16 == longFreeListCount {
		if _, err := c.file.ReadAt(word[:], offset); err != nil {
			return nil, err
		}
		count = int64(ne.Uint64(word[:]))
		offset += 8
	}
	if count < 0 || count > bytes/8 {
		return nil, fmt.Errorf("free list of %d pages in %d bytes", count, bytes)
	}
	list := make([]byte, 8*count)
	if _, err := c.file.ReadAt(list, offset); err != nil {
		return nil, err
	}
	free := NewPageSet(c.pages)
	for last := uint64(1); len(list) > 0; list = list[8:] {
		p := ne.Uint64(list)
		if p <= last || p >= c.pages {
			return nil, fmt.Errorf("free list: page %d of %d after %d", p, c.pages, last)
		}
		free.Add(p)
		last = p
	}
	return free, nil
}
