package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"
)

// database reads tables of a SQLite file, as https://www.sqlite.org/fileformat2.html has
// them. It believes nothing that it reads.
type database struct {
	name   string
	r      io.ReaderAt
	page   int    // bytes a page
	usable int    // bytes of it that are used
	pages  uint32 // in the file
	cache  [64]struct {
		number uint32
		data   []byte
	}
}

// table is a table with rowids.
type table struct {
	root    uint32
	columns []column
	rowid   int // the column that is the rowid; −1: none is
}

type column struct {
	name string
	blob bool // declared so
}

const (
	sqliteMagic = "SQLite format 3\x00"
	sqliteHead  = 100
	sqliteLeaf  = 13
	sqliteInner = 5
	// maxDepth bounds the pages from a root to a leaf; 2³² pages have far fewer.
	maxDepth = 40
	// maxRow bounds a row that is read whole.
	maxRow = 64 << 20
)

func (d *database) broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", ErrBroken, d.name, fmt.Errorf(format, args...))
}

// openDatabase reads the header of a file.
func openDatabase(name string, r io.ReaderAt, size int64) (*database, error) {
	d := &database{name: name, r: r}
	var head [sqliteHead]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) || string(head[:16]) != sqliteMagic {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, d.broken("is no SQLite file")
	}
	d.page = int(binary.BigEndian.Uint16(head[16:]))
	if d.page == 1 {
		d.page = 1 << 16
	}
	d.usable = d.page - int(head[20])
	switch {
	case d.page < 512 || d.page&(d.page-1) != 0 || d.usable < 480:
		return nil, d.broken("has pages of %d bytes, %d of them used", d.page, d.usable)
	case size/int64(d.page) > math.MaxUint32-1:
		return nil, d.broken("has %d bytes", size)
	}
	if encoding := binary.BigEndian.Uint32(head[56:]); encoding > 1 { // 0: nothing is stored yet
		return nil, fmt.Errorf("%w: %s: text is not UTF-8 (encoding %d)", ErrUnsupported, name, encoding)
	}
	d.pages = uint32(size / int64(d.page))
	return d, nil
}

// size is that of the file, in whole pages.
func (d *database) size() int64 { return int64(d.pages) * int64(d.page) }

// read is a page, and where its b-tree begins; pages are numbered from 1.
func (d *database) read(number uint32) (data []byte, begin int, err error) {
	if number == 1 {
		begin = sqliteHead
	}
	if number < 1 || number > d.pages {
		return nil, 0, d.broken("page %d of %d", number, d.pages)
	}
	c := &d.cache[number%uint32(len(d.cache))]
	if c.number != number {
		data := make([]byte, d.page)
		if _, err := d.r.ReadAt(data, int64(number-1)*int64(d.page)); err != nil {
			return nil, 0, err
		}
		c.number, c.data = number, data
	}
	return c.data, begin, nil
}

// node is a page of the b-tree of a table.
type node struct {
	d     *database
	data  []byte
	begin int
	leaf  bool
	cells int
}

func (d *database) node(number uint32) (*node, error) {
	data, begin, err := d.read(number)
	if err != nil {
		return nil, err
	}
	n := &node{d: d, data: data, begin: begin, leaf: data[begin] == sqliteLeaf, cells: int(binary.BigEndian.Uint16(data[begin+3:]))}
	if !n.leaf && data[begin] != sqliteInner {
		return nil, d.broken("page %d is no page of a table", number)
	}
	if n.pointers()+2*n.cells > d.usable {
		return nil, d.broken("page %d has %d cells", number, n.cells)
	}
	return n, nil
}

func (n *node) pointers() int {
	if n.leaf {
		return n.begin + 8
	}
	return n.begin + 12
}

