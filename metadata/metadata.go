// Package metadata keeps what is derived from the fields of payloads, so that conditions
// over them are answered without reading payloads: for each field its values in order,
// and for each value a roaring bitmap of the documents that have it.
//
//	[Builder]  payloads of documents → values of a run
//	[Run]      a test of a condition → documents that pass
//
// A run is what one change of an index has written about some documents. Where two runs
// cover a document the newer one counts. Runs are small sets of keys and values;
// docs/format.md has their bytes.
//
// What is kept of a field is bounded. Text of more than 40 bytes is kept as its first 32
// and a hash, so that it is found by equality, and by order up to what the beginning
// tells; a run has at most 1,000 fields, each at most 4 keys deep. What is beyond that
// has to be looked up in the payloads, and a Run says for which documents.
package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"

	"github.com/plaid-ir/plaid/condition"
)

// Limits of what is kept.
const (
	maxDepth     = 4
	maxFields    = 1000
	maxFieldName = 256 // bytes
	maxText      = 40  // bytes of text that is kept as it is
	textPrefix   = 32  // bytes of longer text
	blockDocs    = 4096
	blockBytes   = 64 << 10 // of keys
	inlineBytes  = 2048
)

// ErrFormat: values that no Builder has written.
var ErrFormat = errors.New("malformed field data")

// Keys of the values of a run.
var keyHead = []byte("r")

func fieldKey(f condition.Field) []byte { return append([]byte("f"), f...) }

func blockKey(field, block uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("b"), field), block)
}

// entry is a value as it is kept: whole, or cut to its beginning and a hash.
type entry struct {
	condition.Value        // of a text that was cut, the beginning
	cut             bool   // the text is longer
	hash            uint64 // of all of it
}

func entryOf(v condition.Value) entry {
	if v.Kind != condition.Text || len(v.Text) <= maxText {
		return entry{Value: v}
	}
	h := fnv.New64a()
	h.Write([]byte(v.Text))
	v.Text = strings.Clone(v.Text[:textPrefix])
	return entry{Value: v, cut: true, hash: h.Sum64()}
}

// compare is the order of entries in a run. Equal numbers of two kinds, and texts with
// one beginning, are told apart.
func (e *entry) compare(o *entry) int {
	if c := e.Value.Compare(o.Value); c != 0 {
		return c
	}
	switch {
	case e.Kind != o.Kind:
		return int(e.Kind) - int(o.Kind)
	case e.cut != o.cut && e.cut:
		return 1
	case e.cut != o.cut:
		return -1
	case e.hash < o.hash:
		return -1
	case e.hash > o.hash:
		return 1
	}
	return 0
}

// Kinds of encoded entries.
const (
	tagInteger = 1
	tagReal    = 2
	tagText    = 3
	tagCut     = 4
)

// appendEntry encodes: a tag, then i64, f64, or the length (u8) and bytes of a text; of
// one that was cut, the beginning and the hash (u64). Little-endian.
func appendEntry(dst []byte, e *entry) []byte {
	le := binary.LittleEndian
	switch {
	case e.Kind == condition.Integer:
		return le.AppendUint64(append(dst, tagInteger), uint64(e.Int))
	case e.Kind == condition.Real:
		return le.AppendUint64(append(dst, tagReal), math.Float64bits(e.Real))
	case e.cut:
		return le.AppendUint64(append(append(dst, tagCut), e.Text...), e.hash)
	}
	return append(append(dst, tagText, byte(len(e.Text))), e.Text...)
}

// reader takes values apart; after a fault it goes on with zeros.
type reader struct {
	b      []byte
	text   string // where set, ends with what b has, so that texts need no copies
	failed bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.failed, r.b = true, nil
		return make([]byte, max(min(n, 8), 0))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() byte    { return r.take(1)[0] }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// string is text of so many bytes.
func (r *reader) string(n int) string {
	if r.text == "" || n > len(r.b) {
		return string(r.take(n))
	}
	at := len(r.text) - len(r.b)
	r.take(n)
	return r.text[at : at+n]
}

// bytes are preceded by their number.
func (r *reader) bytes() []byte {
	n := int(r.u32())
	if n > len(r.b) {
		r.failed, r.b = true, nil
		return nil
	}
	return r.take(n)
}

// entry reads one.
func (r *reader) entry() entry {
	switch tag := r.u8(); tag {
	case tagInteger:
		return entry{Value: condition.Value{Kind: condition.Integer, Int: int64(r.u64())}}
	case tagReal:
		f := math.Float64frombits(r.u64())
		r.failed = r.failed || math.IsNaN(f)
		return entry{Value: condition.Value{Kind: condition.Real, Real: f}}
	case tagText:
		n := int(r.u8())
		if n > maxText {
			break
		}
		return entry{Value: condition.Value{Kind: condition.Text, Text: r.string(n)}}
	case tagCut:
		text := r.string(textPrefix)
		return entry{Value: condition.Value{Kind: condition.Text, Text: text}, cut: true, hash: r.u64()}
	}
	r.failed, r.b = true, nil
	return entry{}
}

// end is an error if something was missing or is left.
func (r *reader) end(what string) error {
	if r.failed || len(r.b) > 0 {
		return fmt.Errorf("%w: %s", ErrFormat, what)
	}
	return nil
}
