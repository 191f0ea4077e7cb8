package metadata

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// entry is a stored value: complete, or the beginning of a text and its hash.
type entry struct {
	condition.Value      // of a cut text, the beginning
	cut             bool // the text is longer
	form            condition.Form
	hash            uint64 // of the complete text
}

// newEntry returns the entry of a value. It cuts a long text.
func newEntry(v condition.Value, form condition.Form) entry {
	if v.Kind != condition.Text || len(v.Text) <= maxText {
		return entry{Value: v, form: form}
	}
	h := fnv.New64a()
	h.Write([]byte(v.Text))
	v.Text = strings.Clone(v.Text[:textPrefix])
	return entry{Value: v, cut: true, hash: h.Sum64(), form: form}
}

// compare orders the entries of a run. The order is total: equal values of two forms differ.
func (e *entry) compare(o *entry) int {
	return cmp.Or(e.compareValue(o), cmp.Compare(e.form, o.form))
}

// compareValue orders values, and distinguishes equal numbers of two kinds, and texts with the same
// beginning.
func (e *entry) compareValue(o *entry) int {
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

// Tags of encoded entries. A tag also has the form, multiplied by tagForm.
const (
	tagInteger = 1
	tagReal    = 2
	tagText    = 3
	tagCut     = 4
	tagForm    = 16
)

// appendEntry encodes an entry, little-endian: a tag; then i64, f64, or the length (u8) and bytes
// of a text; for a cut text, the beginning and the hash (u64).
func appendEntry(dst []byte, e *entry) []byte {
	le, form := binary.LittleEndian, tagForm*byte(e.form)
	switch {
	case e.Kind == condition.Integer:
		return le.AppendUint64(append(dst, form+tagInteger), uint64(e.Int))
	case e.Kind == condition.Real:
		return le.AppendUint64(append(dst, form+tagReal), math.Float64bits(e.Real))
	case e.cut:
		return le.AppendUint64(append(append(dst, form+tagCut), e.Text...), e.hash)
	}
	return append(append(dst, form+tagText, byte(len(e.Text))), e.Text...)
}

// appendBytes appends the length (u32) and the bytes.
func appendBytes(dst, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(b))), b...)
}

// appendBitmap appends a bitmap; an empty one as the length 0.
func appendBitmap(dst []byte, bm *roaring.Bitmap) ([]byte, error) {
	if bm.IsEmpty() {
		return appendBytes(dst, nil), nil
	}
	bm = bm.Clone()
	bm.RunOptimize()
	b, err := bm.ToBytes()
	return appendBytes(dst, b), err
}

// byteReader decodes values. After a fault it returns zeros.
type byteReader struct {
	b      []byte
	text   string // if set, ends with the bytes of b, so that texts share its memory
	failed bool
}

// readBytes returns the next n bytes.
func (r *byteReader) readBytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.failed, r.b = true, nil
		return make([]byte, max(min(n, 8), 0)) // zeros for the largest number
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *byteReader) readUint8() byte    { return r.readBytes(1)[0] }
func (r *byteReader) readUint32() uint32 { return binary.LittleEndian.Uint32(r.readBytes(4)) }
func (r *byteReader) readUint64() uint64 { return binary.LittleEndian.Uint64(r.readBytes(8)) }

// readString returns a text of n bytes.
func (r *byteReader) readString(n int) string {
	if r.text == "" || n > len(r.b) {
		return string(r.readBytes(n))
	}
	begin := len(r.text) - len(r.b)
	r.readBytes(n)
	return r.text[begin : begin+n]
}

// readSized returns bytes that follow their length.
func (r *byteReader) readSized() []byte {
	n := int(r.readUint32())
	if n > len(r.b) {
		r.failed, r.b = true, nil
		return nil
	}
	return r.readBytes(n)
}

// readBitmap decodes into bm.
func (r *byteReader) readBitmap(bm *roaring.Bitmap) {
	b := r.readSized()
	if r.failed || len(b) == 0 {
		return
	}
	// Unmarshal copies: the file may be closed while the bitmap is in use.
	if err := bm.UnmarshalBinary(b); err != nil || bm.Validate() != nil {
		r.failed = true
		bm.Clear()
	}
}

// readEntry decodes an entry.
func (r *byteReader) readEntry() entry {
	switch tag := r.readUint8(); tag {
	case tagInteger:
		return entry{Value: condition.Value{Kind: condition.Integer, Int: int64(r.readUint64())}}
	case tagReal:
		f := math.Float64frombits(r.readUint64())
		r.failed = r.failed || math.IsNaN(f)
		return entry{Value: condition.Value{Kind: condition.Real, Real: f}}
	case tagText, tagText + tagForm*byte(condition.Nested):
		n := int(r.readUint8())
		if n > maxText {
			break
		}
		v := condition.Value{Kind: condition.Text, Text: r.readString(n)}
		return entry{Value: v, form: condition.Form(tag / tagForm)}
	case tagCut, tagCut + tagForm*byte(condition.Nested):
		text := r.readString(textPrefix)
		hash := r.readUint64()
		v := condition.Value{Kind: condition.Text, Text: text}
		return entry{Value: v, cut: true, form: condition.Form(tag / tagForm), hash: hash}
	case tagInteger + tagForm*byte(condition.Boolean):
		i := int64(r.readUint64())
		if i != 0 && i != 1 {
			break
		}
		return entry{Value: condition.Value{Kind: condition.Integer, Int: i}, form: condition.Boolean}
	}
	r.failed, r.b = true, nil
	return entry{}
}

// checkDone returns an error about the data called what if bytes were missing, or remain.
func (r *byteReader) checkDone(what string) error {
	if r.failed || len(r.b) > 0 {
		return fmt.Errorf("%w: %s", ErrFormat, what)
	}
	return nil
}
