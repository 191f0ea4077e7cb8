package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
)

// A file that reaches the end of its mapping is an error at once, also while
// snapshots are open, for which bbolt would wait. Opened again it goes on growing.
func TestFileReachesTheEndOfItsMapping(t *testing.T) {
	if files.EmulateWindows {
		t.Skip("the file is mapped anew")
	}
	old := mappedBytes
	mappedBytes = 1 << 20
	t.Cleanup(func() { mappedBytes = old })
	path := writeTestIndex(t)
	more := func(f *File, n uint32) error {
		return f.Update(func(tx *Tx) error {
			return tx.PutNote(fmt.Sprint("filler", n), bytes.Repeat([]byte{7}, 75<<10)) // no part of the content
		})
	}
	next := uint32(1000)
	for range 3 {
		f := openWriting(t, path)
		before := seen(t, f)
		held, err := f.Snapshot()
		require.NoError(t, err)
		mapping := f.handle.db.Info().Data
		done := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				err = more(f, next)
				next++
			}
			done <- err
		}()
		select {
		case err := <-done:
			require.ErrorIs(t, err, ErrTooLarge)
			require.NotErrorIs(t, err, ErrOutcomeUnknown)
		case <-time.After(time.Minute):
			t.Fatal("waits for its own view")
		}
		require.Equal(t, mapping, f.handle.db.Info().Data, "mapped anew")
		require.NoError(t, addDoc(f, string(rune(next)))) // a little goes where there is room
		require.NotEqual(t, before, seen(t, f))
		require.NoError(t, errors.Join(held.Close(), f.Close()))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Greater(t, info.Size(), 4*mappedBytes)
}

func TestMapSizes(t *testing.T) {
	for _, c := range []struct{ file, first, last int64 }{
		{1, 16 << 40, 64 << 20},
		{16 << 10, 16 << 40, 64 << 20},
		{100 << 20, 16 << 40, 128 << 20},
		{3 << 30, 16 << 40, 4 << 30},
		{3<<30 - 1, 16 << 40, 3 << 30},
		{10 << 40, 40 << 40, 10<<40 + 1<<30},
	} {
		sizes := mapSizes(c.file)
		require.Equal(t, c.first, sizes[0], c.file)
		require.Equal(t, c.last, sizes[len(sizes)-1], c.file)
		for i, n := range sizes {
			require.Greater(t, n, c.file)
			require.Equal(t, n, roundMapSize(n)) // as bbolt maps it
			require.True(t, i == 0 || n < sizes[i-1], "%d", sizes)
		}
	}
}

// A process may have many indexes open for writing: each leaves address space for the
// others, and gives it back.
func TestManyWriters(t *testing.T) {
	if files.EmulateWindows || mappedBytes != 16<<40 {
		t.Skip("only where all of it is mapped")
	}
	before := reservedBytes.Load()
	first, err := os.ReadFile(writeTestIndex(t))
	require.NoError(t, err)
	dir := t.TempDir()
	var open []*File
	for i := range 120 {
		path := filepath.Join(dir, fmt.Sprint(i))
		require.NoError(t, os.WriteFile(path, first, 0o644))
		f, err := Open(context.Background(), path, Options{Write: true})
		require.NoError(t, err, i)
		open = append(open, f)
	}
	require.GreaterOrEqual(t, open[len(open)-1].handle.reserved, int64(32<<30))
	require.LessOrEqual(t, reservedBytes.Load()-before, int64(maxReserved))
	for _, f := range open {
		require.NoError(t, f.Close())
	}
	require.Equal(t, before, reservedBytes.Load())
}

// What is remembered of checked values is bounded by the values in use.
func TestCheckedValuesAreForgotten(t *testing.T) {
	f := openWriting(t, writeTestIndex(t))
	seen(t, f)
	most := 0
	for i := range 100 {
		require.NoError(t, f.Update(func(tx *Tx) error {
			g, s, err := currentState(tx)
			require.NoError(t, err)
			if len(s.Segments) > 1 { // as an addition that merges the last segment
				last := s.Segments[1]
				require.NoError(t, g.DeleteChunk(last.Chunks[0]))
				require.NoError(t, g.DeletePostings(last.ID))
				require.NoError(t, g.DeleteID("again"))
				s.Segments = s.Segments[:1]
				s.Docs -= last.Docs
				s.Live -= last.Docs
				s.Tokens -= last.Tokens
				s.LiveTokens -= last.Tokens
			}
			return putDocs(g, s, []testDoc{{"again", []uint16{uint16(i % 3), 1}, ""}})
		}))
		seen(t, f)
		most = max(most, len(f.handle.passed.bits))
	}
	require.LessOrEqual(t, most, 2*4+2) // two chunks and two segments are in use
	require.NoError(t, f.Close())
}
