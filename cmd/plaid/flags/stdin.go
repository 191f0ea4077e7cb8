package flags

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

// openVectors opens a file of vectors, which may be stdin (-) or a pipe. Vectors are read more than
// once, so openVectors copies a stream to a temporary file, and looks at its first bytes to find
// the format if the name has no ending.
func openVectors(ctx context.Context, stdin io.Reader, input vectors.Files) (vectors.Source, error) {
	path := input.Vectors
	info, err := os.Stat(path)
	if path != "-" && (err != nil || info.Mode().IsRegular() || info.IsDir()) {
		return vectors.Open(ctx, input)
	}
	name := path
	var r io.Reader
	if path == "-" {
		name, r = "stdin", files.ContextReader(ctx, stdin)
	} else {
		s, err := files.Stream(ctx, path)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		r = s
	}
	copied, err := os.CreateTemp("", "plaid-input-*"+filepath.Ext(path))
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewReader(r)
	if input.Format == "" && filepath.Ext(path) == "" {
		head, _ := buffered.Peek(formatBytes) // io.Copy reports an error, or a short file
		input.Format = vectorFormat(head)
	}
	_, err = io.Copy(copied, buffered)
	if err = errors.Join(err, copied.Close()); err != nil {
		return nil, errors.Join(vectors.NewFileError(name, err), os.Remove(copied.Name()))
	}
	source := copiedSource{originalName: name, copyPath: copied.Name()}
	input.Vectors = copied.Name()
	if source.Source, err = vectors.Open(ctx, input); err != nil {
		return nil, errors.Join(source.withOriginalName(err), os.Remove(source.copyPath))
	}
	return &source, nil
}

// formatBytes is the number of bytes that show the format of a file of vectors.
const formatBytes = 9

// vectorFormat returns the format of a file of vectors that begins with head. A file that is in
// none of the binary formats counts as lines of JSON.
func vectorFormat(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x93NUMPY")):
		return "npy"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return "npz"
	case len(head) == formatBytes && head[7] == 0 && head[8] == '{': // a header of JSON, after its size in 8 bytes
		return "safetensors"
	}
	return "jsonl"
}

// copiedSource is a source in a temporary file. Close removes the file.
type copiedSource struct {
	vectors.Source
	originalName, copyPath string
}

// withOriginalName puts the name that the user gave in the place of the temporary file's name in an
// error.
func (c *copiedSource) withOriginalName(err error) error {
	if fe := (*vectors.FileError)(nil); errors.As(err, &fe) && fe.Path == c.copyPath {
		fe.Path = c.originalName
	}
	return err
}

// Docs implements [vectors.Source].
func (c *copiedSource) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for d, err := range c.Source.Docs(ctx, from, to) {
			if !yield(d, c.withOriginalName(err)) {
				return
			}
		}
	}
}

// Close closes the source and removes its file.
func (c *copiedSource) Close() error {
	err := c.Source.Close()
	if c.copyPath == "" {
		return err
	}
	path := c.copyPath
	c.copyPath = ""
	return errors.Join(err, os.Remove(path))
}
