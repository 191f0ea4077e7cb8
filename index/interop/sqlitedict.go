package interop

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// maxRow limits the bytes of a row of a dictionary: a key, and the pickle of an id.
const maxRow = 16 << 10

// dictTable is the table of a SQLite file in which the Python package sqlitedict stores a
// dictionary.
const dictTable = "unnamed"

// sqliteFile reads all rows of a table of a SQLite file (sqlite.org/fileformat2.html); it supports
// nothing else. The module vectors/formats has SQLite itself.
type sqliteFile struct {
	r          io.ReaderAt
	pageSize   int // bytes
	usableSize int // bytes of a page that hold content
	pageCount  uint32
	seen       map[uint32]bool
}

// visitSQLiteDict calls visit for the rows (key, value) of a dictionary in a file of size bytes.
func visitSQLiteDict(r io.ReaderAt, size int64, visit func(key string, value []byte) error) error {
	// Read the header of the file. It has the page size at offset 16, the number of reserved bytes of
	// a page at 20, and the text encoding at 56.
	var head [fileHeaderSize]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) {
		if err != nil && err != io.EOF {
			return err
		}
		return fmt.Errorf("%w: %d bytes are too short for a SQLite file", ErrBroken, size)
	}
	f := &sqliteFile{r: r, pageSize: int(binary.BigEndian.Uint16(head[16:])), seen: map[uint32]bool{}}
	if f.pageSize == 1 { // which stands for 65,536
		f.pageSize = 1 << 16
	}
	f.usableSize = f.pageSize - int(head[20])
	switch encoding := binary.BigEndian.Uint32(head[56:]); {
	case string(head[:16]) != "SQLite format 3\x00":
		return fmt.Errorf("%w: it does not begin as a SQLite file does", ErrBroken)
	case f.pageSize < 512 || f.pageSize&(f.pageSize-1) != 0 || f.usableSize < 480:
		return fmt.Errorf("%w: SQLite pages of %d bytes", ErrBroken, f.pageSize)
	case size%int64(f.pageSize) != 0 || size/int64(f.pageSize) > math.MaxUint32:
		return fmt.Errorf("%w: %d bytes are not a multiple of the SQLite page size %d", ErrBroken, size, f.pageSize)
	case encoding > 1:
		return fmt.Errorf("%w: SQLite text in UTF-16", ErrUnsupported)
	}
	f.pageCount = uint32(size / int64(f.pageSize))
	// Find the table in the schema, whose root is page 1, and visit its rows.
	root := uint32(0)
	err := f.visitRows(1, 0, func(row []any) error {
		if len(row) < 4 || row[0] != "table" || row[1] != dictTable {
			return nil
		}
		n, _ := row[3].(int64)
		if n < 2 || n > int64(f.pageCount) {
			return fmt.Errorf("%w: the table %s begins at page %v of %d", ErrBroken, dictTable, row[3], f.pageCount)
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
	return f.visitRows(root, 0, func(row []any) error {
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

// readPage reads a page, each only once: a cycle of pages would never end.
func (f *sqliteFile) readPage(n uint32) ([]byte, error) {
	if n == 0 || n > f.pageCount || f.seen[n] {
		return nil, fmt.Errorf("%w: SQLite page %d of %d does not exist, or is used twice", ErrBroken, n, f.pageCount)
	}
	f.seen[n] = true
	b := make([]byte, f.pageSize)
	if _, err := f.r.ReadAt(b, int64(n-1)*int64(f.pageSize)); err != nil {
		return nil, err
	}
	return b[:f.usableSize], nil
}

// maxDepth exceeds the depth of the tree in any file.
const maxDepth = 40

// The kinds of pages in the tree of a table, with the sizes of their headers. The first page begins
// with the header of the file.
const (
	innerPage       = 5
	leafPage        = 13
	innerHeaderSize = 12
	leafHeaderSize  = 8
	fileHeaderSize  = 100
)

// visitRows calls visit with the rows in the subtree of page n.
func (f *sqliteFile) visitRows(n uint32, depth int, visit func([]any) error) error {
	page, err := f.readPage(n)
	if err != nil {
		return err
	}
	broken := func(what string) error { return fmt.Errorf("%w: SQLite page %d: %s", ErrBroken, n, what) }
	offset := 0
	if n == 1 {
		offset = fileHeaderSize
	}
	kind := page[offset]
	header := map[byte]int{innerPage: innerHeaderSize, leafPage: leafHeaderSize}[kind]
	// The header has the number of cells at offset 3 and, of an inner page, the last child at 8; the
	// offsets of the cells follow it. A cell of an inner page begins with the number of a child.
	cells := int(binary.BigEndian.Uint16(page[offset+3:]))
	if header == 0 || depth > maxDepth || offset+header+2*cells > len(page) {
		return broken("is not a page of a table")
	}
	usedBytes := 0 // of cells; overlapping cells could make much data of a small file
	for i := range cells {
		cell := int(binary.BigEndian.Uint16(page[offset+header+2*i:]))
		if cell+4 > len(page) {
			return broken("a cell is outside of the page")
		}
		if kind == innerPage {
			err = f.visitRows(binary.BigEndian.Uint32(page[cell:]), depth+1, visit)
		} else if row, rowErr := f.readRow(page, cell, &usedBytes); rowErr != nil {
			err = fmt.Errorf("SQLite page %d: %w", n, rowErr)
		} else {
			err = visit(row)
		}
		if err != nil {
			return err
		}
	}
	if kind == innerPage {
		return f.visitRows(binary.BigEndian.Uint32(page[offset+8:]), depth+1, visit)
	}
	return nil
}

// readRow reads the row of a leaf cell, including its part on overflow pages.
func (f *sqliteFile) readRow(page []byte, offset int, usedBytes *int) ([]any, error) {
	size, n := parseVarint(page[offset:])
	_, m := parseVarint(page[offset+n:]) // the row id
	if n == 0 || m == 0 || size > maxRow {
		return nil, fmt.Errorf("%w: a row of %d bytes, at most %d are read", ErrBroken, size, maxRow)
	}
	offset += n + m
	// Compute the bytes of the row in this page. The file format defines X = U-35,
	// M = (U-12)·32/255-23 and K = M+(P-M) mod (U-4) for a row of P bytes and U usable bytes: the page
	// has P bytes if P ≤ X, else K if K ≤ X, else M.
	local := int(size)
	if maxLocal := f.usableSize - 35; local > maxLocal {
		minLocal := (f.usableSize-12)*32/255 - 23
		if local = minLocal + (int(size)-minLocal)%(f.usableSize-4); local > maxLocal {
			local = minLocal
		}
	}
	if *usedBytes += local; offset+local > len(page) || *usedBytes > len(page) {
		return nil, fmt.Errorf("%w: a row is outside of its page, or overlaps another", ErrBroken)
	}
	data := append(make([]byte, 0, size), page[offset:offset+local]...)
	if local < int(size) {
		if offset+local+4 > len(page) {
			return nil, fmt.Errorf("%w: a row is outside of its page", ErrBroken)
		}
		// An overflow page begins with the number of the next one.
		for next := binary.BigEndian.Uint32(page[offset+local:]); len(data) < int(size); {
			overflow, err := f.readPage(next)
			if err != nil {
				return nil, err
			}
			next = binary.BigEndian.Uint32(overflow)
			data = append(data, overflow[4:min(len(overflow), 4+int(size)-len(data))]...)
		}
	}
	return parseRecord(data)
}

// parseRecord returns the values of a row: integers, texts and bytes, and nil for all other types.
// The header has a type for each value: 1 to 6 are integers of 1, 2, 3, 4, 6 and 8 bytes, 7 is a
// float, 8 and 9 are the integers 0 and 1 without bytes, and from 12 on even types are bytes and odd
// types texts, of (type-12)/2 bytes.
func parseRecord(data []byte) ([]any, error) {
	end, n := parseVarint(data)
	if n == 0 || end < uint64(n) || end > uint64(len(data)) {
		return nil, fmt.Errorf("%w: a row without a header", ErrBroken)
	}
	head, body := data[n:end], data[end:]
	var row []any
	for len(head) > 0 {
		kind, n := parseVarint(head)
		if n == 0 {
			return nil, fmt.Errorf("%w: the header of a row is truncated", ErrBroken)
		}
		head = head[n:]
		// Cut the value out of the body.
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
			return nil, fmt.Errorf("%w: a row is truncated", ErrBroken)
		}
		value := body[:size]
		body = body[size:]
		// Decode the value.
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

// parseVarint returns a number of SQLite and its size in bytes; size 0 means that it is truncated.
func parseVarint(b []byte) (v uint64, n int) {
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
