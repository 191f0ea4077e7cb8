package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/RoaringBitmap/roaring/v2"
)

// PostingBlock is the number of centroids whose posting lists are stored in one value.
const PostingBlock = 256

// A posting block is PostingBlock+1 offsets (u32, from the end of the offsets on), followed by the
// serialised roaring bitmap of each centroid's documents. An empty list has no bytes.

// AppendPostings appends the posting block of up to PostingBlock centroids. Each list is document
// ordinals, ascending and distinct.
func AppendPostings(dst []byte, lists [][]uint32) ([]byte, error) {
	start := len(dst)
	dst = append(dst, make([]byte, 4*(PostingBlock+1))...)
	body := len(dst)
	for i := range PostingBlock {
		binary.LittleEndian.PutUint32(dst[start+4*i:], uint32(len(dst)-body))
		if i >= len(lists) || len(lists[i]) == 0 {
			continue
		}
		bm := roaring.BitmapOf(lists[i]...)
		bm.RunOptimize()
		b, err := bm.ToBytes()
		if err != nil {
			return nil, err
		}
		dst = append(dst, b...)
	}
	if uint64(len(dst)-body) > 1<<31 {
		return nil, fmt.Errorf("postings of %d centroids take %d bytes", PostingBlock, len(dst)-body)
	}
	binary.LittleEndian.PutUint32(dst[start+4*PostingBlock:], uint32(len(dst)-body))
	return dst, nil
}

var errPostings = errors.New("posting block does not fit its offsets")

// checkPostingBlock checks that the offsets of a block ascend and lie in it.
func checkPostingBlock(v []byte) error {
	const head = 4 * (PostingBlock + 1)
	if len(v) < head {
		return errPostings
	}
	prev := uint32(0)
	for i := range PostingBlock + 1 {
		off := binary.LittleEndian.Uint32(v[4*i:])
		if off < prev || uint64(off) > uint64(len(v)-head) {
			return errPostings
		}
		prev = off
	}
	return nil
}

// postingList returns the list of centroid c in its checked block.
func postingList(block []byte, c uint32) PostingList {
	const head = 4 * (PostingBlock + 1)
	i := c % PostingBlock
	lo := binary.LittleEndian.Uint32(block[4*i:])
	hi := binary.LittleEndian.Uint32(block[4*i+4:])
	return PostingList(block[head+lo : head+hi])
}

// PostingList is the documents of one centroid: a roaring bitmap in its portable serialised form
// (RoaringFormatSpec), or empty. It is read in place, at any alignment and without allocating, since
// a search reads hundreds of lists.
type PostingList []byte

const (
	roaringCookie       = 12347 // run containers present; their number is in the upper half
	roaringCookieNoRuns = 12346
	maxArrayValues      = 4096 // larger containers are bitmaps
	bitmapBytes         = 8192
	minOffsetContainers = 4 // fewer containers than this have no offset table if there are runs
)

var errRoaring = errors.New("malformed roaring bitmap")

// roaringContainers is the parsed header of a roaring bitmap.
type roaringContainers struct {
	count   int
	runs    []byte // a bit per container, set for a run container, or nil
	headers []byte // key and cardinality−1 of each container, u16 each
	data    []byte // of the containers that the cursor has not read
}

// parseHeader parses the header of the bitmap.
func (p PostingList) parseHeader() (roaringContainers, error) {
	le := binary.LittleEndian
	if len(p) == 0 {
		return roaringContainers{}, nil
	}
	if len(p) < 8 {
		return roaringContainers{}, errRoaring
	}
	var c roaringContainers
	unread := []byte(p[4:])
	hasOffsets := true
	// The number of containers, and which of them are runs.
	switch cookie := le.Uint32(p); {
	case cookie == roaringCookieNoRuns:
		c.count = int(le.Uint32(p[4:]))
		unread = unread[4:]
	case cookie&0xffff == roaringCookie:
		c.count = int(cookie>>16) + 1
		flagBytes := (c.count + 7) / 8
		if len(unread) < flagBytes {
			return roaringContainers{}, errRoaring
		}
		c.runs, unread = unread[:flagBytes], unread[flagBytes:]
		hasOffsets = c.count >= minOffsetContainers
	default:
		return roaringContainers{}, errRoaring
	}
	// Their keys and cardinalities.
	if c.count > 1<<16 || len(unread) < 4*c.count {
		return roaringContainers{}, errRoaring
	}
	c.headers, unread = unread[:4*c.count], unread[4*c.count:]
	// The offset table, which a reader in order does not need.
	if hasOffsets {
		if len(unread) < 4*c.count {
			return roaringContainers{}, errRoaring
		}
		unread = unread[4*c.count:]
	}
	c.data = unread
	return c, nil
}

