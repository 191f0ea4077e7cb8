package vectors

import (
	"errors"
	"fmt"
	"io"

	"github.com/plaid-ir/plaid/internal/files"
)

// maxLine is the maximum length in bytes of a line of JSON, which has about 1.5 million tokens of 128
// dimensions.
const maxLine = 1<<31 - 1

// lineReader reads lines. It marks a line that is too long, and compressed text, as [ErrFormat].
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
