//go:build unix

package command

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe at whose other end nobody is, stdin that says nothing: the first
// interrupt ends the wait. Where a pipe is of no use it is refused at once.
func TestInterruptedPipes(t *testing.T) {
	dir := t.TempDir()
	source, pipe := source(t, dir, 2, []float32{1, 0, 0, 1}, 1, 1), filepath.Join(dir, "pipe.npy")
	docs, lens := source[1], source[3]
	require.NoError(t, syscall.Mkfifo(pipe, 0o666))
	text := filepath.Join(dir, "pipe.txt")
	require.NoError(t, syscall.Mkfifo(text, 0o666))
	ix := built(t, dir, source)
	queries := []string{"--queries", docs, "--query-lengths", lens}
	for i, args := range [][]string{
		append([]string{"search", ix, "--ids", text}, queries...),
		append([]string{"search", ix, "--candidates", text}, queries...),
		{"delete", ix, "--ids", text},
		{"import", dir, filepath.Join(dir, "y.plaid"), "--ids", text},
		{"eval", "--qrels", text, docs},
		{"get", ix, "0", "--output", text},
		{"index", filepath.Join(dir, "y.plaid"), "--vectors", text, "--lengths", lens},
		{"add", ix, "--vectors", "-"},
		{"search", ix, "--queries", "-"},
	} {
		for j := range args { // what was interrupted still has its end of a pipe open
			if args[j] == text {
				args[j] = filepath.Join(dir, fmt.Sprintf("pipe%d-%d", i, j))
				require.NoError(t, syscall.Mkfifo(args[j], 0o666))
			}
		}
		requireInterrupted(t, args)
	}
	for _, args := range [][]string{
		{"index", filepath.Join(dir, "y.plaid"), "--vectors", docs, "--lengths", pipe},
		{"add", ix, "--vectors", docs, "--lengths", lens, "--metadata", text},
		{"import", dir, filepath.Join(dir, "y.plaid"), "--metadata", text},
	} {
		code, _, stderr := try(t, args...)
		require.Equal(t, exitFailed, code, args)
		require.Contains(t, stderr, "is a pipe, not a regular file", args)
	}
}
