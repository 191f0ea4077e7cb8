package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// MaxDocs is how many ordinals there are.
const MaxDocs = 1<<32 - 2

// TailBytes follow codes, factors and residuals, so that a kernel may read
// whole vectors past the last token.
const TailBytes = 1024

var errDocTable = errors.New("document table does not fit its counts")

// EncodedDocTable is the document table of a chunk as it is stored, read in place.
type EncodedDocTable struct {
	First   uint32
	Count   int
	lengths []byte
	ends    []byte
	ids     []byte
}

// ParseDocTable makes sure that a table fits its counts.
func ParseDocTable(v []byte) (EncodedDocTable, error) {
	le := binary.LittleEndian
	if len(v) < 8 {
		return EncodedDocTable{}, errDocTable
	}
	n := int(le.Uint32(v))
	if uint64(len(v)-8) < 8*uint64(n) || uint64(le.Uint32(v[4:]))+uint64(n) > MaxDocs {
		return EncodedDocTable{}, errDocTable
	}
	t := EncodedDocTable{First: le.Uint32(v[4:]), Count: n, lengths: v[8 : 8+4*n], ends: v[8+4*n : 8+8*n], ids: v[8+8*n:]}
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

// Length is how many tokens a document has.
func (t *EncodedDocTable) Length(i int) uint32 {
	return binary.LittleEndian.Uint32(t.lengths[4*i:])
}

// ID is that of a document, as a copy.
func (t *EncodedDocTable) ID(i int) string { return string(t.IDBytes(i)) }

// HasID compares without a copy.
func (t *EncodedDocTable) HasID(i int, id string) bool { return string(t.IDBytes(i)) == id }

// IDBytes is the id of a document, in place.
func (t *EncodedDocTable) IDBytes(i int) []byte {
	lo := uint32(0)
	if i > 0 {
		lo = binary.LittleEndian.Uint32(t.ends[4*i-4:])
	}
	return t.ids[lo:binary.LittleEndian.Uint32(t.ends[4*i:])]
}

// Offsets returns the token offsets of the documents, one more than there are.
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

// ParseFloatType finds the type of the centroids by its name in the header.
func ParseFloatType(s string) (kernels.FloatType, error) {
	for _, t := range []kernels.FloatType{kernels.BF16, kernels.F16, kernels.F32} {
		if t.String() == s {
			return t, nil
		}
	}
	return 0, fmt.Errorf("centroid type %q", s)
}
