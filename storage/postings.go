package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/RoaringBitmap/roaring/v2"
)

// PostingBlock is how many centroids share one stored value.
const PostingBlock = 256

// A posting block is PostingBlock+1 offsets (u32, into what follows) and the
// serialised roaring bitmap of each centroid's documents; an empty list takes
// no bytes.

// AppendPostings encodes the lists of up to PostingBlock centroids: document
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

func postingOf(block []byte, c uint32) PostingList {
	const head = 4 * (PostingBlock + 1)
	i := c % PostingBlock
	lo := binary.LittleEndian.Uint32(block[4*i:])
	hi := binary.LittleEndian.Uint32(block[4*i+4:])
	return PostingList(block[head+lo : head+hi])
}

// PostingList is the documents of one centroid: a roaring bitmap in its
// portable serialised form (RoaringFormatSpec), or nothing. It is read in
// place, at any alignment and without allocating, since a search reads
// hundreds of them.
type PostingList []byte

const (
	roaringCookie       = 12347 // run containers present; their number is in the upper half
	roaringCookieNoRuns = 12346
	arrayMax            = 4096 // larger containers are bitmaps
	bitmapBytes         = 8192
	offsetThreshold     = 4 // fewer containers than this have no offset table if there are runs
)

var errRoaring = errors.New("malformed roaring bitmap")

type containers struct {
	n       int
	runs    []byte // a bit a container, nil if there are none
	headers []byte // key and cardinality−1, u16 each
	data    []byte
}

func (p PostingList) open() (containers, error) {
	le := binary.LittleEndian
	if len(p) == 0 {
		return containers{}, nil
	}
	if len(p) < 8 {
		return containers{}, errRoaring
	}
	var c containers
	rest := []byte(p[4:])
	offsets := true
	switch cookie := le.Uint32(p); {
	case cookie == roaringCookieNoRuns:
		c.n = int(le.Uint32(p[4:]))
		rest = rest[4:]
	case cookie&0xffff == roaringCookie:
		c.n = int(cookie>>16) + 1
		flags := (c.n + 7) / 8
		if len(rest) < flags {
			return containers{}, errRoaring
		}
		c.runs, rest = rest[:flags], rest[flags:]
		offsets = c.n >= offsetThreshold
	default:
		return containers{}, errRoaring
	}
	if c.n > 1<<16 || len(rest) < 4*c.n {
		return containers{}, errRoaring
	}
	c.headers, rest = rest[:4*c.n], rest[4*c.n:]
	if offsets {
		if len(rest) < 4*c.n {
			return containers{}, errRoaring
		}
		rest = rest[4*c.n:]
	}
	c.data = rest
	return c, nil
}

// PostingCursor reads a list in blocks of documents with the same upper 16 bits.
type PostingCursor struct {
	containers
	at   int
	next uint32 // the least block that may follow
}

// Cursor begins at the first block.
func (p PostingList) Cursor() (PostingCursor, error) {
	c, err := p.open()
	return PostingCursor{containers: c}, err
}

// Done reports whether all blocks were read.
func (c *PostingCursor) Done() bool { return c.at >= c.n }

// Block is the upper 16 bits of the documents that Next returns; not to be asked
// for when Done.
func (c *PostingCursor) Block() uint32 {
	return uint32(binary.LittleEndian.Uint16(c.headers[4*c.at:]))
}

// Next returns the lower 16 bits of the documents of the next block in ascending order,
// little-endian, two bytes each: in the file where it has them so, and otherwise in room,
// which grows. docs is the number of documents that exist; an ordinal beyond it is an error.
func (c *PostingCursor) Next(room *[]byte, docs uint32) ([]byte, error) {
	le := binary.LittleEndian
	block := c.Block()
	card := int(le.Uint16(c.headers[4*c.at+2:])) + 1
	isRun := c.runs != nil && c.runs[c.at/8]>>(c.at%8)&1 == 1
	rest := c.data
	if block < c.next {
		return nil, errRoaring
	}
	c.at, c.next = c.at+1, block+1
	var list []byte
	switch {
	case isRun:
		if len(rest) < 2 {
			return nil, errRoaring
		}
		n := int(le.Uint16(rest))
		if rest = rest[2:]; len(rest) < 4*n {
			return nil, errRoaring
		}
		list = (*room)[:0]
		next := uint32(0)
		for r := range n {
			lo := uint32(le.Uint16(rest[4*r:]))
			hi := lo + uint32(le.Uint16(rest[4*r+2:]))
			if lo < next || hi > 0xffff {
				return nil, errRoaring
			}
			next = hi + 1
			for d := lo; d <= hi; d++ {
				list = le.AppendUint16(list, uint16(d))
			}
		}
		*room, rest = list, rest[4*n:]
	case card <= arrayMax:
		if len(rest) < 2*card {
			return nil, errRoaring
		}
		list, rest = rest[:2*card:2*card], rest[2*card:]
		if !ascending(list) {
			return nil, errRoaring
		}
	default:
		if len(rest) < bitmapBytes {
			return nil, errRoaring
		}
		list = (*room)[:0]
		for w := range bitmapBytes / 8 {
			for v := le.Uint64(rest[8*w:]); v != 0; v &= v - 1 {
				list = le.AppendUint16(list, uint16(w*64+bits.TrailingZeros64(v)))
			}
		}
		*room, rest = list, rest[bitmapBytes:]
	}
	if len(list) > 0 && block<<16|uint32(le.Uint16(list[len(list)-2:])) >= docs {
		return nil, errRoaring
	}
	c.data = rest
	return list, nil
}

// ascending reports whether each of the 16-bit numbers is larger than the one before. Four
// at a time are compared with their successors.
func ascending(list []byte) bool {
	const top = 0x8000_8000_8000_8000
	le := binary.LittleEndian
	bad := uint64(0)
	for ; len(list) >= 10; list = list[8:] {
		v, w := le.Uint64(list), le.Uint64(list[2:])
		// The top bit of a lane is set where that of v, without its own, is no smaller.
		low := (v | top) - w&^top
		bad |= v&^w | ^(v^w)&low
	}
	ok := bad&top == 0
	for ; len(list) >= 4; list = list[2:] {
		ok = ok && le.Uint16(list) < le.Uint16(list[2:])
	}
	return ok
}
