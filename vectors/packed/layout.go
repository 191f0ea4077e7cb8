package packed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/vectors"
)

// The file, all numbers little-endian. The header:
//
//	0   magic "PLAIDVEC"
//	8   version, 16 bits: 1
//	10  type of the values, 8 bits: as of maxsim.Type, 1 to 5
//	11  what there is, 8 bits: see the constants below
//	12  dimension, 32 bits
//	16  rows of the matrix, 64 bits
//	24  documents, 64 bits
//	32  tokens: rows of documents that are not masked, 64 bits
//	40  bytes of all ids, 64 bits
//	48  bytes of the file, 64 bits
//	56  0, 32 bits
//	60  CRC-32C of the 60 bytes before
//
// Sections follow in the order of the constants, those that there are, each at a multiple
// of 64 bytes after the header or the section before, with zeros between. Where they are
// follows from the header. The last section is the CRC-32C of each 64 KiB of the file
// before it, and then that of these sums.
const (
	magic      = "PLAIDVEC"
	version    = 1
	headerSize = 64
	align      = 64
	blockSize  = 64 << 10
)

// What there is.
const (
	hasScales = 1 << iota
	hasZeros
	hasMask
	hasIDs
	hasScreening
	known = 1<<iota - 1
)

// Sections.
const (
	offsets    = iota // uint64 [documents+1]
	ids               // each with a line feed behind it
	mask              // uint8 [rows], 0 or 1
	scales            // float32 [rows]
	zeros             // int8 [rows]
	plainUnits        // float32 [tokens]; this and the next as in maxsim.Screening
	plainFactors
	plainErrors // float32 [documents]
	plainNorms
	unitUnits
	unitFactors
	unitErrors
	unitNorms
	values // [rows, dimension] of the type
	levels // uint8 [tokens, dimension rounded up to a multiple of 4]
	sums   // uint32
	sectionCount
)

// Errors; test with errors.Is.
var (
	// ErrVersion: a file is of a version that this program does not know. It is a
	// vectors.ErrFormat, too, as all is that is wrong in a file.
	ErrVersion = errors.New("unknown version")
	// ErrChecksum: its bytes are not those that were written.
	ErrChecksum = errors.New("checksum does not match")
)

func faultf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", vectors.ErrFormat, fmt.Errorf(format, args...))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is what the header says.
type header struct {
	kind                         maxsim.Type
	has                          uint8
	dim                          int
	rows, docs, tokens, idsBytes int
	size                         int64
}

// region is the bytes of a section.
type region struct{ at, size int64 }

// layout is where sections are, from the header alone. It fails where sizes are beyond
// what a file can have.
func (h *header) layout() (regions [sectionCount]region, size int64, err error) {
	at := int64(headerSize)
	add := func(section int, there bool, a, b, c int) {
		hi, lo := bits.Mul64(uint64(a), uint64(b))
		over := hi != 0
		hi, lo = bits.Mul64(lo, uint64(c))
		if over || hi != 0 || lo > math.MaxInt64/4 || at > math.MaxInt64/4 {
			err = faultf("sizes beyond those of any file")
			return
		}
		at = (at + align - 1) / align * align
		regions[section].at = at
		if there {
			regions[section].size = int64(lo)
			at += int64(lo)
		}
	}
	has := func(bit uint8) bool { return h.has&bit != 0 }
	screening := has(hasScreening)
	add(offsets, true, h.docs+1, 8, 1)
	add(ids, has(hasIDs), h.idsBytes, 1, 1)
	add(mask, has(hasMask), h.rows, 1, 1)
	add(scales, has(hasScales), h.rows, 4, 1)
	add(zeros, has(hasZeros), h.rows, 1, 1)
	add(plainUnits, screening, h.tokens, 4, 1)
	add(plainFactors, screening && has(hasScales), h.tokens, 4, 1)
	add(plainErrors, screening, h.docs, 4, 1)
	add(plainNorms, screening, h.docs, 4, 1)
	add(unitUnits, screening, h.tokens, 4, 1)
	add(unitFactors, screening, h.tokens, 4, 1)
	add(unitErrors, screening, h.docs, 4, 1)
	add(unitNorms, screening, h.docs, 4, 1)
	add(values, true, h.rows, h.dim, h.kind.Size())
	add(levels, screening, h.tokens, h.stride(), 1)
	blocks := int((at+align-1)/align*align+blockSize-1) / blockSize
	add(sums, true, blocks+1, 4, 1)
	return regions, at, err
}

func (h *header) stride() int { return (h.dim + 3) &^ 3 }

func (h *header) append(b []byte) []byte {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = append(b, byte(h.kind), h.has)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.dim))
	for _, n := range []int{h.rows, h.docs, h.tokens, h.idsBytes} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(h.size))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseHeader reads and checks the header of a file of size bytes.
func parseHeader(b []byte, size int64) (*header, error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return nil, faultf("it does not begin as one does")
	}
	if len(b) < headerSize {
		return nil, faultf("%d bytes are no header", size)
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != version {
		return nil, faultf("%w: %d", ErrVersion, v)
	}
	if binary.LittleEndian.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli) {
		return nil, faultf("%w: of the header", ErrChecksum)
	}
	var counts [5]int
	for i := range counts {
		n := binary.LittleEndian.Uint64(b[16+8*i:])
		if n > math.MaxInt/16 {
			return nil, faultf("sizes beyond those of any file")
		}
		counts[i] = int(n)
	}
	h := &header{
		kind: maxsim.Type(b[10]), has: b[11], dim: int(binary.LittleEndian.Uint32(b[12:])),
		rows: counts[0], docs: counts[1], tokens: counts[2], idsBytes: counts[3], size: int64(counts[4]),
	}
	switch {
	case h.kind < maxsim.F32 || h.kind > maxsim.E4M3:
		return nil, faultf("values of type %d", b[10])
	case h.dim < 1 || h.dim > kernels.MaxDim:
		return nil, faultf("dimension %d is not in 1..%d", h.dim, kernels.MaxDim)
	case h.has&^known != 0 || binary.LittleEndian.Uint32(b[56:]) != 0:
		return nil, faultf("parts that this program does not know")
	case h.size > size:
		return nil, faultf("it is cut short: it has %d bytes of %d", size, h.size)
	case h.size < size:
		return nil, faultf("it has %d bytes, and should have %d", size, h.size)
	}
	return h, nil
}
