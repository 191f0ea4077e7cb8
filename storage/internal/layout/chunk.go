package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// TailBytes is the number of zero bytes after codes, factors and residuals, so that a kernel may read
// complete vector registers past the last token.
const TailBytes = 1024

// ChunkTail is the zeros that follow an array.
var ChunkTail [TailBytes]byte

var errDocTable = errors.New("document table does not fit its counts")

// docEntryBytes is the number of bytes of a document in the table of its chunk, without its id:
// length, end of the id, and two checksums. The table begins with the number of documents and the
// first ordinal, and ends with the ids.
const docEntryBytes = 16

// EncodedDocTable is the stored document table of a chunk, read in place.
type EncodedDocTable struct {
	First     uint32
	Count     int
	lengths   []byte
	ends      []byte
	checksums []byte
	ids       []byte
}

// ParseDocTable parses a stored table, and checks its counts and offsets.
func ParseDocTable(v []byte) (EncodedDocTable, error) {
	le := binary.LittleEndian
	if len(v) < 8 {
		return EncodedDocTable{}, errDocTable
	}
	n := int(le.Uint32(v))
	if uint64(len(v)-8) < docEntryBytes*uint64(n) || uint64(le.Uint32(v[4:]))+uint64(n) > MaxDocs {
		return EncodedDocTable{}, errDocTable
	}
	t := EncodedDocTable{
		First:     le.Uint32(v[4:]),
		Count:     n,
		lengths:   v[8 : 8+4*n],
		ends:      v[8+4*n : 8+8*n],
		checksums: v[8+8*n : 8+16*n],
		ids:       v[8+16*n:],
	}
	prev := uint32(0)
	for i := range n {
		end := le.Uint32(t.ends[4*i:])
		if end < prev {
			return EncodedDocTable{}, errDocTable
		}
		prev = end
	}
	if uint64(prev) != uint64(len(t.ids)) {
		return EncodedDocTable{}, errDocTable
	}
	return t, nil
}

// OpenDocTable verifies and parses the sealed table of a chunk.
func OpenDocTable(chunk uint32, sealed []byte) (EncodedDocTable, error) {
	v, ok := Unseal(ChecksumKey(chunk, KeyDocs), sealed)
	if !ok {
		return EncodedDocTable{}, ErrChecksum
	}
	return ParseDocTable(v)
}

// Length returns the number of tokens of document i.
func (t *EncodedDocTable) Length(i int) uint32 {
	return binary.LittleEndian.Uint32(t.lengths[4*i:])
}

// ID returns a copy of the id of document i.
func (t *EncodedDocTable) ID(i int) string { return string(t.IDBytes(i)) }

// HasID reports whether document i has this id, without a copy.
func (t *EncodedDocTable) HasID(i int, id string) bool { return string(t.IDBytes(i)) == id }

// IDBytes returns the id of document i, without a copy.
func (t *EncodedDocTable) IDBytes(i int) []byte {
	lo := uint32(0)
	if i > 0 {
		lo = binary.LittleEndian.Uint32(t.ends[4*i-4:])
	}
	return t.ids[lo:binary.LittleEndian.Uint32(t.ends[4*i:])]
}

// Checksums returns the checksum of the codes of document i, and that of its factors and residuals.
func (t *EncodedDocTable) Checksums(i int) (codes, rows uint32) {
	le := binary.LittleEndian
	return le.Uint32(t.checksums[8*i:]), le.Uint32(t.checksums[8*i+4:])
}

// Offsets returns the first token of each document, and the number of all tokens at the end.
func (t *EncodedDocTable) Offsets() ([]uint32, error) {
	off := make([]uint32, t.Count+1)
	sum := uint64(0)
	for i := range t.Count {
		sum += uint64(t.Length(i))
		if sum > math.MaxUint32 {
			return nil, errDocTable
		}
		off[i+1] = uint32(sum)
	}
	return off, nil
}

// Arrays have no checksum as a whole, since a search reads only a few of the hundreds of documents of
// a chunk. The table of the chunk has two checksums for each document, which also cover the number of
// the chunk and the index of the document in it.

// DocChecksummer computes the checksums of the documents of a chunk. Its fields are the checksums of
// the bytes that precede the index of the document.
type DocChecksummer struct{ codes, rows uint32 }

// NewDocChecksummer returns a DocChecksummer for the chunk with this number.
func NewDocChecksummer(chunk uint32) DocChecksummer {
	return DocChecksummer{Checksum(ChecksumKey(chunk, KeyCodes), nil), Checksum(ChecksumKey(chunk, KeyResiduals), nil)}
}