// cell is the part of the page that a cell begins at; it ends behind the cell.
func (n *node) cell(i int) ([]byte, error) {
	at := int(binary.BigEndian.Uint16(n.data[n.pointers()+2*i:]))
	if at < n.pointers()+2*n.cells || at >= n.d.usable {
		return nil, n.d.broken("cell %d begins at byte %d", i, at)
	}
	return n.data[at:n.d.usable], nil
}

// child is that of an inner cell with its key, the largest rowid below it; that of the cell
// behind the last is for all others.
func (n *node) child(i int) (page uint32, key int64, err error) {
	if i == n.cells {
		return binary.BigEndian.Uint32(n.data[n.begin+8:]), math.MaxInt64, nil
	}
	c, err := n.cell(i)
	if err != nil {
		return 0, 0, err
	}
	if len(c) < 5 {
		return 0, 0, n.d.broken("cell %d is cut short", i)
	}
	key, size := sqliteVarint(c[4:])
	if size == 0 {
		return 0, 0, n.d.broken("cell %d is cut short", i)
	}
	return binary.BigEndian.Uint32(c), key, nil
}

// row is a cell of a leaf, with the part of its record that is in the page.
type row struct {
	d      *database
	id     int64 // the rowid
	length int64 // of the record
	local  []byte
}

func (n *node) row(i int) (row, error) {
	c, err := n.cell(i)
	if err != nil {
		return row{}, err
	}
	length, a := sqliteVarint(c)
	id, b := sqliteVarint(c[a:])
	if a == 0 || b == 0 {
		return row{}, n.d.broken("cell %d is cut short", i)
	}
	if length < 0 || length > min(maxRow, n.d.size()) {
		return row{}, n.d.broken("row %d has %d bytes", id, length)
	}
	return row{n.d, id, length, c[a+b:]}, nil
}

// record is that of the row, with what overflows its page.
func (r row) record() ([]byte, error) {
	d, length := r.d, int(r.length)
	here, most := length, d.usable-35
	if here > most {
		least := (d.usable-12)*32/255 - 23
		if here = least + (length-least)%(d.usable-4); here > most {
			here = least
		}
	}
	if here > len(r.local) || here < length && here+4 > len(r.local) {
		return nil, d.broken("row %d leaves its page", r.id)
	}
	if here == length {
		return r.local[:here], nil
	}
	out := append(make([]byte, 0, length), r.local[:here]...)
	for next := binary.BigEndian.Uint32(r.local[here:]); len(out) < length; {
		data, _, err := d.read(next)
		if err != nil {
			return nil, err
		}
		out = append(out, data[4:min(d.usable, 4+length-len(out))]...)
		next = binary.BigEndian.Uint32(data)
	}
	return out, nil
}

// place is where a row is; the page 0: nowhere.
type place struct {
	page uint32
	cell uint16
}

