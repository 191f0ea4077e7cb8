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
	next uint64 // the least ordinal that may follow
}

// Cursor begins at the first block.
func (p PostingList) Cursor() (PostingCursor, error) {
	c, err := p.open()
	return PostingCursor{containers: c}, err
}

// Done reports whether all blocks were read.
func (c *PostingCursor) Done() bool { return c.at >= c.n }

// Block is the upper 16 bits of the documents that Next appends; not to be asked
// for when Done.
func (c *PostingCursor) Block() uint32 {
	return uint32(binary.LittleEndian.Uint16(c.headers[4*c.at:]))
}

// Next appends the ordinals of the next block in ascending order. docs is the number of
// documents that exist; an ordinal beyond it is an error.
func (c *PostingCursor) Next(dst []uint32, docs uint32) ([]uint32, error) {
	le := binary.LittleEndian
	base := uint64(c.Block()) << 16
	card := int(le.Uint16(c.headers[4*c.at+2:])) + 1
	isRun := c.runs != nil && c.runs[c.at/8]>>(c.at%8)&1 == 1
	rest, next := c.data, c.next
	c.at++
	switch {
	case isRun:
		if len(rest) < 2 {
			return dst, errRoaring
		}
		n := int(le.Uint16(rest))
		rest = rest[2:]
		if len(rest) < 4*n {
			return dst, errRoaring
		}
		for r := range n {
			lo := base + uint64(le.Uint16(rest[4*r:]))
			hi := lo + uint64(le.Uint16(rest[4*r+2:]))
			if lo < next || hi >= uint64(docs) || hi > base|0xffff {
				return dst, errRoaring
			}
			next = hi + 1
			for d := lo; d <= hi; d++ {
				dst = append(dst, uint32(d))
			}
		}
		rest = rest[4*n:]
	case card <= arrayMax:
		if len(rest) < 2*card {
			return dst, errRoaring
		}
		for list := rest[:2*card]; len(list) >= 2; list = list[2:] {
			d := base | uint64(le.Uint16(list))
			if d < next {
				return dst, errRoaring
			}
			next = d + 1
			dst = append(dst, uint32(d))
		}
		rest = rest[2*card:]
	default:
		if len(rest) < bitmapBytes || base < next {
			return dst, errRoaring
		}
		for w := range bitmapBytes / 8 {
			for v := le.Uint64(rest[8*w:]); v != 0; v &= v - 1 {
				next = base + uint64(w*64+bits.TrailingZeros64(v)) + 1
				dst = append(dst, uint32(next-1))
			}
		}
		rest = rest[bitmapBytes:]
	}
	if next > uint64(docs) {
		return dst, errRoaring
	}
	c.data, c.next = rest, next
	return dst, nil
}
