package interop

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// maxRow bounds a row of a dictionary: a key, and the pickle of an id.
const maxRow = 16 << 10

// dictTable is the table of a SQLite file in which the Python package sqlitedict keeps a dictionary.
const dictTable = "unnamed"

// sqliteFile reads the rows of a table of a SQLite file (sqlite.org/fileformat2.html), and no more than
// that. SQLite itself, for queries, is in the module vectors/formats.
type sqliteFile struct {
	r      io.ReaderAt
	page   int // bytes of a page
	usable int // of these
	pages  uint32
	seen   map[uint32]bool
}

// eachDictRow calls visit for the rows (key, value) of a dictionary in a file of size bytes.
func eachDictRow(r io.ReaderAt, size int64, visit func(key string, value []byte) error) error {
	var head [100]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) {
		if err != nil && err != io.EOF {
			return err
		}
		return fmt.Errorf("%w: %d bytes are no SQLite file", ErrBroken, size)
	}
	f := &sqliteFile{r: r, page: int(binary.BigEndian.Uint16(head[16:])), seen: map[uint32]bool{}}
	if f.page == 1 {
		f.page = 1 << 16
	}
	f.usable = f.page - int(head[20])
	switch encoding := binary.BigEndian.Uint32(head[56:]); {
	case string(head[:16]) != "SQLite format 3\x00":
		return fmt.Errorf("%w: it does not begin as a SQLite file does", ErrBroken)
	case f.page < 512 || f.page&(f.page-1) != 0 || f.usable < 480:
		return fmt.Errorf("%w: SQLite pages of %d bytes", ErrBroken, f.page)
	case size%int64(f.page) != 0 || size/int64(f.page) > math.MaxUint32:
		return fmt.Errorf("%w: %d bytes are no whole SQLite pages of %d", ErrBroken, size, f.page)
	case encoding > 1:
		return fmt.Errorf("%w: SQLite text in UTF-16", ErrUnsupported)
	}
	f.pages = uint32(size / int64(f.page))
	root := uint32(0)
	err := f.rows(1, 0, func(row []any) error {
		if len(row) < 4 || row[0] != "table" || row[1] != dictTable {
			return nil
		}
		n, _ := row[3].(int64)
		if n < 2 || n > int64(f.pages) {
			return fmt.Errorf("%w: the table %s begins at page %v of %d", ErrBroken, dictTable, row[3], f.pages)
		}
		root = uint32(n)
		return nil
	})
	if err != nil {
		return err
	}
	if root == 0 {
		return fmt.Errorf("%w: it has no table %s", ErrBroken, dictTable)
	}
	return f.rows(root, 0, func(row []any) error {
		if len(row) != 2 {
			return fmt.Errorf("%w: a row of %s has %d columns, not 2", ErrBroken, dictTable, len(row))
		}
		key, isKey := row[0].(string)
		value, isValue := row[1].([]byte)
		if n, integer := row[0].(int64); integer {
			key, isKey = fmt.Sprint(n), true
		}
		if !isKey || !isValue {
			return fmt.Errorf("%w: a row of %s is %T and %T, want text and bytes", ErrBroken, dictTable, row[0], row[1])
		}
		return visit(key, value)
	})
}

// readPage reads a page, each of them once: pages in a circle would never end.
func (f *sqliteFile) readPage(n uint32) ([]byte, error) {
	if n == 0 || n > f.pages || f.seen[n] {
		return nil, fmt.Errorf("%w: SQLite page %d of %d is not there, or in use twice", ErrBroken, n, f.pages)
	}
	f.seen[n] = true
	b := make([]byte, f.page)
	if _, err := f.r.ReadAt(b, int64(n-1)*int64(f.page)); err != nil {
		return nil, err
	}
	return b[:f.usable], nil
}

// maxDepth is more than the tree of any file has.
const maxDepth = 40

