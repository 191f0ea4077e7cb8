package formats

import (
	"encoding/binary"
	"fmt"

	"github.com/plaid-ir/plaid/vectors"
)

// Arrow describes its data by flatbuffers (flatbuffers.dev, "FlatBuffers Internals"): tables that point
// to each other by offsets. The library follows offsets, and allocates the number of elements that a
// vector claims, without checking them. verify checks them before.

// maxTables is the maximum depth of nested tables: 64 levels of fields, as in the library, and the tables
// around and within them.
const maxTables = 68

// slot is the type of a field of a table. It is one of
//
//   - a number of size bytes;
//   - a vector of numbers or structures of size bytes;
//   - a table, or a vector of tables;
//   - a union: one of several kinds of tables. The field before it has the number of the kind.
type slot struct {
	size   int
	vector bool
	table  *layout
	union  []*layout
}

// layout is the fields of a kind of table in Arrow's Schema.fbs, Message.fbs or File.fbs.
type layout []slot

var (
	int8s, int16s, int32s, int64s = slot{size: 1}, slot{size: 2}, slot{size: 4}, slot{size: 8}
	text                          = slot{size: 1, vector: true}

	pairs      = slot{vector: true, table: &layout{text, text}}
	number     = &layout{int32s, int8s} // bit width, is signed
	noFields   = &layout{}
	fieldTypes = []*layout{
		// null, int, float, binary, text, bool
		1: noFields, 2: number, 3: {int16s}, 4: noFields, 5: noFields, 6: noFields,
		// decimal, date, time, timestamp
		7: {int32s, int32s, int32s}, 8: {int16s}, 9: {int16s, int32s}, 10: {int16s, text},
		// interval, list, struct, union
		11: {int16s}, 12: noFields, 13: noFields, 14: {int16s, {size: 4, vector: true}},
		// fixed size: binary, list; map, duration
		15: {int32s}, 16: {int32s}, 17: {int8s}, 18: {int16s},
		// large: binary, text, list; run ends
		19: noFields, 20: noFields, 21: noFields, 22: noFields,
		// views: binary, text, list, large list
		23: noFields, 24: noFields, 25: noFields, 26: noFields,
	}
	// name, nullable, type, dictionary (id, type of the indices, ordered, kind), children
	fieldLayout = &layout{
		text, int8s, int8s, {union: fieldTypes}, {table: &layout{int64s, {table: number}, int8s, int16s}}, {}, pairs,
	}
	// endianness, fields, metadata, features
	schemaLayout = &layout{int16s, {vector: true, table: fieldLayout}, pairs, {size: 8, vector: true}}
	// rows, nodes, buffers, compression (codec, method), counts of variadic buffers
	batchLayout = &layout{
		int64s,
		{size: 16, vector: true},
		{size: 16, vector: true},
		{table: &layout{int8s, int8s}},
		{size: 8, vector: true},
	}
	// id, data, is a delta
	dictionaryLayout = &layout{int64s, {table: batchLayout}, int8s}
	// version, kind of header, header, length of the body, metadata
	messageLayout = &layout{int16s, int8s, {union: []*layout{
		headerSchema:     schemaLayout,
		headerDictionary: dictionaryLayout,
		headerBatch:      batchLayout,
	}}, int64s, pairs}
	// version, schema, blocks of dictionaries, blocks of record batches, metadata
	footerLayout = &layout{int16s, {table: schemaLayout}, {size: 24, vector: true}, {size: 24, vector: true}, pairs}
)

// Kinds of messages.
const (
	headerSchema     = 1
	headerDictionary = 2
	headerBatch      = 3
)

// The children of a field are fields. A composite literal cannot refer to itself.
func init() { (*fieldLayout)[5] = slot{vector: true, table: fieldLayout} }

// damaged returns [vectors.ErrFormat] for the metadata of a file.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: damaged metadata: %s", vectors.ErrFormat, fmt.Sprintf(format, args...))
}

// verifier checks the metadata of a message.
type verifier struct {
	b         []byte
	remaining int // bytes that may still be visited: many offsets may lead to one table, which is visited each time
}

// verify returns the root table of b, after checking all offsets and lengths in it.
func verify(b []byte, l *layout) (table, error) {
	const visits = 8 // of each byte, on average
	v := &verifier{b: b, remaining: visits*len(b) + 64}
	root, err := v.follow(0)
	if err == nil {
		err = v.checkTable(root, l, 0)
	}
	return table{b, root}, err
}

// visitBytes checks that n bytes exist at a position, and that not too many have been visited.
func (v *verifier) visitBytes(pos, n int) error {
	if pos < 0 || n < 0 || pos > len(v.b) || n > len(v.b)-pos {
		return damaged("%d bytes at %d of %d", n, pos, len(v.b))
	}
	if v.remaining -= n; v.remaining < 0 {
		return damaged("tables that are pointed to again and again")
	}
	return nil
}

// follow returns the position to which the offset at pos leads.
func (v *verifier) follow(pos int) (int, error) {
	if err := v.visitBytes(pos, 4); err != nil {
		return 0, err
	}
	return pos + int(binary.LittleEndian.Uint32(v.b[pos:])), nil
}

