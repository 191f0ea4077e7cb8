package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrNotRegular: a folder, pipe, device or socket in the place of a file.
var ErrNotRegular = errors.New("not a regular file")

// OpenInput opens a regular file and tells what it looks like. Anything else is
// [ErrNotRegular]: random access to a pipe is impossible, a device has no end.
func OpenInput(path string) (*os.File, fs.FileInfo, error) {
	// Not even opened: that alone has effects on some devices.
	info, err := os.Stat(path)
	if err == nil {
		err = regularError(path, info)
	}
	if err != nil {
		return nil, nil, err
	}
	return openAndCheck(path)
}

// openAndCheck looks at the file that is open, which may be another than the one that
// was looked at before; it does not wait for the writer of a pipe either.
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

// Stream opens what is read once, from front to back, which may be a pipe. A
// context that ends also ends the waiting, for the writer of a pipe and for what
// it writes. A folder is [ErrNotRegular]. Devices are left to the reader, which
// must not read a line without an end.
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

type stream struct {
	io.Reader
	close func() error
}

func (s stream) Close() error { return s.close() }

// UntilDone is r, which never blocks for long, until the context ends.
func UntilDone(ctx context.Context, r io.Reader) io.Reader { return cancellable{ctx, r} }

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

// ContextReader is r until the context ends. A read that blocks then goes on in the
// background, and what it gets is lost.
func ContextReader(ctx context.Context, r io.Reader) io.Reader {
	return &pump{ctx: ctx, r: r, out: make(chan chunk)}
}

type chunk struct {
	b   []byte
	err error
}

// pump reads in a goroutine of its own, one read at a time, when asked.
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
	return 0, p.unread.err // stays; (0, nil) of a reader is passed on once
}

// Read opens a stream, hands it to use, and then looks whether the file changed
// meanwhile.
func Read(ctx context.Context, path string, use func(io.Reader) error) error {
	var w Watch
	s, err := w.Stream(ctx, path)
	if err != nil {
		return err
	}
	return useUnchanged(s, &w, use)
}

// ReadRegular is [Read] of what has to be a regular file.
func ReadRegular(path string, use func(io.Reader) error) error {
	var w Watch
	f, _, err := w.Open(path)
	if err != nil {
		return err
	}
	return useUnchanged(f, &w, use)
}

func useUnchanged(r io.ReadCloser, w *Watch, use func(io.Reader) error) error {
	err := use(r)
	// A fault that is due to the change is of no interest.
	if changed := w.Unchanged(); changed != nil {
		err = changed
	}
	return errors.Join(err, r.Close())
}

// Parse is [Read] with a function that makes a value of what it reads from a file
// of that name.
func Parse[T any](ctx context.Context, path string, parse func(r io.Reader, name string) (T, error)) (v T, err error) {
	err = Read(ctx, path, func(r io.Reader) error {
		v, err = parse(r, path)
		return err
	})
	return v, err
}

// OpenPipe is [os.OpenFile] of a file that is there, until the context ends; a file that is
// opened later is closed again.
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