// scan calls use for the rows of a table, in the order of their rowids.
func (d *database) scan(ctx context.Context, root uint32, use func(at place, r row) error) error {
	// Nodes are pages of their own, and rows share no bytes: a file that looks as if they did
	// is refused.
	pages, left := d.pages, d.size()
	var walk func(number uint32, depth int) error
	walk = func(number uint32, depth int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := d.node(number)
		if err != nil {
			return err
		}
		if depth > maxDepth || pages == 0 {
			return d.broken("page %d is in a circle", number)
		}
		pages--
		if !n.leaf {
			for i := range n.cells + 1 {
				page, _, err := n.child(i)
				if err == nil {
					err = walk(page, depth+1)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		for i := range n.cells {
			r, err := n.row(i)
			if err != nil {
				return err
			}
			if left -= r.length; left < 0 {
				return d.broken("rows have more bytes than the file")
			}
			if err := use(place{number, uint16(i)}, r); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(root, 0)
}

// find is the row of a rowid; ok says whether there is one.
func (d *database) find(root uint32, rowid int64) (found row, ok bool, err error) {
	for range maxDepth {
		n, err := d.node(root)
		if err != nil {
			return row{}, false, err
		}
		i := sort.Search(n.cells, func(i int) bool {
			var key int64
			var cerr error
			if n.leaf {
				found, cerr = n.row(i)
				key = found.id
			} else {
				_, key, cerr = n.child(i)
			}
			err = errors.Join(err, cerr)
			return cerr == nil && key >= rowid
		})
		switch {
		case err != nil:
			return row{}, false, err
		case !n.leaf:
			if root, _, err = n.child(i); err != nil {
				return row{}, false, err
			}
		case i == n.cells:
			return row{}, false, nil
		default:
			found, err = n.row(i)
			return found, found.id == rowid, err
		}
	}
	return row{}, false, d.broken("page %d is in a circle", root)
}

// table finds a table by its name; nil if there is none.
func (d *database) table(ctx context.Context, name string) (found *table, err error) {
	if d.pages == 0 {
		return nil, nil
	}
	err = d.scan(ctx, 1, func(_ place, r row) error {
		v, err := r.values() // type, name, tbl_name, rootpage, sql
		if err != nil || len(v) < 5 || v[0].text() != "table" || !strings.EqualFold(v[1].text(), name) {
			return err
		}
		if root := v[3].integer; v[3].kind != sqliteInteger || root < 2 || root > int64(d.pages) {
			return d.broken("table %s begins at page %d", name, root)
		}
		found = &table{root: uint32(v[3].integer)}
		found.columns, found.rowid, err = sqliteColumns(v[4].text())
		if err != nil {
			return d.broken("table %s: %w", name, err)
		}
		return nil
	})
	return found, err
}

type sqliteKind int

const (
	sqliteNull sqliteKind = iota
	sqliteInteger
	sqliteFloat
	sqliteText
	sqliteBlob
)

// value is one of a row.
type value struct {
	kind    sqliteKind
	integer int64
	float   float64
	bytes   []byte
}

func (v value) text() string {
	if v.kind != sqliteText {
		return ""
	}
	return string(v.bytes)
}

// values are those of the row. One that is older than the last columns has fewer.
func (r row) values() (all []value, err error) {
	record, err := r.record()
	if err != nil {
		return nil, err
	}
	short := func() ([]value, error) { return nil, r.d.broken("row %d is cut short", r.id) }
	head, n := sqliteVarint(record)
	if n == 0 || head < int64(n) || head > int64(len(record)) {
		return short()
	}
	types, body := record[n:head], record[head:]
	for len(types) > 0 {
		kind, n := sqliteVarint(types)
		if n == 0 || kind < 0 {
			return short()
		}
		types = types[n:]
		size, v := int64(0), value{kind: sqliteInteger}
		switch {
		case kind == 0:
			v.kind = sqliteNull
		case kind <= 4:
			size = kind
		case kind == 5:
			size = 6
		case kind == 6:
			size = 8
		case kind == 7:
			size, v.kind = 8, sqliteFloat
		case kind == 8, kind == 9:
			v.integer = kind - 8
		case kind >= 12 && kind%2 == 0:
			size, v.kind = (kind-12)/2, sqliteBlob
		case kind >= 13:
			size, v.kind = (kind-13)/2, sqliteText
		default:
			return nil, r.d.broken("row %d has a value of type %d", r.id, kind)
		}
		if size > int64(len(body)) {
			return short()
		}
		v.bytes, body = body[:size], body[size:]
		switch {
		case v.kind == sqliteFloat:
			v.float = math.Float64frombits(binary.BigEndian.Uint64(v.bytes))
		case v.kind == sqliteInteger && size > 0:
			v.integer = int64(int8(v.bytes[0]))
			for _, b := range v.bytes[1:] {
				v.integer = v.integer<<8 | int64(b)
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// sqliteVarint reads a number of 1 to 9 bytes; n is 0 if it is cut short.
func sqliteVarint(b []byte) (v int64, n int) {
	for i, c := range b {
		if i == 8 {
			return v<<8 | int64(c), 9
		}
		if v = v<<7 | int64(c&0x7f); c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
