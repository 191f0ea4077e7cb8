package vectors

import (
	"errors"
	"fmt"
	"io"

	"github.com/plaid-ir/plaid/internal/files"
)

// maxLine is the longest line of JSON: 2 GiB, some 1.5 million tokens of 128
// dimensions.
const maxLine = 1<<31 - 1

// lineReader reads lines. One that is too long is [ErrFormat] too.
type lineReader struct{ *files.LineReader }

func newLineReader(r io.Reader, limit int) lineReader {
	return lineReader{files.NewLineReader(r, limit)}
}

func (l lineReader) Next() (line []byte, offset int64, err error) {
	line, offset, err = l.LineReader.Next()
	if errors.Is(err, files.ErrLongLine) || errors.Is(err, files.ErrPacked) {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return line, offset, err
}
