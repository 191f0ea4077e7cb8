// Package partly has index files for tests that are present only in part.
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

// ErrSource is the error of a source that fails.
var ErrSource = errors.New("the source has failed")

// Source is a storage.Source that copies pages from another file to a file that is present in part. On
// systems that support it, missing pages cannot be read in mapped memory after Fence: the index
// reports an error for such a read, instead of using zeros.
type Source struct {
	Path string // of the file that is present in part

	page    int64 // bytes of a page
	file    *os.File
	mu      sync.Mutex
	content []byte // of the whole file
	present []bool // the pages that are present
	fences  []fence
	rand    *rand.Rand
	fails   float64       // the share of calls that fail
	slow    time.Duration // the longest delay of a call
	bytes   int64         // that are present
	calls   int
}

// New creates a file of the length of another one, with no page present.
func New(t testing.TB, path string, seed uint64) *Source {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	s := &Source{
		Path:    filepath.Join(t.TempDir(), "part.plaid"),
		content: content,
		page:    int64(os.Getpagesize()),
		rand:    rand.New(rand.NewPCG(seed, 7)),
	}
	s.file, err = os.Create(s.Path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.file.Close()) })
	require.NoError(t, s.file.Truncate(int64(len(content))))
	s.present = make([]bool, (int64(len(content))+s.page-1)/s.page)
	return s
}

// Fail makes a share of the later calls fail, and delays the others by up to slow.
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
	for p := off / s.page; p < int64(len(s.present)) && p*s.page < off+n; p++ {
		if err := s.copyPage(p); err != nil {
			return err
		}
	}
	return nil
}

// CopyRandomPages copies random pages without a request.
func (s *Source) CopyRandomPages(pages int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range pages {
		if err := s.copyPage(s.rand.Int64N(int64(len(s.present)))); err != nil {
			return err
		}
	}
	return nil
}

// copyPage copies a page, unless it is present.
func (s *Source) copyPage(p int64) error {
	if s.present[p] {
		return nil
	}
	from, to := p*s.page, min((p+1)*s.page, int64(len(s.content)))
	if _, err := s.file.WriteAt(s.content[from:to], from); err != nil {
		return err
	}
	s.present[p] = true
	s.bytes += to - from
	for _, f := range s.fences {
		if err := f.allowReads(from, s.page); err != nil {
			return err
		}
	}
	return nil
}

// Fence makes missing pages unreadable in the present mappings of the file.
func (s *Source) Fence(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fences = mappings(t, s.Path)
	for _, f := range s.fences {
		for p, isPresent := range s.present {
			if !isPresent {
				require.NoError(t, f.forbidReads(int64(p)*s.page, s.page))
			}
		}
	}
}

// Fetched returns the number of bytes that are present, the size of the file, and the number of calls of
// Ensure.
func (s *Source) Fetched() (bytes, size int64, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, int64(len(s.content)), s.calls
}