// checkTable checks the table at a position.
func (v *verifier) checkTable(pos int, l *layout, depth int) error {
	if depth > maxTables {
		return damaged("fields within fields, more than 64 times")
	}
	if err := v.visitBytes(pos, 4); err != nil {
		return err
	}
	t := table{v.b, pos}
	vtable := t.vtablePos()
	if err := v.visitBytes(vtable, 4); err != nil {
		return err
	}
	// The size of the table, which follows this length, cannot be checked: writers in Go let tables of
	// different sizes share a vtable.
	length := int(binary.LittleEndian.Uint16(v.b[vtable:]))
	if length < 4 || length%2 != 0 {
		return damaged("a table of places of %d bytes", length)
	}
	if err := v.visitBytes(vtable, length); err != nil {
		return err
	}
	for i, s := range *l {
		if err := v.checkSlot(t, i, s, depth); err != nil {
			return err
		}
	}
	return nil
}

// checkSlot checks field i of a table.
func (v *verifier) checkSlot(t table, i int, s slot, depth int) error {
	pos := t.fieldPos(i)
	if pos < 0 {
		return nil
	}
	// A number.
	if s.size > 0 && !s.vector {
		return v.visitBytes(pos, s.size)
	}
	// A table.
	if err := v.visitBytes(pos, 4); err != nil {
		return err
	}
	target, err := v.follow(pos)
	if err != nil {
		return err
	}
	if !s.vector {
		if s.union != nil {
			kind := int(t.uint8Field(i - 1))
			if kind >= len(s.union) || s.union[kind] == nil {
				return damaged("a table of the unknown kind %d", kind)
			}
			s.table = s.union[kind]
		}
		return v.checkTable(target, s.table, depth+1)
	}
	// A vector: its length, and then elements or offsets of tables.
	if err := v.visitBytes(target, 4); err != nil {
		return err
	}
	width := s.size
	if s.table != nil {
		width = 4
	}
	n := int(binary.LittleEndian.Uint32(v.b[target:]))
	if n < 0 || n > (len(v.b)-target-4)/width {
		return damaged("a vector of %d elements of %d bytes in %d bytes", n, width, len(v.b)-target-4)
	}
	if s.table == nil {
		return v.visitBytes(target+4, n*width)
	}
	for j := range n {
		element, err := v.follow(target + 4 + 4*j)
		if err == nil {
			err = v.checkTable(element, s.table, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// table is a verified table. A missing field is zero, or empty.
type table struct {
	b   []byte
	pos int
}

// vtablePos returns the position of the vtable, which has the offsets of the fields.
func (t table) vtablePos() int { return t.pos - int(int32(binary.LittleEndian.Uint32(t.b[t.pos:]))) }

// fieldPos returns the position of field i, or −1 if it is missing.
func (t table) fieldPos(i int) int {
	if t.b == nil {
		return -1
	}
	p := t.vtablePos()
	if 4+2*i >= int(binary.LittleEndian.Uint16(t.b[p:])) {
		return -1
	}
	off := int(binary.LittleEndian.Uint16(t.b[p+4+2*i:]))
	if off == 0 {
		return -1
	}
	return t.pos + off
}

// uint8Field returns the number in field i.
func (t table) uint8Field(i int) uint8 {
	if pos := t.fieldPos(i); pos >= 0 {
		return t.b[pos]
	}
	return 0
}

// int16Field returns the number in field i.
func (t table) int16Field(i int) int16 {
	if pos := t.fieldPos(i); pos >= 0 {
		return int16(binary.LittleEndian.Uint16(t.b[pos:]))
	}
	return 0
}

// int64Field returns the number in field i.
func (t table) int64Field(i int) int64 {
	if pos := t.fieldPos(i); pos >= 0 {
		return int64(binary.LittleEndian.Uint64(t.b[pos:]))
	}
	return 0
}

// hasField reports whether the table has field i.
func (t table) hasField(i int) bool { return t.fieldPos(i) >= 0 }

// tableField returns the table in field i.
func (t table) tableField(i int) table {
	if pos := t.fieldPos(i); pos >= 0 {
		return table{t.b, pos + int(binary.LittleEndian.Uint32(t.b[pos:]))}
	}
	return table{}
}

// vector returns the number of elements of the vector in field i, and the bytes from the first one on.
func (t table) vector(i int) (n int, elements []byte) {
	pos := t.fieldPos(i)
	if pos < 0 {
		return 0, nil
	}
	pos += int(binary.LittleEndian.Uint32(t.b[pos:]))
	return int(binary.LittleEndian.Uint32(t.b[pos:])), t.b[pos+4:]
}

// tables returns the tables of the vector in field i.
func (t table) tables(i int) []table {
	n, offsets := t.vector(i)
	tables := make([]table, n)
	for j := range tables {
		pos := len(t.b) - len(offsets) + 4*j // of the offset of table j
		tables[j] = table{t.b, pos + int(binary.LittleEndian.Uint32(offsets[4*j:]))}
	}
	return tables
}
