package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/plaid-ir/plaid/internal/testing/objectstest"
)

// patched is a store whose Get is another.
type patched struct {
	Store
	get func(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error)
}

func (p *patched) Get(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
	return p.get(ctx, name, from, length)
}

// large puts an object of several blocks; the last one is not full.
func large(t *testing.T, s Store, blocks int) []byte {
	t.Helper()
	b := make([]byte, blocks*FetchBlock-1000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+8 < len(b); i += 8 {
		b[i], b[i+5] = byte(r.Uint32()), byte(r.Uint32())
	}
	if _, err := s.Put(context.Background(), "large", bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatal(err)
	}
	return b
}

func temp(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Ensure fetches the range that it is asked for and Fill the whole file, and little is fetched twice.
func TestFetcher(t *testing.T) {
	s, _ := open(t, "folder")
	want := large(t, s, 100)
	var mu sync.Mutex
	var asked, requests int64
	p := &patched{s, func(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
		mu.Lock()
		defer mu.Unlock()
		asked, requests = asked+length, requests+1
		return s.Get(ctx, name, from, length)
	}}
	file := temp(t)
	f := NewFetcher(p, "large", int64(len(want)), file)
	if f.Present(0, 1) || !f.Present(int64(len(want)), 10) || !f.Present(5, 0) {
		t.Error("before")
	}
	look := func(off, n int64) {
		t.Helper()
		got := make([]byte, n)
		if _, err := file.ReadAt(got, off); err != nil || !bytes.Equal(got, want[off:off+n]) || !f.Present(off, n) {
			t.Fatalf("%d bytes from %d on are not there: %v", n, off, err)
		}
	}
	if err := f.Ensure(t.Context(), 10*FetchBlock-1, 2); err != nil || requests != 1 || asked != 2*FetchBlock {
		t.Fatalf("%d requests, %d bytes: %v", requests, asked, err)
	}
	look(10*FetchBlock-1, 2)
	if f.Present(9*FetchBlock-1, 2) || f.Present(11*FetchBlock-1, 2) {
		t.Error("more than was asked for")
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for range 20 {
				off := r.Int64N(int64(len(want)) - 3000)
				if err := f.Ensure(t.Context(), off, 3000); err != nil {
					t.Error(err)
				}
				look(off, 3000)
			}
		})
	}
	wg.Go(func() {
		if err := f.Fill(t.Context()); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	look(0, int64(len(want)))
	if asked < int64(len(want)) || asked > 2*int64(len(want)) {
		t.Errorf("%d bytes were asked for, of %d", asked, len(want))
	}
	if err := errors.Join(f.Ensure(t.Context(), 0, 1<<40), f.Fill(t.Context())); err != nil {
		t.Error(err)
	}
	empty := NewFetcher(p, "large", 0, file)
	if err := errors.Join(empty.Ensure(t.Context(), 0, 5), empty.Fill(t.Context())); err != nil {
		t.Error(err)
	}
}

// Bodies that break off go on where they ended; errors do not stay; a call ends with its context, and leaves
// nothing that others wait for.
func TestFetcherFaults(t *testing.T) {
	s, _ := open(t, "folder")
	want := large(t, s, 5*writeBytes/FetchBlock)
	size := int64(len(want))
	var mu sync.Mutex
	begun := map[int64]int{}
	cut := &patched{s, func(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
		mu.Lock()
		defer mu.Unlock()
		begun[from]++
		r, e, err := s.Get(ctx, name, from, length)
		if begun[from] == 1 && length > 2*writeBytes {
			return struct {
				io.Reader
				io.Closer
			}{io.LimitReader(r, 2*writeBytes+7), r}, e, err
		}
		return r, e, err
	}}
	file := temp(t)
	if err := NewFetcher(cut, "large", size, file).Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file.Name()); !bytes.Equal(got, want) {
		t.Error("another file")
	}
	if begun[0] != 1 || begun[2*writeBytes] != 1 {
		t.Errorf("it did not go on: %v", begun)
	}
	failure := errors.New("the store is away")
	away := true
	f := NewFetcher(&patched{s,
		func(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
			if away {
				return nil, Entry{}, failure
			}
			return s.Get(ctx, name, from, length)
		}}, "large", size, temp(t))
	if err := f.Ensure(t.Context(), 0, size); !errors.Is(err, failure) {
		t.Error(err)
	}
	if err := f.Fill(t.Context()); !errors.Is(err, failure) {
		t.Error(err)
	}
	away = false
	if err := f.Fill(t.Context()); err != nil {
		t.Error(err)
	}
	if err := NewFetcher(s, "large", size-1, temp(t)).Fill(t.Context()); !errors.Is(err, ErrDamaged) {
		t.Errorf("another size: %v", err)
	}
	// One waits for what another fetches, and takes it over when that one gives up.
	reached, once := make(chan struct{}), sync.Once{}
	f = NewFetcher(&patched{s,
		func(ctx context.Context, name string, from, length int64) (io.ReadCloser, Entry, error) {
			first := false
			once.Do(func() { first = true })
			if first {
				close(reached)
				<-ctx.Done()
				return nil, Entry{}, ctx.Err()
			}
			return s.Get(ctx, name, from, length)
		}}, "large", size, temp(t))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.Ensure(ctx, 0, 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-reached
	wg.Go(func() {
		if err := f.Ensure(t.Context(), 0, 1); err != nil {
			t.Error(err)
		}
	})
	cancel()
	wg.Wait()
}

// A file appears when it is complete, over a network that has faults; otherwise nothing stays.
func TestFetch(t *testing.T) {
	s, b := open(t, "s3")
	want := large(t, s, partSize/FetchBlock)
	dir := t.TempDir()
	var mu sync.Mutex
	next := faults(objectstest.Cut, objectstest.Busy, objectstest.Lost, objectstest.Late, objectstest.Cut,
		objectstest.Cut)
	b.After = func(r *http.Request) objectstest.Fault {
		mu.Lock()
		defer mu.Unlock()
		return next(r)
	}
	if err := Fetch(t.Context(), s, "large", int64(len(want)), filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	b.After = nil
	if got, _ := os.ReadFile(filepath.Join(dir, "a")); !bytes.Equal(got, want) {
		t.Error("another file")
	}
	if err := Fetch(t.Context(), s, "none", 5, filepath.Join(dir, "b")); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := Fetch(t.Context(), s, "large", 5, filepath.Join(dir, "b")); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if of, _ := os.ReadDir(dir); len(of) != 1 {
		t.Errorf("%v stay", of)
	}
}
