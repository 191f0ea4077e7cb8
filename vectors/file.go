package vectors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/plaid-ir/plaid/internal/files"
)

// inputs are the files of a collection, which must stay as they were when they
// were opened: places in them are noted once and used again later, and what one
// of them says is held against what another said before. The zero value is ready.
type inputs struct {
	watch   files.Watch
	queries bool // they are of queries, and errors call them so
}

// open opens a regular file: reading a pipe or device here would hang.
func (in *inputs) open(path string) (*os.File, int64, error) {
	f, size, err := in.watch.Open(path)
	if err != nil {
		return nil, 0, openFault(path, err)
	}
	return f, size, nil
}

// openAs opens a file by what parses its head, which then owns it.
func openAs[T interface{ own(io.Closer) }](in *inputs, path string, parse func(io.ReaderAt, int64, string) (T, error)) (v T, err error) {
	f, size, err := in.open(path)
	if err != nil {
		return v, err
	}
	if v, err = parse(f, size, path); err != nil {
		f.Close()
		return v, err
	}
	v.own(f)
	return v, nil
}

// owner closes a file, if it has one.
type owner struct{ file io.Closer }

func (o *owner) own(c io.Closer) { o.file = c }

// Close releases the file. It may be called twice.
func (o *owner) Close() error {
	if o.file == nil {
		return nil
	}
	c := o.file
	o.file = nil
	return c.Close()
}

// stream opens what is read once, which may be a pipe.
func (in *inputs) stream(ctx context.Context, path string) (io.ReadCloser, error) {
	s, err := in.watch.Stream(ctx, path)
	if err != nil {
		return nil, openFault(path, err)
	}
	return s, nil
}

func openFault(path string, err error) error {
	err = cause(err)
	if errors.Is(err, files.ErrNotRegular) {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return NewFileError(path, err)
}

// check is [ErrChanged] for the first file that is not what it was.
func (in *inputs) check() error {
	err := in.watch.Unchanged()
	if c, ok := errors.AsType[*files.ChangedError](err); ok {
		return faultf(c.Path, ErrChanged, "%s", c.How)
	}
	return err
}

// blame is err, or what is behind it: a file that changed.
func (in *inputs) blame(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if fe := (*FileError)(nil); in.queries && errors.As(err, &fe) {
		fe.Query = true
	}
	if changed := in.check(); changed != nil {
		return changed
	}
	return err
}

// guard looks at the files when a pass over all documents begins, and at the end
// of any reading, which ends with the fault of one that changed: so whoever reads
// to the end before using what was read uses nothing that is amiss.
func (in *inputs) guard(from int, docs iter.Seq2[Document, error]) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		if from == 0 {
			if err := in.check(); err != nil {
				yield(Document{}, err)
				return
			}
		}
		for doc, err := range docs {
			if err != nil {
				yield(Document{}, in.blame(err))
				return
			}
			if !yield(doc, nil) {
				return
			}
		}
		if err := in.check(); err != nil {
			yield(Document{}, err)
		}
	}
}

// cause drops the path of an operating system error: FileError names it.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// readAtMost reads the beginning of r, at most size bytes.
func readAtMost(r io.ReaderAt, p []byte, size int64) (int, error) {
	if int64(len(p)) > size {
		p = p[:max(size, 0)]
	}
	n, err := r.ReadAt(p, 0)
	if n == len(p) {
		return n, nil
	}
	return n, malformed(err)
}

// malformed marks the end of input in the middle of it as a fault of the file;
// other errors pass.
func malformed(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: is cut short", ErrFormat)
	}
	return err
}