// Codes returns the checksum of the codes of a document.
func (s DocChecksummer) Codes(doc int, codes []byte) uint32 {
	return crc32.Update(checksumNumber(s.codes, uint32(doc)), Castagnoli, codes)
}

// Rows returns the checksum of the factors and residuals of a document.
func (s DocChecksummer) Rows(doc int, factors, residuals []byte) uint32 {
	return crc32.Update(crc32.Update(checksumNumber(s.rows, uint32(doc)), Castagnoli, factors), Castagnoli, residuals)
}

// checksumNumber continues a checksum with the bytes of [NumberKey], without allocating them.
func checksumNumber(sum, n uint32) uint32 {
	sum = ^sum
	for shift := 24; shift >= 0; shift -= 8 {
		sum = Castagnoli[byte(sum)^byte(n>>shift)] ^ sum>>8
	}
	return ^sum
}

// Chunk is a stored chunk, read in place.
type Chunk struct {
	kernels.Chunk
	Table       EncodedDocTable
	RowBytes    int       // bytes of the residual of a token
	tails       [3][]byte // of codes, factors and residuals
	checksummer DocChecksummer
}

// OpenChunk parses the values of a chunk, which get returns by their keys, and checks that their sizes
// agree. It verifies only the checksum of the document table. The widths of a chunk without tokens
// are 0.
func OpenChunk(number uint32, get func(key []byte) []byte) (c Chunk, err error) {
	if c.Table, err = OpenDocTable(number, get(KeyDocs)); err != nil {
		return c, fmt.Errorf("%s: %w", KeyDocs, err)
	}
	if c.Offsets, err = c.Table.Offsets(); err != nil {
		return c, fmt.Errorf("%s: %w", KeyDocs, err)
	}
	c.checksummer = NewDocChecksummer(number)
	tokens, factorBytes := c.Tokens(), 0
	for i, a := range []struct {
		key   []byte
		dst   *[]byte
		width *int
	}{
		{KeyCodes, &c.Codes, &c.CodeBytes},
		{KeyFactors, &c.Factors, &factorBytes},
		{KeyResiduals, &c.Residuals, &c.RowBytes},
	} {
		stored := get(a.key)
		n := len(stored) - TailBytes
		if n >= 0 && tokens > 0 {
			*a.width = n / tokens
		}
		if n < 0 || n != tokens*(*a.width) {
			return c, fmt.Errorf("%s: %d bytes for %d tokens", a.key, len(stored), tokens)
		}
		*a.dst, c.tails[i] = stored[:n], stored[n:]
	}
	if tokens > 0 && (factorBytes != 2 || c.CodeBytes != 2 && c.CodeBytes != 4) {
		return c, fmt.Errorf("codes of %d bytes, factors of %d", c.CodeBytes, factorBytes)
	}
	return c, nil
}

// CheckWidths checks that codes and residuals have the widths of the codec, in bytes. It sets them in
// a chunk without tokens.
func (c *Chunk) CheckWidths(codeBytes, rowBytes int) error {
	if c.Tokens() == 0 {
		c.CodeBytes, c.RowBytes = codeBytes, rowBytes
	}
	if c.CodeBytes != codeBytes || c.RowBytes != rowBytes {
		return fmt.Errorf("codes of %d bytes, residuals of %d; the codec's have %d and %d",
			c.CodeBytes, c.RowBytes, codeBytes, rowBytes)
	}
	return nil
}

// CheckCodes compares the codes of a document with their checksum.
func (c *Chunk) CheckCodes(doc int) error {
	lo, hi := int(c.Offsets[doc]), int(c.Offsets[doc+1])
	if want, _ := c.Table.Checksums(doc); c.checksummer.Codes(doc, c.Codes[lo*c.CodeBytes:hi*c.CodeBytes]) != want {
		return ErrChecksum
	}
	return nil
}

// CheckRows compares the factors and residuals of a document with their checksum.
func (c *Chunk) CheckRows(doc int) error {
	lo, hi := int(c.Offsets[doc]), int(c.Offsets[doc+1])
	_, want := c.Table.Checksums(doc)
	if c.checksummer.Rows(doc, c.Factors[2*lo:2*hi], c.Residuals[lo*c.RowBytes:hi*c.RowBytes]) != want {
		return ErrChecksum
	}
	return nil
}

// CheckTails checks that zeros follow the arrays. It returns an error for the codes, and one for the
// factors and residuals.
func (c *Chunk) CheckTails() (codes, rows error) {
	checkZeros := func(tails [][]byte) error {
		for _, t := range tails {
			if !bytes.Equal(t, ChunkTail[:]) {
				return fmt.Errorf("the end: %w", ErrChecksum)
			}
		}
		return nil
	}
	return checkZeros(c.tails[:1]), checkZeros(c.tails[1:])
}
