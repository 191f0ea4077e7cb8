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

// lineReader reads the non-blank lines of a plain or compressed stream.
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

// next returns the next non-blank line, which is valid until the next call, or io.EOF. Any other
// error is a [LineError].
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

// lineError adds the file and the line to an error.
func (lr *lineReader) lineError(err error) error {
	return &LineError{File: lr.name, Line: lr.Number, Err: err}
}

// isBlank is isspace of the C locale, which trec_eval splits at. Ids may contain other white space
// of Unicode.
func isBlank(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }

// table reads lines of columns. Separators and the number of columns are determined once:
//
//  1. A header, if there is one, determines the number of columns. If it has a tab, only tabs
//     separate columns, so that ids may contain blanks.
//  2. Otherwise the first line determines them: tabs separate if they yield a known number of
//     columns and white space does not, white space if tabs do not. It is an error if both do, and
//     the numbers differ.
//
// Cells are literal ([files.SplitCells]).
type table struct {
	*lineReader
	layouts      string // the known numbers of columns, for messages
	columnCounts []int
	byTabs       bool
	count        int // columns of a line. It is 0 until it is known
	headers      []header
	unreadLine   []byte   // a first line that is not a header, until it is read
	cols         [][]byte // of the current line
}

// header lists, for each column, the names that mark a header, in lower case.
type header [][]string

// newTable reads the header, if it is one of heads. Without a header, columnCounts are the possible numbers
// of columns, and layouts describes them in messages.
func newTable(r io.Reader, name string, heads []header, layouts string, columnCounts ...int) (*table, error) {
	lr, err := newLineReader(r, name)
	if err != nil {
		return nil, err
	}
	t := &table{lineReader: lr, headers: heads, layouts: layouts, columnCounts: columnCounts}
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

// example returns the usual names of the columns.
func (h header) example() string {
	var names []string
	for _, column := range h {
		names = append(names, column[0])
	}
	return strings.Join(names, ", ")
}

// matches reports whether a line is this header.
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

// nextRow returns the columns of the next line, which are valid until the next call, or io.EOF.
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
		tabsFit, blanksFit := slices.Contains(t.columnCounts, byTabs), slices.Contains(t.columnCounts, byBlanks)
		switch {
		case tabsFit && blanksFit && byTabs != byBlanks:
			return nil, t.lineError(malformed(
				"%d columns if tabs part them, and %d if white space does: which is meant? "+
					"A first line with their names, parted by tabs, says that tabs do (%s)",
				byTabs, byBlanks, t.headers[0].example())) // the first header has all columns
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

// split splits a line into t.cols, and returns their number.
func (t *table) split(line []byte, tabs bool) int {
	t.cols = t.cols[:0]
	if !tabs {
		t.cols = slices.AppendSeq(t.cols, bytes.FieldsFuncSeq(line, isBlank))
		return len(t.cols)
	}
	t.cols = files.SplitCells(t.cols, line)
	for i, cell := range t.cols {
		t.cols[i] = bytes.TrimFunc(cell, isBlank)
	}
	return len(t.cols)
}
