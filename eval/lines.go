package eval

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
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

// lineReader gives the lines of a plain or gzip stream that are not blank.
type lineReader struct {
	*files.LineReader
	name string
}

func newLineReader(r io.Reader, name string) (*lineReader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	r = b
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		if r, err = gzip.NewReader(b); err != nil {
			return nil, &LineError{File: name, Line: 1, Err: err}
		}
	}
	return &lineReader{files.NewLineReader(r, maxLine), name}, nil
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
			return nil, lr.fail(fmt.Errorf("%w: %w", ErrFormat, err))
		case err != nil:
			return nil, lr.fail(err)
		case len(bytes.TrimFunc(line, isBlank)) > 0:
			return line, nil
		}
	}
}

func (lr *lineReader) fail(err error) error {
	return &LineError{File: lr.name, Line: lr.Number, Err: err}
}

// isBlank is isspace of the C locale, which is what trec_eval splits at; ids may
// hold the other white space of Unicode.
func isBlank(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' }

// table reads lines of columns. A header, when there is one, decides the number
// of columns, and a tab in it makes tabs the only separator, so that ids may hold
// blanks; otherwise the first line decides, and white space separates.
type table struct {
	*lineReader
	layouts string // for messages: what numbers of columns are known
	known   []int
	tabs    bool
	count   int
	first   []byte // a first line that is not a header, until it is read
	cols    [][]byte
}

// header lists, for each column, the names that mark a header, in lower case.
type header [][]string

func newTable(r io.Reader, name string, head header, layouts string, known ...int) (*table, error) {
	lr, err := newLineReader(r, name)
	if err != nil {
		return nil, err
	}
	t := &table{lineReader: lr, layouts: layouts, known: known}
	line, err := lr.next()
	if err == io.EOF {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	if head.match(line) {
		t.count = len(head)
		t.tabs = bytes.ContainsRune(line, '\t')
		return t, nil
	}
	t.first = bytes.Clone(line)
	return t, nil
}

func (h header) match(line []byte) bool {
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

// row returns the columns of the next line, valid until the call after, or io.EOF.
func (t *table) row() ([][]byte, error) {
	line := t.first
	t.first = nil
	if line == nil {
		var err error
		if line, err = t.next(); err != nil {
			return nil, err
		}
	}
	t.cols = t.cols[:0]
	if t.tabs {
		for cell := range bytes.SplitSeq(line, []byte{'\t'}) {
			t.cols = append(t.cols, bytes.TrimFunc(cell, isBlank))
		}
	} else {
		for cell := range bytes.FieldsFuncSeq(line, isBlank) {
			t.cols = append(t.cols, cell)
		}
	}
	if t.count == 0 {
		for _, n := range t.known {
			if len(t.cols) == n {
				t.count = n
			}
		}
		if t.count == 0 {
			return nil, t.fail(malformed("%d columns: want %s", len(t.cols), t.layouts))
		}
	}
	if len(t.cols) != t.count {
		return nil, t.fail(malformed("%d columns, the lines before have %d", len(t.cols), t.count))
	}
	return t.cols, nil
}
