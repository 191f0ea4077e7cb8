package boltfile

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
)

// Span is a run of bytes of a file.
type Span struct{ Off, Len int64 }

// Walk finds the values of the last transaction in a file that is being fetched: it fetches and reads
// branches, and the elements and keys of leaves, but not the values.
type Walk struct {
	File io.ReaderAt
	Size int64 // bytes of the file
	// Fetch returns when the spans are in the file.
	Fetch func([]Span) error
	// WalkLeaves reports whether to walk the leaves of a bucket. If not, its values are not found.
	WalkLeaves func(bucket [][]byte) bool
	// VisitValues is called with the values of each level of the tree that has any.
	VisitValues func([]Value)
}

// Value is the location of a value.
type Value struct {
	Bucket [][]byte
	Key    []byte
	Span
}

// walkNode is a page to read.
type walkNode struct {
	page   uint64
	bucket [][]byte
	walked bool // result of Walk.WalkLeaves for the bucket
	// siblings are pages to read only if this one is a branch. If it is a leaf, so are they, since all
	// leaves of a bucket are at one depth.
	siblings []uint64
}

// Run walks the tree, one level at a time. It reads each page at most once, even in a damaged file.
func (w *Walk) Run(ctx context.Context) error {
	if err := w.Fetch([]Span{{0, min(w.Size, MetaEnd+MaxPageSize)}}); err != nil {
		return err
	}
	// The newer meta page.
	var metas [2]Meta
	for i := range metas {
		var err error
		if metas[i], err = ReadMeta(w.File, int64(i)*metas[0].PageSize); err != nil {
			return err
		}
	}
	m := metas[0]
	if metas[1].TxID > m.TxID {
		m = metas[1]
	}
	if m.Pages > w.Size/m.PageSize {
		return fmt.Errorf("%d pages of %d bytes in a file of %d bytes", m.Pages, m.PageSize, w.Size)
	}
	// The tree, from its root on.
	c := newPageChecker(ctx, w.File, m.PageSize, uint64(m.Pages))
	for level, depth := []walkNode{{page: m.Root, walked: true}}, 0; len(level) > 0; depth++ {
		// Values of an index lie in at most four nested buckets, and each bucket is a tree.
		if depth > 4*MaxDepth {
			return fmt.Errorf("a tree of more than %d levels", depth)
		}
		var err error
		if level, err = w.readLevel(c, level); err != nil {
			return err
		}
	}
	return nil
}

