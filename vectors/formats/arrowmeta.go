package formats

import (
	"encoding/binary"
	"fmt"

	"github.com/plaid-ir/plaid/vectors"
)

// Arrow describes its data by flatbuffers (flatbuffers.dev, "FlatBuffers Internals"):
// tables that point to each other by offsets. The library follows them, and makes room
// for as many elements as a vector says to have, without looking whether they are there;
// verify does.

// maxTables is how deep tables may be within each other: 64 levels of fields, which is as
// many as the library reads, and what is around and within them.
const maxTables = 68

// slot is what a field of a table holds: a number, or a vector of numbers or of
// structures, of so many bytes; or a table, a vector of tables, or one table of several
// kinds, the number of which is in the field before.
type slot struct {
	size   int
	vector bool
	table  *layout
	union  []*layout
}

// layout are the fields of a kind of table, of Arrow's Schema.fbs, Message.fbs, File.fbs.
type layout []slot

var (
	int8s, int16s, int32s, int64s = slot{size: 1}, slot{size: 2}, slot{size: 4}, slot{size: 8}
	text                          = slot{size: 1, vector: true}

	pairs      = slot{vector: true, table: &layout{text, text}}
	number     = &layout{int32s, int8s} // bit width, is signed
	noFields   = &layout{}
	fieldTypes = []*layout{
		1: noFields, 2: number, 3: {int16s}, 4: noFields, 5: noFields, 6: noFields, // null, int, float, binary, text, bool
		7: {int32s, int32s, int32s}, 8: {int16s}, 9: {int16s, int32s}, 10: {int16s, text}, // decimal, date, time, timestamp
		11: {int16s}, 12: noFields, 13: noFields, 14: {int16s, {size: 4, vector: true}}, // interval, list, struct, union
		15: {int32s}, 16: {int32s}, 17: {int8s}, 18: {int16s}, // fixed size: binary, list; map, duration
		19: noFields, 20: noFields, 21: noFields, 22: noFields, // large: binary, text, list; run ends
		23: noFields, 24: noFields, 25: noFields, 26: noFields, // views: binary, text, list, large list
	}
	// name, nullable, type, dictionary (id, type of the indices, ordered, kind), children
	fieldLayout = &layout{text, int8s, int8s, {union: fieldTypes}, {table: &layout{int64s, {table: number}, int8s, int16s}}, {}, pairs}
	// endianness, fields, metadata, features
	schemaLayout = &layout{int16s, {vector: true, table: fieldLayout}, pairs, {size: 8, vector: true}}
	// rows, nodes, buffers, compression (codec, method), counts of variadic buffers
	batchLayout = &layout{int64s, {size: 16, vector: true}, {size: 16, vector: true}, {table: &layout{int8s, int8s}}, {size: 8, vector: true}}
	// id, data, is a delta
	dictionaryLayout = &layout{int64s, {table: batchLayout}, int8s}
	// version, kind of header, header, length of the body, metadata
	messageLayout = &layout{int16s, int8s, {union: []*layout{headerSchema: schemaLayout, headerDictionary: dictionaryLayout, headerBatch: batchLayout}}, int64s, pairs}
	// version, schema, blocks of dictionaries, blocks of record batches, metadata
	footerLayout = &layout{int16s, {table: schemaLayout}, {size: 24, vector: true}, {size: 24, vector: true}, pairs}
)

// Kinds of messages.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3
)

func init() { (*fieldLayout)[5] = slot{vector: true, table: fieldLayout} }

// damaged says what is wrong with the metadata of a file.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: damaged metadata: %s", vectors.ErrFormat, fmt.Sprintf(format, args...))
}

// verifier goes through metadata.
type verifier struct {
	b    []byte
	left int // bytes that may yet be gone through: tables that many offsets lead to are many
}

// verify returns the table that b begins with, in which all offsets and lengths are right.
func verify(b []byte, l *layout) (table, error) {
	v := &verifier{b: b, left: 8*len(b) + 64}
	at, err := v.follow(0)
	if err == nil {
		err = v.table(at, l, 0)
	}
	return table{b, at}, err
}

// spend checks that n bytes are at a place.
func (v *verifier) spend(at, n int) error {
	if at < 0 || n < 0 || at > len(v.b) || n > len(v.b)-at {
		return damaged("%d bytes at %d of %d", n, at, len(v.b))
	}
	if v.left -= n; v.left < 0 {
		return damaged("tables that are pointed to again and again")
	}
	return nil
}

