//go:build unix

package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

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

// A build ends when the program that has started it does, whatever it waits for, and its folder goes.
func TestBuildEndsWithItsStarter(t *testing.T) {
	dir := t.TempDir()
	source, scratch := source(t, dir, 2, []float32{1, 0, 0, 1}, 1, 1), filepath.Join(dir, "scratch")
	text := filepath.Join(scratch, "pipe.npy")
	require.NoError(t, os.Mkdir(scratch, 0o777))
	require.NoError(t, syscall.Mkfifo(text, 0o666))
	in, starter := io.Pipe()
	defer starter.Close()
	var said bytes.Buffer
	code := run(t.Context(), []string{"index", filepath.Join(dir, "x.plaid"), "--vectors", "-", "--lengths", source[3], "--until-eof"},
		streams{in: in, out: io.Discard, err: &said})
	require.Equal(t, exitUsage, code, said.String())
	require.Contains(t, said.String(), "stdin cannot be read: --until-eof waits for its end")

	in, starter = io.Pipe()
	time.AfterFunc(20*time.Millisecond, func() { starter.Close() })
	var stderr bytes.Buffer
	code = run(t.Context(), []string{"index", filepath.Join(scratch, "x.plaid"), "--vectors", text, "--lengths", source[3],
		"--until-eof", "--temporary", scratch}, streams{in: in, out: io.Discard, err: &stderr})
	require.Equal(t, exitInterrupted, code, stderr.String())
	require.NoDirExists(t, scratch)
}
