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

// inputs are the files of a collection. They must not change after they were opened: offsets in them
// are remembered, and their contents were compared with each other. The zero value is ready.
type inputs struct {
	watch   files.Watch
	queries bool // errors say query in place of document
}

// openFile opens a regular file: reading a pipe or device here would hang.
func (in *inputs) openFile(path string) (*os.File, int64, error) {
	f, size, err := in.watch.Open(path)
	if err != nil {
		return nil, 0, openError(path, err)
	}
	return f, size, nil
}

// openAs opens a file and calls parse, which reads its header. The result owns the file.
func openAs[T interface{ setFile(io.Closer) }](
	in *inputs, path string, parse func(io.ReaderAt, int64, string) (T, error),
) (v T, err error) {
	f, size, err := in.openFile(path)
	if err != nil {
		return v, err
	}
	if v, err = parse(f, size, path); err != nil {
		f.Close()
		return v, err
	}
	v.setFile(f)
	return v, nil
}

// owner closes a file, if it has one.
type owner struct{ file io.Closer }

// setFile makes Close close c.
func (o *owner) setFile(c io.Closer) { o.file = c }

// Close releases the file. It may be called twice.
func (o *owner) Close() error {
	if o.file == nil {
		return nil
	}
	c := o.file
	o.file = nil
	return c.Close()
}

// openStream opens a file that is read once, in order, and may be a pipe.
func (in *inputs) openStream(ctx context.Context, path string) (io.ReadCloser, error) {
	s, err := in.watch.Stream(ctx, path)
	if err != nil {
		return nil, openError(path, err)
	}
	return s, nil
}

// openError adds the path to an error of opening a file. A file that is not regular is [ErrFormat].
func openError(path string, err error) error {
	err = withoutPath(err)
	if errors.Is(err, files.ErrNotRegular) {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return NewFileError(path, err)
}

// checkUnchanged returns [ErrChanged] for the first file that has changed since it was opened.
func (in *inputs) checkUnchanged() error {
	err := in.watch.Unchanged()
	if c, ok := errors.AsType[*files.ChangedError](err); ok {
		return faultf(c.Path, ErrChanged, "%s", c.How)
	}
	return err
}

// explainByChange returns the error of a changed file ([ErrChanged]), which explains err, or else err.
func (in *inputs) explainByChange(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if fe := (*FileError)(nil); in.queries && errors.As(err, &fe) {
		fe.Query = true
	}
	if changed := in.checkUnchanged(); changed != nil {
		return changed
	}
	return err
}

// guardDocs checks that the files have not changed: when a pass over all documents begins, and at the end
// of every sequence, which then ends with [ErrChanged]. So a caller that reads to the end before it uses
// documents never uses those of a changed file.
func (in *inputs) guardDocs(from int, docs iter.Seq2[Document, error]) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		if from == 0 {
			if err := in.checkUnchanged(); err != nil {
				yield(Document{}, err)
				return
			}
		}
		for doc, err := range docs {
			if err != nil {
				yield(Document{}, in.explainByChange(err))
				return
			}
			if !yield(doc, nil) {
				return
			}
		}
		if err := in.checkUnchanged(); err != nil {
			yield(Document{}, err)
		}
	}
}

// withoutPath removes the path from an error of the operating system, since [FileError] names it.
func withoutPath(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// readAtMost reads the beginning of a file of size bytes into p, and returns the number of bytes read.
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

// malformed converts an unexpected end of the input, or nil, into [ErrFormat]. It returns other errors
// unchanged.
func malformed(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: is cut short", ErrFormat)
	}
	return err
}
