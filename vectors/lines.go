package vectors

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxLine is the longest line of JSON: 2 GiB, some 1.5 million tokens of 128
// dimensions.
const maxLine = 1<<31 - 1

// errLongLine is a line longer than its reader allows.
var errLongLine = errors.New("line is too long")

// lineReader reads lines of any length up to limit. A byte order mark at the
// start is dropped, and so is the line end, LF or CRLF.
type lineReader struct {
	r     *bufio.Reader
	limit int
	next  int64 // offset of the next line
	no    int   // of the line read last, from 1
	buf   []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// line is the next line and its offset in the file; io.EOF after the last one.
// The line is valid until the next call.
func (l *lineReader) line() (text []byte, off int64, err error) {
	l.no++
	off = l.next
	text, err = l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.buf = l.buf[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(l.buf)+len(text) > l.limit {
				return nil, off, fmt.Errorf("%w: %w: more than %d bytes", ErrFormat, errLongLine, l.limit)
			}
			l.buf = append(l.buf, text...)
			text, err = l.r.ReadSlice('\n')
		}
		l.buf = append(l.buf, text...)
		text = l.buf
	}
	l.next += int64(len(text))
	if err != nil && (!errors.Is(err, io.EOF) || len(text) == 0) {
		return nil, off, err
	}
	text = trimEOL(text)
	if off == 0 && bytes.HasPrefix(text, []byte("\ufeff")) {
		text, off = text[3:], 3
	}
	if len(text) > l.limit {
		return nil, off, fmt.Errorf("%w: %w: %d bytes, at most %d", ErrFormat, errLongLine, len(text), l.limit)
	}
	return text, off, nil
}

func trimEOL(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte{'\n'})
	return bytes.TrimSuffix(b, []byte{'\r'})
}