// rows walks the tree of a table.
func (f *sqliteFile) rows(n uint32, depth int, visit func([]any) error) error {
	page, err := f.readPage(n)
	if err != nil {
		return err
	}
	broken := func(what string) error { return fmt.Errorf("%w: SQLite page %d: %s", ErrBroken, n, what) }
	at := 0
	if n == 1 {
		at = 100
	}
	kind := page[at]
	header := map[byte]int{5: 12, 13: 8}[kind]
	cells := int(binary.BigEndian.Uint16(page[at+3:]))
	if header == 0 || depth > maxDepth || at+header+2*cells > len(page) {
		return broken("is no page of a table")
	}
	used := 0 // cells that lie in one another would make much of a small file
	for i := range cells {
		cell := int(binary.BigEndian.Uint16(page[at+header+2*i:]))
		if cell+4 > len(page) {
			return broken("a cell lies outside")
		}
		if kind == 5 {
			err = f.rows(binary.BigEndian.Uint32(page[cell:]), depth+1, visit)
		} else if row, fault := f.row(page, cell, &used); fault != nil {
			err = fmt.Errorf("SQLite page %d: %w", n, fault)
		} else {
			err = visit(row)
		}
		if err != nil {
			return err
		}
	}
	if kind == 5 {
		return f.rows(binary.BigEndian.Uint32(page[at+8:]), depth+1, visit)
	}
	return nil
}

// row reads the cell of a leaf, including its part on other pages.
func (f *sqliteFile) row(page []byte, at int, used *int) ([]any, error) {
	size, n := varint(page[at:])
	_, m := varint(page[at+n:]) // its number
	if n == 0 || m == 0 || size > maxRow {
		return nil, fmt.Errorf("%w: a row of %d bytes, at most %d are read", ErrBroken, size, maxRow)
	}
	at += n + m
	local := int(size)
	if most := f.usable - 35; local > most {
		least := (f.usable-12)*32/255 - 23
		if local = least + (int(size)-least)%(f.usable-4); local > most {
			local = least
		}
	}
	if *used += local; at+local > len(page) || *used > len(page) {
		return nil, fmt.Errorf("%w: a row lies outside its page, or in another", ErrBroken)
	}
	data := append(make([]byte, 0, size), page[at:at+local]...)
	if local < int(size) {
		if at+local+4 > len(page) {
			return nil, fmt.Errorf("%w: a row lies outside its page", ErrBroken)
		}
		for next := binary.BigEndian.Uint32(page[at+local:]); len(data) < int(size); {
			more, err := f.readPage(next)
			if err != nil {
				return nil, err
			}
			next = binary.BigEndian.Uint32(more)
			data = append(data, more[4:min(len(more), 4+int(size)-len(data))]...)
		}
	}
	return record(data)
}

// record returns the values of a row: integers, text and bytes, and nil for everything else.
func record(data []byte) ([]any, error) {
	end, n := varint(data)
	if n == 0 || end < uint64(n) || end > uint64(len(data)) {
		return nil, fmt.Errorf("%w: a row without a head", ErrBroken)
	}
	head, body := data[n:end], data[end:]
	var row []any
	for len(head) > 0 {
		kind, n := varint(head)
		if n == 0 {
			return nil, fmt.Errorf("%w: the head of a row is cut short", ErrBroken)
		}
		head = head[n:]
		size := uint64(0)
		switch {
		case kind <= 4:
			size = kind
		case kind == 5:
			size = 6
		case kind == 6 || kind == 7:
			size = 8
		case kind >= 12:
			size = (kind - 12) / 2
		}
		if size > uint64(len(body)) {
			return nil, fmt.Errorf("%w: a row is cut short", ErrBroken)
		}
		value := body[:size]
		body = body[size:]
		switch {
		case kind >= 12 && kind%2 == 0:
			row = append(row, value)
		case kind >= 12:
			row = append(row, string(value))
		case kind >= 1 && kind <= 6:
			v := int64(int8(value[0]))
			for _, b := range value[1:] {
				v = v<<8 | int64(b)
			}
			row = append(row, v)
		case kind == 8 || kind == 9:
			row = append(row, int64(kind-8))
		default:
			row = append(row, nil)
		}
	}
	return row, nil
}

// varint is a number of SQLite and how many bytes it takes; 0 where it is cut short.
func varint(b []byte) (v uint64, n int) {
	for i := range min(len(b), 9) {
		if i == 8 {
			return v<<8 | uint64(b[i]), 9
		}
		v = v<<7 | uint64(b[i]&0x7f)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
