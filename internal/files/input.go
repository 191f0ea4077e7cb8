package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrNotRegular reports a folder, pipe, device or socket where a file is expected.
var ErrNotRegular = errors.New("not a regular file")

// OpenInput opens a regular file and returns its state. Anything else is an [ErrNotRegular]: pipes
// have no random access, and devices no end.
func OpenInput(path string) (*os.File, fs.FileInfo, error) {
	// Check before opening: opening alone has side effects on some devices.
	info, err := os.Stat(path)
	if err == nil {
		err = regularError(path, info)
	}
	if err != nil {
		return nil, nil, err
	}
	return openAndCheck(path)
}

// openAndCheck checks the open file, which may have replaced the one that OpenInput checked. It
// does not wait for the writer of a pipe.
func openAndCheck(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = regularError(path, info)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// regularError returns nil for a regular file, and otherwise an error that names its kind.
func regularError(path string, info fs.FileInfo) error {
	kind := "something else"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("is %s, %w", kind, ErrNotRegular)}
}

// Stream opens a file, or a pipe, for reading once from front to back. The end of ctx also ends
// waiting for the writer of a pipe, and for its data. A folder is an [ErrNotRegular]. Devices are
// allowed; the reader must limit the length of lines.
func Stream(ctx context.Context, path string) (io.ReadCloser, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, regularError(path, info)
	}
	if info.Mode().IsRegular() {
		f, _, err := OpenInput(path)
		if err != nil {
			return nil, err
		}
		return stream{cancellable{ctx, f}, f.Close}, nil
	}
	f, err := OpenPipe(ctx, path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return stream{ContextReader(ctx, f), f.Close}, nil
}

// stream is a reader with its Close function.
type stream struct {
	io.Reader
	close func() error
}

func (s stream) Close() error { return s.close() }

// UntilDone returns a reader that fails once the context has ended. r must not block for long.
func UntilDone(ctx context.Context, r io.Reader) io.Reader { return cancellable{ctx, r} }

// cancellable checks the context before each read.
type cancellable struct {
	ctx context.Context
	r   io.Reader
}

func (l cancellable) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	return l.r.Read(p)
}

// ContextReader returns a reader that fails once the context has ended. A read that blocks then
// continues in the background, and its data is lost.
func ContextReader(ctx context.Context, r io.Reader) io.Reader {
	return &pump{ctx: ctx, r: r, out: make(chan chunk)}
}

// chunk is the result of one read.
type chunk struct {
	b   []byte
	err error
}

// pump reads on its own goroutine, one read for each request.
type pump struct {
	ctx    context.Context
	r      io.Reader
	out    chan chunk
	buf    []byte
	unread chunk
}

func (p *pump) Read(dst []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if len(dst) == 0 {
		return 0, nil
	}
	if len(p.unread.b) == 0 && p.unread.err == nil {
		if p.buf == nil {
			p.buf = make([]byte, 64<<10)
		}
		go func() {
			n, err := p.r.Read(p.buf)
			select {
			case p.out <- chunk{p.buf[:n], err}:
			case <-p.ctx.Done():
			}
		}()
		select {
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		case p.unread = <-p.out:
		}
	}
	n := copy(dst, p.unread.b)
	p.unread.b = p.unread.b[n:]
	if n > 0 || len(p.unread.b) > 0 {
		return n, nil
	}
	return 0, p.unread.err // an error is kept; (0, nil) is returned once
}

// Read opens a stream, calls use with it, and then checks whether the file changed meanwhile.
func Read(ctx context.Context, path string, use func(io.Reader) error) error {
	var w Watch
	s, err := w.Stream(ctx, path)
	if err != nil {
		return err
	}
	return useUnchanged(s, &w, use)
}

// ReadRegular is [Read] for a file that must be regular.
func ReadRegular(path string, use func(io.Reader) error) error {
	var w Watch
	f, _, err := w.Open(path)
	if err != nil {
		return err
	}
	return useUnchanged(f, &w, use)
}

// useUnchanged calls use, and returns an error if a file changed meanwhile.
func useUnchanged(r io.ReadCloser, w *Watch, use func(io.Reader) error) error {
	err := use(r)
	// The change probably caused the error of use.
	if changed := w.Unchanged(); changed != nil {
		err = changed
	}
	return errors.Join(err, r.Close())
}

// Parse is [Read] with a function that parses the content. name is path.
func Parse[T any](ctx context.Context, path string, parse func(r io.Reader, name string) (T, error)) (v T, err error) {
	err = Read(ctx, path, func(r io.Reader) error {
		v, err = parse(r, path)
		return err
	})
	return v, err
}

// OpenPipe is [os.OpenFile] for an existing file, until the context ends. If the file opens later,
// OpenPipe closes it.
func OpenPipe(ctx context.Context, path string, flag int) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened)
	go func() {
		f, err := os.OpenFile(path, flag, 0)
		select {
		case done <- opened{f, err}:
		case <-ctx.Done():
			if err == nil {
				f.Close()
			}
		}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case o := <-done:
		return o.f, o.err
	}
}
