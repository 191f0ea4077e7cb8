package command

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// newSync keeps an index in another folder as that of the test is.
func newSync(t *testing.T) *folderSync {
	e, err := encode.Open(nano, &encode.Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	var out bytes.Buffer
	s := &folderSync{
		app: newApp(streams{out: &out, err: &out}, nil), path: filepath.Join(t.TempDir(), "x.plaid"), root: t.TempDir(),
		encoder: e, device: folder.Device,
	}
	c := e.Config()
	s.splitting = encode.Splitting{Model: &c, Window: 100}
	return s
}

func (s *folderSync) put(t *testing.T, name, text string) {
	require.NoError(t, os.WriteFile(filepath.Join(s.root, name), []byte(text), 0o666))
}

// Where somebody removes the index while a folder is watched, the next change makes it of
// all files again, and not of what has changed since.
func TestWatchMakesIndexAgain(t *testing.T) {
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep.")
	s.put(t, "b.md", "Dogs bark.")
	r, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 2, r.Added)
	require.NoError(t, os.Remove(s.path))
	s.put(t, "c.md", "Fish swim.")
	r, err = s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 3, r.Added)
	s.known = nil
	require.NoError(t, s.followIndex(t.Context()))
	require.Len(t, s.known, 3)
}

// While another process has the index open, nothing is encoded again and again for it.
func TestWatchWaitsBeforeItEncodes(t *testing.T) {
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep.")
	_, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	ix, err := index.Open(t.Context(), s.path, nil)
	require.NoError(t, err)
	defer ix.Close()
	files, _, err := folder.Scan(t.Context(), s.root, s.maxFileBytes, nil)
	require.NoError(t, err)
	var r folderReport
	err = s.applyChanges(t.Context(), &pending{files: []*folder.File{&files[0]}}, map[string]fileState{}, &r)
	require.ErrorIs(t, err, storage.ErrLocked)
	require.Zero(t, r.Tokens)
}

// A link that leads to another folder by now does not bring that into the index of the first.
func TestWatchFollowsOneFolder(t *testing.T) {
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep.")
	one, two := s.root, t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(two, "b.md"), []byte("Dogs bark."), 0o666))
	s.root = filepath.Join(t.TempDir(), "current")
	if os.Symlink(one, s.root) != nil {
		t.Skip("there are no links")
	}
	_, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, os.Remove(s.root))
	require.NoError(t, os.Symlink(two, s.root))
	_, err = s.syncOnce(t.Context(), nil)
	require.ErrorIs(t, err, errOtherFolder)
	require.NoError(t, os.Remove(s.root))
	require.NoError(t, os.Symlink(one, s.root))
	r, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 1, r.Files)
	require.Zero(t, r.Added+r.Changed+r.Deleted)
}

// That a file or a folder may be read, or no longer, is a change too; what the index has of it
// stays meanwhile, since nobody knows that it has gone.
func TestWatchSeesPermissions(t *testing.T) {
	events := &fsnotify.Watcher{Events: make(chan fsnotify.Event, 1)}
	events.Events <- fsnotify.Event{Name: "a.md", Op: fsnotify.Chmod}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	require.True(t, waitForChange(ctx, events, 0, func() bool { return false }))

	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("everything may be read")
	}
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep.")
	s.put(t, "b.md", "Dogs bark.")
	require.NoError(t, os.Mkdir(filepath.Join(s.root, "sub"), 0o700))
	s.put(t, "sub/c.md", "Fish swim.")
	long := time.Now().Add(-time.Hour)
	for _, name := range []string{"a.md", "sub/c.md"} {
		require.NoError(t, os.Chtimes(filepath.Join(s.root, name), long, long))
	}
	_, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	for name, mode := range map[string]os.FileMode{"a.md": 0o600, "sub": 0o700} {
		path := filepath.Join(s.root, name)
		require.NoError(t, os.Chmod(path, 0))
		t.Cleanup(func() { _ = os.Chmod(path, mode) })
		r, err := s.syncOnce(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, folderReport{Path: s.path, Files: 3, Passed: 1, Seconds: r.Seconds, syncAgain: true}, *r)
		require.NoError(t, os.Chmod(path, mode))
		s.put(t, "a.md", "Cats purr in "+name)
		r, err = s.syncOnce(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 1, r.Changed)
		require.Equal(t, 3, r.Files)
	}
}

// A folder that goes while it is looked at takes nothing with it.
func TestWatchLosesFolder(t *testing.T) {
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep.")
	require.NoError(t, os.Mkdir(filepath.Join(s.root, "sub"), 0o700))
	s.put(t, "sub/b.md", "Dogs bark.")
	_, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	away := filepath.Join(t.TempDir(), "away")
	_, err = s.syncOnce(t.Context(), func(dir string) {
		if filepath.Base(dir) == "sub" {
			require.NoError(t, os.Rename(s.root, away))
		}
	})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.Rename(away, s.root))
	r, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 2, r.Files)
	require.Zero(t, r.Added+r.Changed+r.Deleted)
}

// An agent searches an index all the while that a folder is kept in it, and finds what is new.
func TestWatchBesideAgent(t *testing.T) {
	s := newSync(t)
	s.app.lockTimeout = time.Minute
	s.put(t, "a.md", "Cats sleep.")
	_, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	asks, ask := io.Pipe()
	answers, answer := io.Pipe()
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		ended <- run(t.Context(), []string{"mcp", s.path}, streams{in: asks, out: answer, err: &stderr})
		answer.Close()
	}()
	read := bufio.NewScanner(answers)
	call := func(line string) string {
		_, err := io.WriteString(ask, line+"\n")
		require.NoError(t, err)
		require.True(t, read.Scan(), "%v", read.Err())
		return read.Text()
	}
	require.Contains(t, call(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`), "serverInfo")
	_, err = io.WriteString(ask, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	require.NoError(t, err)
	search := func(word string) string {
		return call(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search","arguments":{"query":"` + word + `"}}}`)
	}
	require.Contains(t, search("cats"), `"id":"a.md"`)
	for i, word := range []string{"owls", "ducks"} {
		s.put(t, word+".md", "The "+word+" swim.")
		r, err := s.syncOnce(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 1, r.Added)
		require.Equal(t, i+2, r.Files)
		require.Contains(t, search(word), `"id":"`+word+`.md"`)
	}
	require.NoError(t, ask.Close())
	require.Zero(t, <-ended, stderr.String())
	require.Empty(t, stderr.String())
}

// A folder that is watched, and an agent, have one file for an index. Several files that are one
// index are refused by name, before a model is read.
func TestSeveralFilesAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"part-0.plaid", "part-1.plaid"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for _, args := range [][]string{{"watch", dir, t.TempDir(), "--model", nano, "--once"}, {"mcp", dir}} {
		code, _, stderr := try(t, args...)
		require.Equal(t, exitFailed, code, stderr)
		require.Contains(t, stderr, "the command needs one file, such as "+filepath.Join(dir, "part-0.plaid"))
	}
}
