package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "abc")
	f, info, err := OpenInput(path)
	require.NoError(t, err)
	require.Equal(t, int64(3), info.Size())
	require.NoError(t, f.Close())
	_, _, err = OpenInput(dir)
	require.ErrorIs(t, err, ErrNotRegular)
	require.ErrorContains(t, err, "is a folder")
	_, err = Stream(t.Context(), dir)
	require.ErrorIs(t, err, ErrNotRegular)
	for _, missing := range []func(string) error{
		func(p string) error { _, _, err := OpenInput(p); return err },
		func(p string) error { _, err := Stream(t.Context(), p); return err },
	} {
		require.ErrorIs(t, missing(filepath.Join(dir, "none")), fs.ErrNotExist)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Stream(ctx, path)
	require.NoError(t, err)
	b, err := io.ReadAll(s)
	require.NoError(t, err)
	require.Equal(t, "abc", string(b))
	cancel()
	_, err = s.Read(make([]byte, 1))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Close())
}

// Each kind of change is seen, and a file that only was read has none.
func TestWatch(t *testing.T) {
	_, missing := os.Stat(filepath.Join(t.TempDir(), "none"))
	noSuchFile := errors.Unwrap(missing).Error() // as the system says it
	for name, change := range map[string]func(path string) error{
		"":                         func(path string) error { _, err := os.ReadFile(path); return err },
		"it had 3 bytes, it has 2": func(path string) error { return os.Truncate(path, 2) },
		"it was written at 2001": func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("abd"), 0o644), os.Chtimes(path, time.Time{}, time.Date(2001, 2, 3, 4, 5, 6, 0, time.Local)))
		},
		"another file took its place": func(path string) error {
			return errors.Join(os.WriteFile(path+"2", []byte("abd"), 0o644), os.Rename(path+"2", path))
		},
		noSuchFile: os.Remove,
	} {
		path := filepath.Join(t.TempDir(), "f")
		write(t, path, "abc")
		var w Watch
		f, size, err := w.Open(path)
		require.NoError(t, err)
		require.Equal(t, int64(3), size)
		require.NoError(t, f.Close())
		require.NoError(t, w.Unchanged())
		require.NoError(t, change(path))
		g, _, err := w.Open(path) // a second look does not count
		if err == nil {
			require.NoError(t, g.Close())
		}
		err = w.Unchanged()
		var changed *ChangedError
		if name == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorAs(t, err, &changed)
		require.Equal(t, path, changed.Path)
		require.ErrorContains(t, err, name)
		require.NotErrorIs(t, err, fs.ErrNotExist, "it was there")
	}
}

// What counts is the content: of a stream, whether it was read to its end or not, and of a file that is open.
func TestWatchContent(t *testing.T) {
	const content = "one line\nanother line\n"
	touch := func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)) }
	put := func(content string) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path+"2", []byte(content), 0o644), os.Rename(path+"2", path))
		}
	}
	over := func(content string) func(string) error {
		return func(path string) error { return errors.Join(os.WriteFile(path, []byte(content), 0o644), touch(path)) }
	}
	begin, end := "One line\nanother line\n", "one line\nanother Line\n"
	defer func(every time.Duration) { LookInterval = every }(LookInterval)
	LookInterval = time.Hour
	for _, x := range []struct {
		name            string
		change          func(string) error
		half, all, open bool // it is unchanged for a stream that was read so far, and for a file that is open
	}{
		{"replaced by the same", put(content), true, true, true},
		{"touched", touch, true, true, false},
		{"the same written over it", over(content), true, true, false},
		{"another begin put in its place", put(begin), false, false, false},
		{"another begin written over it", over(begin), false, false, false},
		{"another end put in its place", put(end), false, false, false},
		// The rest is read as it is now.
		{"another end written over it", over(end), true, false, false},
	} {
		for how, same := range map[string]bool{"half": x.half, "all": x.all, "open": x.open} {
			path := filepath.Join(t.TempDir(), "f")
			write(t, path, content)
			var w Watch
			if how == "open" {
				defer func(most int64) { maxHashed = most }(maxHashed)
				maxHashed = 1
				f, _, err := w.Open(path)
				require.NoError(t, err)
				defer f.Close()
			} else {
				s, err := w.Stream(t.Context(), path)
				require.NoError(t, err)
				defer s.Close()
				n := len(content)
				if how == "half" {
					n = 10
				}
				_, err = io.ReadFull(s, make([]byte, n))
				require.NoError(t, err)
			}
			require.NoError(t, w.UnchangedSometimes())
			require.NoError(t, x.change(path))
			for range 2 {
				require.NoError(t, w.UnchangedSometimes(), "not so soon")
				err := w.Unchanged()
				require.Equal(t, same, err == nil, "%s, %s: %v", x.name, how, err)
			}
			w.nextCheck = time.Now().Add(-time.Second)
			require.Equal(t, same, w.UnchangedSometimes() == nil)
		}
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "abc")
	fault := errors.New("fault")
	for _, read := range []func(func(io.Reader) error) error{
		func(use func(io.Reader) error) error { return Read(t.Context(), path, use) },
		func(use func(io.Reader) error) error { return ReadRegular(path, use) },
	} {
		require.NoError(t, read(func(r io.Reader) error {
			b, err := io.ReadAll(r)
			require.Equal(t, "abc", string(b))
			return err
		}))
		require.ErrorIs(t, read(func(io.Reader) error { return fault }), fault)
		var changed *ChangedError
		require.ErrorAs(t, read(func(io.Reader) error {
			write(t, path, "abcd")
			return fault
		}), &changed)
		write(t, path, "abc")
	}
}

