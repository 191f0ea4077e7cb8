package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrLongLine reports a line that is longer than its reader allows.
var ErrLongLine = errors.New("line is too long")

// LineReader reads lines of limited length. It drops a byte order mark at the start, and the end of
// each line, LF or CRLF, which the last line may lack.
type LineReader struct {
	Number int // of the last line read, from 1

	r     *bufio.Reader
	limit int
	next  int64 // offset of the next line
	long  []byte
}

// NewLineReader returns a reader of lines of at most limit bytes.
func NewLineReader(r io.Reader, limit int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// SplitCells splits a line of tab-separated text, and appends its cells. The text is literal: each tab
// ends a cell, and quotation marks and backslashes have no special meaning.
func SplitCells(cells [][]byte, line []byte) [][]byte {
	for cell := range bytes.SplitSeq(line, []byte{'\t'}) {
		cells = append(cells, cell)
	}
	return cells
}

// SkipByteOrderMark skips the byte order mark that Windows editors put at the start of files.
func SkipByteOrderMark(r io.Reader) (*bufio.Reader, error) {
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

// Next returns the next line, which is valid until the next call, and its offset.
//
// Errors: [io.EOF] after the last line, [ErrLongLine], and those of the reader. After an error
// Number is that of the line in which it occurred.
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