// PostingCursor reads a list in blocks of documents with the same upper 16 bits.
type PostingCursor struct {
	roaringContainers
	index    int    // index of the next container
	minBlock uint32 // the smallest block that may follow
}

// Cursor returns a cursor at the first block.
func (p PostingList) Cursor() (PostingCursor, error) {
	c, err := p.parseHeader()
	return PostingCursor{roaringContainers: c}, err
}

// Done reports whether all blocks were read.
func (c *PostingCursor) Done() bool { return c.index >= c.count }

// Block returns the upper 16 bits of the documents that Next will return. Do not call it when Done.
func (c *PostingCursor) Block() uint32 {
	return uint32(binary.LittleEndian.Uint16(c.headers[4*c.index:]))
}

// Next returns the lower 16 bits of the documents of the next block in ascending order,
// little-endian, two bytes each. The result is part of the file if that stores it in this form, and
// otherwise in *buf, which grows. An ordinal of docs or more is an error.
func (c *PostingCursor) Next(buf *[]byte, docs uint32) ([]byte, error) {
	le := binary.LittleEndian
	block := c.Block()
	card := int(le.Uint16(c.headers[4*c.index+2:])) + 1
	isRun := c.runs != nil && c.runs[c.index/8]>>(c.index%8)&1 == 1
	data := c.data
	if block < c.minBlock {
		return nil, errRoaring
	}
	c.index, c.minBlock = c.index+1, block+1
	var list []byte
	switch {
	case isRun: // the number of runs, then the first value and the length−1 of each
		if len(data) < 2 {
			return nil, errRoaring
		}
		n := int(le.Uint16(data))
		if data = data[2:]; len(data) < 4*n {
			return nil, errRoaring
		}
		list = (*buf)[:0]
		next := uint32(0)
		for r := range n {
			lo := uint32(le.Uint16(data[4*r:]))
			hi := lo + uint32(le.Uint16(data[4*r+2:]))
			if lo < next || hi > 0xffff {
				return nil, errRoaring
			}
			next = hi + 1
			for d := lo; d <= hi; d++ {
				list = le.AppendUint16(list, uint16(d))
			}
		}
		*buf, data = list, data[4*n:]
	case card <= maxArrayValues: // an array of values
		if len(data) < 2*card {
			return nil, errRoaring
		}
		list, data = data[:2*card:2*card], data[2*card:]
		if !ascending(list) {
			return nil, errRoaring
		}
	default: // a bit per value
		if len(data) < bitmapBytes {
			return nil, errRoaring
		}
		list = (*buf)[:0]
		for w := range bitmapBytes / 8 {
			for v := le.Uint64(data[8*w:]); v != 0; v &= v - 1 {
				list = le.AppendUint16(list, uint16(w*64+bits.TrailingZeros64(v)))
			}
		}
		*buf, data = list, data[bitmapBytes:]
	}
	if len(list) > 0 && block<<16|uint32(le.Uint16(list[len(list)-2:])) >= docs {
		return nil, errRoaring
	}
	c.data = data
	return list, nil
}

// ascending reports whether each of the 16-bit numbers is larger than the one before. It compares
// four numbers at a time (the lanes of v) with their successors (the lanes of w).
func ascending(list []byte) bool {
	const top = 0x8000_8000_8000_8000 // the top bit of each lane
	le := binary.LittleEndian
	bad := uint64(0)                         // a top bit is set where v >= w
	for ; len(list) >= 10; list = list[8:] { // the successor of the fourth number is the fifth
		v, w := le.Uint64(list), le.Uint64(list[2:])
		// The top bit of a lane of low is set where v >= w in the lower 15 bits: setting the top bit
		// of v and clearing that of w keeps a borrow from reaching the next lane.
		low := (v | top) - w&^top
		// v >= w if only v has its top bit, or if both top bits are equal and low says so.
		bad |= v&^w | ^(v^w)&low
	}
	ok := bad&top == 0
	for ; len(list) >= 4; list = list[2:] {
		ok = ok && le.Uint16(list) < le.Uint16(list[2:])
	}
	return ok
}