// follow is the place that an offset leads to.
func (v *verifier) follow(at int) (int, error) {
	if err := v.spend(at, 4); err != nil {
		return 0, err
	}
	return at + int(binary.LittleEndian.Uint32(v.b[at:])), nil
}

func (v *verifier) table(at int, l *layout, depth int) error {
	if depth > maxTables {
		return damaged("fields within fields, more than 64 times")
	}
	if err := v.spend(at, 4); err != nil {
		return err
	}
	t := table{v.b, at}
	places := t.places()
	if err := v.spend(places, 4); err != nil {
		return err
	}
	// The size of the table, which comes next, is not for all that share the places: writers
	// in Go let tables of different sizes share them.
	length := int(binary.LittleEndian.Uint16(v.b[places:]))
	if length < 4 || length%2 != 0 {
		return damaged("a table of places of %d bytes", length)
	}
	if err := v.spend(places, length); err != nil {
		return err
	}
	for i, s := range *l {
		if err := v.slot(t, i, s, depth); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) slot(t table, i int, s slot, depth int) error {
	at := t.place(i)
	if at < 0 {
		return nil
	}
	width := 4 // of an offset
	if s.size > 0 && !s.vector {
		width = s.size
	}
	if err := v.spend(at, width); err != nil {
		return err
	}
	if width = s.size; !s.vector && width > 0 {
		return nil
	}
	to, err := v.follow(at)
	if err != nil {
		return err
	}
	if !s.vector {
		if s.union != nil {
			kind := int(t.uint8(i - 1))
			if kind >= len(s.union) || s.union[kind] == nil {
				return damaged("a table of the unknown kind %d", kind)
			}
			s.table = s.union[kind]
		}
		return v.table(to, s.table, depth+1)
	}
	if err := v.spend(to, 4); err != nil {
		return err
	}
	if s.table != nil {
		width = 4
	}
	n := int(binary.LittleEndian.Uint32(v.b[to:]))
	if n < 0 || n > (len(v.b)-to-4)/width {
		return damaged("a vector of %d elements of %d bytes in %d bytes", n, width, len(v.b)-to-4)
	}
	if s.table == nil {
		return v.spend(to+4, n*width)
	}
	for j := range n {
		element, err := v.follow(to + 4 + 4*j)
		if err == nil {
			err = v.table(element, s.table, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// table is one of verified metadata; a field that is not there is zero, or empty.
type table struct {
	b   []byte
	pos int
}

// places is where the places of the fields are told.
func (t table) places() int { return t.pos - int(int32(binary.LittleEndian.Uint32(t.b[t.pos:]))) }

// place is the place of a field, −1 if it is not there.
func (t table) place(i int) int {
	if t.b == nil {
		return -1
	}
	p := t.places()
	if 4+2*i >= int(binary.LittleEndian.Uint16(t.b[p:])) {
		return -1
	}
	off := int(binary.LittleEndian.Uint16(t.b[p+4+2*i:]))
	if off == 0 {
		return -1
	}
	return t.pos + off
}

func (t table) uint8(i int) uint8 {
	if at := t.place(i); at >= 0 {
		return t.b[at]
	}
	return 0
}

func (t table) int16(i int) int16 {
	if at := t.place(i); at >= 0 {
		return int16(binary.LittleEndian.Uint16(t.b[at:]))
	}
	return 0
}

func (t table) int64(i int) int64 {
	if at := t.place(i); at >= 0 {
		return int64(binary.LittleEndian.Uint64(t.b[at:]))
	}
	return 0
}

func (t table) has(i int) bool { return t.place(i) >= 0 }

// table is the one that a field holds.
func (t table) table(i int) table {
	if at := t.place(i); at >= 0 {
		return table{t.b, at + int(binary.LittleEndian.Uint32(t.b[at:]))}
	}
	return table{}
}

// vector is the number of elements of a vector and the bytes from the first one on.
func (t table) vector(i int) (int, []byte) {
	at := t.place(i)
	if at < 0 {
		return 0, nil
	}
	at += int(binary.LittleEndian.Uint32(t.b[at:]))
	return int(binary.LittleEndian.Uint32(t.b[at:])), t.b[at+4:]
}

// tables are those of a vector.
func (t table) tables(i int) []table {
	n, first := t.vector(i)
	all := make([]table, n)
	for j := range all {
		all[j] = table{t.b, len(t.b) - len(first) + 4*j + int(binary.LittleEndian.Uint32(first[4*j:]))}
	}
	return all
}
