package flags

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

const inputFormat = "input-format"

// registerInputFormat adds the flag for files of vectors whose names do not tell how
// they are written. Documents and queries of one command share it.
func registerInputFormat(f *pflag.FlagSet) {
	if f.Lookup(inputFormat) == nil {
		f.Var(Choice(new(string), "", vectors.Formats()...), inputFormat, "how vectors are written where the name of the file does not tell: stdin (-), pipes, other suffixes")
	}
}

// openVectors opens a file of vectors, which may be stdin (-) or a pipe: what can be
// read only once goes to a temporary file, since it is read more than once.
func openVectors(ctx context.Context, f *pflag.FlagSet, stdin io.Reader, input vectors.Files) (vectors.Source, error) {
	path := input.Vectors
	format := f.Lookup(inputFormat).Value.String()
	known := map[string]bool{".npy": true, ".npz": true, ".safetensors": true, ".jsonl": true, ".ndjson": true}[strings.ToLower(filepath.Ext(path))]
	if !known {
		input.Format = format
	}
	info, err := os.Stat(path)
	if path != "-" && (err != nil || info.Mode().IsRegular() || info.IsDir()) {
		return vectors.Open(ctx, input)
	}
	name := path
	if path == "-" {
		name = "stdin"
	}
	if !known && format == "" {
		return nil, Usagef("%s: --%s is missing: it says how the vectors are written", name, inputFormat)
	}
	var r io.Reader
	if path == "-" {
		r = files.ContextReader(ctx, stdin)
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
	_, err = io.Copy(copied, r)
	if err = errors.Join(err, copied.Close()); err != nil {
		return nil, errors.Join(vectors.NewFileError(name, err), os.Remove(copied.Name()))
	}
	c := copiedSource{name: name, path: copied.Name()}
	input.Vectors = copied.Name()
	if c.Source, err = vectors.Open(ctx, input); err != nil {
		return nil, errors.Join(c.renamed(err), os.Remove(c.path))
	}
	return &c, nil
}

// copiedSource is a source in a temporary file, which goes with it.
type copiedSource struct {
	vectors.Source
	name, path string
}

// renamed is an error with the name that the file had before it was copied.
func (c *copiedSource) renamed(err error) error {
	if fe := (*vectors.FileError)(nil); errors.As(err, &fe) && fe.Path == c.path {
		fe.Path = c.name
	}
	return err
}

func (c *copiedSource) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for d, err := range c.Source.Docs(ctx, from, to) {
			if !yield(d, c.renamed(err)) {
				return
			}
		}
	}
}

func (c *copiedSource) Close() error {
	err := c.Source.Close()
	if c.path == "" {
		return err
	}
	path := c.path
	c.path = ""
	return errors.Join(err, os.Remove(path))
}
