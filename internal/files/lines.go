package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrLongLine: a line is longer than its reader allows.
var ErrLongLine = errors.New("line is too long")

// LineReader reads lines of at most a limit of bytes. It drops a byte order mark at the start,
// and the end of each line, LF or CRLF; the last line may lack it.
type LineReader struct {
	Number int // of the line that was read last, from 1

	r     *bufio.Reader
	limit int
	next  int64 // offset of the next line
	long  []byte
}

// NewLineReader reads lines of at most limit bytes.
func NewLineReader(r io.Reader, limit int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// Cells splits a line of tab-separated text, and appends its cells. Such text is literal: each line
// is a row, each tab ends a cell, and quotation marks and backslashes are characters like others.
func Cells(cells [][]byte, line []byte) [][]byte {
	for cell := range bytes.SplitSeq(line, []byte{'\t'}) {
		cells = append(cells, cell)
	}
	return cells
}

// UnmarkedReader drops the byte order mark that editors of Windows begin files with.
func UnmarkedReader(r io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReader(r)
	mark, err := b.Peek(len(byteOrderMark))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(mark) == byteOrderMark {
		_, err = b.Discard(len(mark))
		return b, err
	}
	return b, nil
}

const byteOrderMark = "\ufeff"

// Next returns the next line, which is valid until the call after, and its offset.
//
// Errors: [io.EOF] after the last line, [ErrLongLine], those of the reader. Number is that of
// the line in which it failed.
func (l *LineReader) Next() (line []byte, offset int64, err error) {
	l.Number++
	offset = l.next
	line, err = l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = l.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(l.long)+len(line) > l.limit {
				return nil, offset, fmt.Errorf("%w: more than %d bytes", ErrLongLine, l.limit)
			}
			l.long = append(l.long, line...)
			line, err = l.r.ReadSlice('\n')
		}
		l.long = append(l.long, line...)
		line = l.long
	}
	l.next += int64(len(line))
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, offset, err
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
	if rest, marked := bytes.CutPrefix(line, []byte(byteOrderMark)); marked && offset == 0 {
		line, offset = rest, int64(len(byteOrderMark))
	}
	if len(line) > l.limit {
		return nil, offset, fmt.Errorf("%w: more than %d bytes", ErrLongLine, l.limit)
	}
	return line, offset, nil
}
