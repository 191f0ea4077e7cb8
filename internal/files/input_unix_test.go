//go:build unix

package files

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPipes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o666))
	_, _, err := OpenInput(pipe)
	require.ErrorIs(t, err, ErrNotRegular)
	require.ErrorContains(t, err, "is a pipe")
	_, _, err = openNow(pipe) // which took the place of a file a moment ago
	require.ErrorIs(t, err, ErrNotRegular)
	_, _, err = OpenInput(os.DevNull)
	require.ErrorIs(t, err, ErrNotRegular)

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = Stream(ctx, pipe) // nobody writes
	require.ErrorIs(t, err, context.Canceled)

	both, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer both.Close()
	ctx, cancel = context.WithCancel(t.Context())
	s, err := Stream(ctx, pipe)
	require.NoError(t, err)
	defer s.Close()
	_, err = both.WriteString("abc")
	require.NoError(t, err)
	b := make([]byte, 3)
	_, err = io.ReadFull(s, b)
	require.NoError(t, err)
	require.Equal(t, "abc", string(b))
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = s.Read(b) // nobody writes any more
	require.ErrorIs(t, err, context.Canceled)
}