type blocked struct{ begun chan struct{} }

func (b blocked) Read([]byte) (int, error) {
	close(b.begun)
	select {}
}

func TestReader(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write([]byte("abc"))
		_, _ = w.Write([]byte("defg"))
		w.CloseWithError(io.ErrUnexpectedEOF)
	}()
	p := ContextReader(t.Context(), r)
	var got []byte
	for {
		b := make([]byte, 2)
		n, err := p.Read(b)
		got = append(got, b[:n]...)
		if err != nil {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			_, err = p.Read(b)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			break
		}
	}
	require.Equal(t, "abcdefg", string(got))

	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	go func() { <-begun; cancel() }()
	_, err := ContextReader(ctx, blocked{begun}).Read(make([]byte, 1))
	require.ErrorIs(t, err, context.Canceled)
}

func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write := func(text string) { // as another file of the same time
		next := path + ".next"
		require.NoError(t, os.WriteFile(next, []byte(text), 0o600))
		require.NoError(t, os.Chtimes(next, time.Unix(1e9, 0), time.Unix(1e9, 0)))
		require.NoError(t, os.Rename(next, path))
	}
	var heard []string
	read := func() (string, error) {
		b, err := os.ReadFile(path)
		if string(b) == "bad" {
			err = errors.New("bad")
		}
		return string(b), err
	}
	keep := func() (*WatchedValue[string], error) {
		return WatchValue(read, func(v string, err error) {
			if err != nil {
				v = "error"
			}
			heard = append(heard, v)
		}, path)
	}
	_, err := keep()
	require.ErrorIs(t, err, os.ErrNotExist)
	write("one")
	k, err := keep()
	require.NoError(t, err)
	look := func() string { k.checkedAt = time.Time{}; return k.Get() }
	require.Equal(t, "one", look())
	write("two")
	require.Equal(t, "one", k.Get(), "a second has not passed")
	require.Equal(t, "two", look())
	write("bad")
	require.Equal(t, "two", look())
	require.Equal(t, "two", look()) // tried again, and nobody is told
	require.NoError(t, os.Remove(path))
	require.Equal(t, "two", look())
	write("new")
	require.Equal(t, "new", look())
	k.Reload()
	require.Equal(t, []string{"two", "error", "error", "new", "new"}, heard)

	// A file that looks like the last one that was read is read after a failure all the same.
	kept := path + ".kept"
	require.NoError(t, os.Rename(path, kept))
	require.Equal(t, "new", look())
	require.NoError(t, os.Rename(kept, path))
	heard = nil
	require.Equal(t, "new", look())
	require.Equal(t, []string{"new"}, heard)
}
