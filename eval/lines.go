package eval

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
)

// maxLine is the longest line accepted.
const maxLine = 1 << 20

// load reads a regular file, which must not change meanwhile.
func load[T any](path string, read func(io.Reader, string) (T, error)) (v T, err error) {
	err = files.ReadRegular(path, func(r io.Reader) error {
		v, err = read(r, path)
		return err
	})
	return v, err
}

// lineReader gives the lines of a plain or compressed stream that are not blank.
type lineReader struct {
	*files.LineReader
	name string
}

func newLineReader(r io.Reader, name string) (*lineReader, error) {
	b, err := files.Unpack(r, name)
	if err != nil {
		return nil, &LineError{File: name, Line: 1, Err: err}
	}
	return &lineReader{files.NewLineReader(b, maxLine), name}, nil
}

// next returns the next line that is not blank, valid until the call after, or
// io.EOF. Any other error is a [LineError].
func (lr *lineReader) next() ([]byte, error) {
	for {
		line, _, err := lr.Next()
		switch {
		case err == io.EOF:
			return nil, err
		case errors.Is(err, files.ErrLongLine):
			return nil, lr.lineError(fmt.Errorf("%w: %w", ErrFormat, err))
		case err != nil:
			return nil, lr.lineError(err)
		case len(bytes.TrimFunc(line, isBlank)) > 0:
			return line, nil
		}
	}
}

func (lr *lineReader) lineError(err error) error {
	return &LineError{File: lr.name, Line: lr.Number, Err: err}
}

// isBlank is isspace of the C locale, which is what trec_eval splits at; ids may
// hold the other white space of Unicode.
func isBlank(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }

// table reads lines of columns. A header, when there is one, decides the number
// of columns, and a tab in it makes tabs the only separator, so that ids may hold
// blanks. Otherwise the first line decides: tabs separate if they make columns of it and
// white space does not, and white space if tabs do not; where both do, and not the same, it is an
// error. Cells are literal ([files.Cells]).
type table struct {
	*lineReader
	layouts      string // for messages: what numbers of columns are known
	columnCounts []int
	byTabs       bool
	count        int
	headers      []header
	unreadLine   []byte // a first line that is not a header, until it is read
	cols         [][]byte
}

// header lists, for each column, the names that mark a header, in lower case.
type header [][]string

func newTable(r io.Reader, name string, heads []header, layouts string, known ...int) (*table, error) {
	lr, err := newLineReader(r, name)
	if err != nil {
		return nil, err
	}
	t := &table{lineReader: lr, headers: heads, layouts: layouts, columnCounts: known}
	line, err := lr.next()
	if err == io.EOF {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	for _, head := range heads {
		if head.matches(line) {
			t.count = len(head)
			t.byTabs = bytes.ContainsRune(line, '\t')
			return t, nil
		}
	}
	t.unreadLine = bytes.Clone(line)
	return t, nil
}

// example are the names that a header has by custom.
func (h header) example() string {
	var names []string
	for _, column := range h {
		names = append(names, column[0])
	}
	return strings.Join(names, ", ")
}

func (h header) matches(line []byte) bool {
	cells := bytes.FieldsFunc(line, isBlank)
	if len(cells) != len(h) {
		return false
	}
	for i, cell := range cells {
		known := false
		for _, name := range h[i] {
			known = known || strings.EqualFold(string(cell), name)
		}
		if !known {
			return false
		}
	}
	return true
}

// nextRow returns the columns of the next line, valid until the call after, or io.EOF.
func (t *table) nextRow() ([][]byte, error) {
	line := t.unreadLine
	t.unreadLine = nil
	if line == nil {
		var err error
		if line, err = t.next(); err != nil {
			return nil, err
		}
	}
	if t.count == 0 {
		byTabs, byBlanks := t.split(line, true), t.split(line, false)
		switch tabsFit, blanksFit := slices.Contains(t.columnCounts, byTabs), slices.Contains(t.columnCounts, byBlanks); {
		case tabsFit && blanksFit && byTabs != byBlanks:
			return nil, t.lineError(malformed("%d columns if tabs part them, and %d if white space does: which is meant? "+
				"A first line with their names, parted by tabs, says that tabs do (%s)",
				byTabs, byBlanks, t.headers[0].example()))
		case blanksFit:
			t.count = byBlanks
		case tabsFit:
			t.count, t.byTabs = byTabs, true
		default:
			return nil, t.lineError(malformed("%d columns: want %s", byBlanks, t.layouts))
		}
	}
	t.split(line, t.byTabs)
	if len(t.cols) != t.count {
		return nil, t.lineError(malformed("%d columns, the lines before have %d", len(t.cols), t.count))
	}
	return t.cols, nil
}

// split makes columns of a line, and returns how many they are.
func (t *table) split(line []byte, tabs bool) int {
	t.cols = t.cols[:0]
	if !tabs {
		t.cols = slices.AppendSeq(t.cols, bytes.FieldsFuncSeq(line, isBlank))
		return len(t.cols)
	}
	t.cols = files.Cells(t.cols, line)
	for i, cell := range t.cols {
		t.cols[i] = bytes.TrimFunc(cell, isBlank)
	}
	return len(t.cols)
}