// readLevel reads the pages of a level of the tree, and returns the pages of the next.
func (w *Walk) readLevel(c *pageChecker, nodes []walkNode) (next []walkNode, err error) {
	// Fetch the first page of each node.
	spans := make([]Span, len(nodes))
	for i, n := range nodes {
		if n.page >= c.pages {
			return nil, fmt.Errorf("page %d of %d", n.page, c.pages)
		}
		spans[i] = Span{int64(n.page) * c.pageSize, c.pageSize}
	}
	if err := w.Fetch(spans); err != nil {
		return nil, err
	}
	// Fetch the overflow pages of branches, and the elements of leaves.
	var overflow []Span
	for _, s := range spans {
		var h [PageHeaderSize]byte
		if _, err := c.file.ReadAt(h[:], s.Off); err != nil {
			return nil, err
		}
		ne := binary.NativeEndian
		size := PageHeaderSize + int64(ne.Uint16(h[10:]))*ElementSize
		if ne.Uint16(h[8:]) == PageBranch {
			size = int64(ne.Uint32(h[12:])+1) * c.pageSize
		}
		if size > c.pageSize {
			overflow = append(overflow, Span{s.Off, min(size, w.Size-s.Off)})
		}
	}
	if err := w.Fetch(overflow); err != nil {
		return nil, err
	}
	// Fetch the keys of leaves that are walked.
	pages := make([]treePage, len(nodes))
	var keys []Span
	for i, n := range nodes {
		p, err := c.readTreePage(n.page, 0)
		if err != nil {
			return nil, err
		}
		if p.flags != PageLeaf && (p.flags != PageBranch || p.count == 0) {
			return nil, fmt.Errorf("page %d is of kind %#x with %d elements", p.id, p.flags, p.count)
		}
		if pages[i] = p; p.flags == PageLeaf && n.walked {
			if keys, err = p.appendKeySpans(keys, c.pageSize); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Fetch(keys); err != nil {
		return nil, err
	}
	// Collect the children of branches, and the buckets and values of leaves.
	var values []Value
	for i, n := range nodes {
		switch p := &pages[i]; {
		case p.flags == PageBranch:
			next = p.appendChildren(next, n)
		case n.walked:
			if next, values, err = w.readLeaf(c, p, n, next, values); err != nil {
				return nil, err
			}
		}
	}
	if len(values) > 0 {
		w.VisitValues(values)
	}
	return next, nil
}

// appendKeySpans appends the spans of the keys of a leaf. For buckets they include the values, which
// have the header, and perhaps the only page, of the bucket.
func (p *treePage) appendKeySpans(spans []Span, pageSize int64) ([]Span, error) {
	for i := range p.count {
		value, size, isBucket := locateLeafValue(p.elements, i)
		key := int64(binary.NativeEndian.Uint32(p.elements[i*ElementSize+8:]))
		switch {
		case value+size > p.bytes || key > maxKeySize:
			return nil, fmt.Errorf("page %d, element %d ends beyond the page", p.id, i)
		case isBucket && (size < BucketHeaderSize || size > pageSize):
			return nil, fmt.Errorf("page %d, element %d is a bucket of %d bytes", p.id, i, size)
		case !isBucket:
			size = 0
		}
		spans = append(spans, Span{p.offset + value - key, key + size})
	}
	return spans, nil
}

// appendChildren appends the siblings of a branch, and its children. If leaves are not walked, it
// appends only the first child, which shows whether the children are leaves, with the others as its
// siblings.
func (p *treePage) appendChildren(next []walkNode, n walkNode) []walkNode {
	for _, page := range n.siblings {
		next = append(next, walkNode{page: page, bucket: n.bucket})
	}
	pages := make([]uint64, p.count)
	for i := range pages {
		pages[i] = binary.NativeEndian.Uint64(p.elements[i*ElementSize+8:])
	}
	if !n.walked {
		return append(next, walkNode{page: pages[0], bucket: n.bucket, siblings: pages[1:]})
	}
	for _, page := range pages {
		next = append(next, walkNode{page: page, bucket: n.bucket, walked: true})
	}
	return next
}

// readLeaf appends the root pages of the buckets in a leaf, and its values.
func (w *Walk) readLeaf(c *pageChecker, p *treePage, n walkNode, next []walkNode, values []Value) (
	[]walkNode, []Value, error) {
	for i := range p.count {
		offset, size, isBucket := locateLeafValue(p.elements, i)
		value := p.offset + offset
		// Read the key, and the header of a bucket, which follows it.
		keySize := int(binary.NativeEndian.Uint32(p.elements[i*ElementSize+8:]))
		b := make([]byte, keySize+BucketHeaderSize)
		key := b[:keySize:keySize]
		if !isBucket {
			b = key
		}
		if _, err := c.file.ReadAt(b, value-int64(keySize)); err != nil {
			return nil, nil, err
		}
		if !isBucket {
			values = append(values, Value{n.bucket, key, Span{value, size}})
			continue
		}
		if root := binary.NativeEndian.Uint64(b[keySize:]); root == 0 { // it lies within the value
			if err := c.checkSmallBucket(value+BucketHeaderSize, size-BucketHeaderSize); err != nil {
				return nil, nil, fmt.Errorf("page %d, element %d: %w", p.id, i, err)
			}
		} else {
			bucket := append(n.bucket[:len(n.bucket):len(n.bucket)], key)
			next = append(next, walkNode{page: root, bucket: bucket, walked: w.WalkLeaves(bucket)})
		}
	}
	return next, values, nil
}
