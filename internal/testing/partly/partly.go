// Package partly gives tests an index file of which only some pages are there.
package partly

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ErrSource is what a source fails with.
var ErrSource = errors.New("the source has failed")

// Source is a storage.Source that copies the pages of another file. Where the system allows it, pages
// that are not there cannot be read in mapped memory once Fence was called: a read of one is an error
// of the index in place of zeros.
type Source struct {
	Path string // of the file in part

	page   int64
	file   *os.File
	mu     sync.Mutex
	all    []byte
	there  []bool
	fences []fence
	rand   *rand.Rand
	fails  float64 // share of calls
	slow   time.Duration
	bytes  int64
	calls  int
}

// New makes a file of the length of another one, of which nothing is there.
func New(t testing.TB, path string, seed uint64) *Source {
	t.Helper()
	all, err := os.ReadFile(path)
	require.NoError(t, err)
	s := &Source{
		Path: filepath.Join(t.TempDir(), "part.plaid"), all: all, page: int64(os.Getpagesize()),
		rand: rand.New(rand.NewPCG(seed, 7)),
	}
	s.file, err = os.Create(s.Path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.file.Close()) })
	require.NoError(t, s.file.Truncate(int64(len(all))))
	s.there = make([]bool, (int64(len(all))+s.page-1)/s.page)
	return s
}

// Fail makes a share of the later calls fail, and the others take up to a time.
func (s *Source) Fail(share float64, slow time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.slow = share, slow
}

// Ensure implements storage.Source.
func (s *Source) Ensure(ctx context.Context, off, n int64) error {
	s.mu.Lock()
	s.calls++
	fails, slow := s.rand.Float64() < s.fails, time.Duration(s.rand.Float64()*float64(s.slow))
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slow):
	}
	if fails {
		return ErrSource
	}
	if off < 0 || n < 0 {
		return errors.New("it was asked for bytes before the file")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := off / s.page; p < int64(len(s.there)) && p*s.page < off+n; p++ {
		if err := s.bring(p); err != nil {
			return err
		}
	}
	return nil
}

// Bring makes random pages be there that nobody asked for.
func (s *Source) Bring(pages int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range pages {
		if err := s.bring(s.rand.Int64N(int64(len(s.there)))); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) bring(p int64) error {
	if s.there[p] {
		return nil
	}
	from, to := p*s.page, min((p+1)*s.page, int64(len(s.all)))
	if _, err := s.file.WriteAt(s.all[from:to], from); err != nil {
		return err
	}
	s.there[p] = true
	s.bytes += to - from
	for _, f := range s.fences {
		if err := f.allow(from, s.page); err != nil {
			return err
		}
	}
	return nil
}

// Fence forbids to read pages that are not there in the mappings that there are of the file.
func (s *Source) Fence(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fences = mappings(t, s.Path)
	for _, f := range s.fences {
		for p, there := range s.there {
			if !there {
				require.NoError(t, f.forbid(int64(p)*s.page, s.page))
			}
		}
	}
}

// Fetched is how many bytes are there, of how many, and how often it was asked for some.
func (s *Source) Fetched() (bytes, of int64, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, int64(len(s.all)), s.calls
}
