package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// old gives a file a time that tells whether it has changed.
func (s *folderSync) old(t *testing.T, name string, ago time.Duration) {
	at := time.Now().Add(-ago)
	require.NoError(t, os.Chtimes(filepath.Join(s.root, name), at, at))
}

// now syncs, and returns what it came to: files, and how many were added, changed, deleted, kept.
func (s *folderSync) now(t *testing.T) [5]int {
	t.Helper()
	r, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	return [5]int{r.Files, r.Added, r.Changed, r.Deleted, r.Kept}
}

// again is the next process that keeps the index.
func (s *folderSync) next() {
	s.known, s.indexed, s.mounts, s.rootStored, s.otherCuts = nil, indexState{}, nil, false, 0
}

// The documents of files stay while their file system is away, however often the folder is
// looked at, and by whom.
func TestWatchKeepsFilesOfMounts(t *testing.T) {
	s := newSync(t)
	devices := map[string]string{".": "1", "sub": "2"}
	s.device = func(dir string) (string, error) {
		if _, err := os.Lstat(dir); err != nil {
			return "", err
		}
		rel, err := filepath.Rel(s.home, dir)
		first, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		if device, ok := devices[first]; ok {
			return device, err
		}
		return devices["."], err
	}
	sub, away := filepath.Join(s.root, "sub"), filepath.Join(t.TempDir(), "away")
	require.NoError(t, os.MkdirAll(filepath.Join(sub, "deep"), 0o777))
	for _, name := range []string{"a.md", "b.md", "sub/c.md", "sub/deep/d.md"} {
		s.put(t, name, "Cats sleep in "+name)
	}
	require.Equal(t, [5]int{4, 4}, s.now(t))

	for _, there := range []bool{true, false} { // the folder of the mount
		require.NoError(t, os.Rename(sub, away))
		if there {
			require.NoError(t, os.Mkdir(sub, 0o777))
		}
		devices["sub"] = "1"
		for range 3 {
			r, err := s.syncOnce(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, [3]int{4, 0, 2}, [3]int{r.Files, r.Deleted, r.Kept})
			require.Contains(t, r.keptReason, filepath.Join(s.root, "sub")+": ")
			require.Contains(t, r.keptReason, "--allow-empty")
			s.next()
		}
		require.NoError(t, os.RemoveAll(sub))
		require.NoError(t, os.Rename(away, sub))
		devices["sub"] = "3" // mounted again, under another number
		require.True(t, s.disturbed())
		require.Equal(t, [5]int{4}, s.now(t))
		require.False(t, s.disturbed())
		s.next()
	}
	require.NoError(t, os.Remove(filepath.Join(sub, "c.md")))
	require.Equal(t, [5]int{3, 0, 0, 1}, s.now(t)) // it is known to be on the file system that is there

	require.NoError(t, os.Rename(sub, away))
	require.Equal(t, [5]int{3, 0, 0, 0, 1}, s.now(t))
	s.allowEmpty = true
	require.Equal(t, [5]int{2, 0, 0, 1}, s.now(t))
	require.False(t, s.allowEmpty)

	devices["."] = "4" // all of it, after a restart of the system
	require.Equal(t, [5]int{2}, s.now(t))
	require.NoError(t, os.Remove(filepath.Join(s.root, "a.md")))
	devices["."] = "5"
	require.Equal(t, [5]int{2, 0, 0, 0, 1}, s.now(t))
	devices["."] = "4"
	require.Equal(t, [5]int{1, 0, 0, 1}, s.now(t))
}

// Where devices tell nothing, the documents stay if all files have vanished, or more than half of
// many.
func TestWatchKeepsFilesThatVanishTogether(t *testing.T) {
	s := newSync(t)
	s.device = func(string) (string, error) { return "", nil }
	names := []string{"a.md", "b.md", "c.md", "d.md"}
	for _, name := range names {
		s.put(t, name, "Cats sleep in "+name)
	}
	require.Equal(t, [5]int{4, 4}, s.now(t))
	for _, name := range names {
		require.NoError(t, os.Remove(filepath.Join(s.root, name)))
	}
	require.Equal(t, [5]int{4, 0, 0, 0, 4}, s.now(t))
	s.put(t, "new.md", "A new one.")
	require.Equal(t, [5]int{5, 1, 0, 0, 4}, s.now(t))
	require.Equal(t, [5]int{5, 0, 0, 0, 4}, s.now(t), "four of five")
}

// How many files may vanish at a time, of how many.
func TestWatchFewFilesVanish(t *testing.T) {
	s := &folderSync{home: t.TempDir(), device: func(string) (string, error) { return "", nil }}
	for files, most := range map[int]int{1: 0, 2: 1, 4: 3, 5: 2, 6: 3, 20: 10, 21: 10, 40: 20, 41: 20} {
		s.known = map[string]fileState{}
		m := missingFiles{sync: s, visible: files}
		for i := range files {
			m.paths = append(m.paths, fmt.Sprintf("%d.md", i))
		}
		all := m.paths
		for gone := range files + 1 {
			m.paths, m.keptFiles, m.visible = slices.Clone(all[:gone]), nil, files
			deleted, err := m.deletedFiles()
			require.NoError(t, err)
			if gone <= most {
				require.Len(t, deleted, gone, "%d of %d", gone, files)
				require.Empty(t, m.keptFiles)
			} else {
				require.Empty(t, deleted, "%d of %d", gone, files)
				require.Len(t, m.keptFiles, gone)
			}
		}
	}
}

// Files that have other names, or are there and no longer taken, have not vanished.
func TestWatchTellsMovedFromVanished(t *testing.T) {
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep.")
	s.put(t, "b.md", "Dogs bark.")
	require.Equal(t, [5]int{2, 2}, s.now(t))
	require.NoError(t, os.Rename(filepath.Join(s.root, "a.md"), filepath.Join(s.root, "c.md")))
	s.put(t, "b.md", "Dogs\x00bark.")
	require.Equal(t, [5]int{1, 1, 0, 2}, s.now(t))
}

// A file system that comes or goes during a sync ends it.
func TestWatchMountsDuringLook(t *testing.T) {
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep.")
	asked := 0
	s.device = func(string) (string, error) {
		asked++
		return fmt.Sprint(min(asked, 4)), nil
	}
	_, err := s.syncOnce(t.Context(), nil)
	require.ErrorIs(t, err, errMounted)
	r, err := s.syncUntilStable(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, r.Added)
}

// others changes the index of a folder as another command does.
func (s *folderSync) others(t *testing.T, change func(*index.Index) error) {
	ix, err := index.Open(t.Context(), s.path, &index.Options{Write: true, LockTimeout: time.Minute})
	require.NoError(t, err)
	require.NoError(t, change(ix))
	require.NoError(t, ix.Close())
}

// What others delete, change or put in the place of an index is put right at the next sync, and
// what has not changed is not read again.
func TestWatchHealsIndex(t *testing.T) {
	s := newSync(t)
	s.splitting.Window = 4
	s.put(t, "a.md", "Cats sleep by day. Dogs bark at night. Fish swim in the sea.")
	s.put(t, "b.md", "Owls fly.")
	s.old(t, "a.md", time.Hour)
	s.old(t, "b.md", time.Hour)
	require.Equal(t, [5]int{2, 2}, s.now(t))
	first, err := os.ReadFile(s.path)
	require.NoError(t, err)
	s.put(t, "c.md", "Ducks swim.")
	s.old(t, "c.md", time.Hour)
	r, err := s.syncOnce(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 1, r.Added)
	require.False(t, r.syncAgain) // nobody else has changed anything
	require.False(t, s.disturbed())
	require.Equal(t, [5]int{3}, s.now(t))

	set := func(where, field, value string) func(*index.Index) error {
		return func(ix *index.Index) error {
			e, err := condition.Parse(where)
			require.NoError(t, err)
			bound, err := e.Bind()
			require.NoError(t, err)
			n, err := ix.UpdatePayload(t.Context(), bound, condition.Fields{field: json.RawMessage(value)})
			require.Positive(t, n.Documents)
			return err
		}
	}
	remove := func(ids ...string) func(*index.Index) error {
		return func(ix *index.Index) error {
			_, missing, err := ix.Delete(t.Context(), ids)
			require.Empty(t, missing)
			return err
		}
	}
	for _, test := range []struct {
		name   string
		change func(*index.Index) error
		want   [5]int
	}{
		{"a document", remove("b.md"), [5]int{3, 1}},
		{"all documents", remove("a.md", "b.md", "c.md"), [5]int{3, 3}},
		{"a passage", remove("a.md#1"), [5]int{3, 0, 1}},
		{"the last passages", remove("a.md#2", "a.md#1"), [5]int{3, 0, 1}},
		{"text", set("path = 'b.md'", "text", `"Owls sleep."`), [5]int{3, 0, 1}},
		{"digest", set("path = 'b.md'", "digest", `"0"`), [5]int{3, 0, 1}},
		{"path", set("path = 'b.md'", "path", `"d.md"`), [5]int{3, 1}},
		{"another field", set("path = 'b.md'", "kind", `"note"`), [5]int{3}},
		{"nothing", func(ix *index.Index) error { return ix.Compact(t.Context(), nil) }, [5]int{3}},
	} {
		s.others(t, test.change)
		require.True(t, s.disturbed(), test.name)
		require.Equal(t, test.want, s.now(t), test.name)
		require.False(t, s.disturbed(), test.name)
		require.Equal(t, [5]int{3}, s.now(t), test.name)
	}
	require.NoError(t, os.WriteFile(s.path, first, 0o666))
	require.Equal(t, [5]int{3, 1}, s.now(t))
	require.NoError(t, os.WriteFile(s.path+".new", first, 0o666))
	require.NoError(t, os.Rename(s.path+".new", s.path))
	require.Equal(t, [5]int{3, 1}, s.now(t))
}

// What others change while files are encoded is put right by the next sync.
func TestWatchHealsWhatChangesDuringLook(t *testing.T) {
	s := newSync(t)
	for i := range 3 {
		s.put(t, fmt.Sprintf("%d.md", i), "Cats sleep.")
	}
	require.Equal(t, [5]int{3, 3}, s.now(t))
	s.put(t, "new.md", "Owls fly.")
	s.afterRead = func() {
		s.afterRead = nil
		s.others(t, func(ix *index.Index) error {
			_, _, err := ix.Delete(t.Context(), []string{"1.md"})
			return err
		})
	}
	r, err := s.syncUntilStable(t.Context())
	require.NoError(t, err)
	require.Equal(t, [3]int{4, 2, 0}, [3]int{r.Files, r.Added, r.Changed})
}

// Files are cut again where they are to be cut otherwise; but two processes that each do so do
// not go on for ever.
func TestWatchCutsAgain(t *testing.T) {
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep by day. Dogs bark at night. Fish swim in the sea.")
	s.old(t, "a.md", time.Hour)
	require.Equal(t, [5]int{1, 1}, s.now(t))
	for _, change := range []func(){
		func() { s.splitting.Window = 8 }, func() { s.splitting.Overlap = 2 },
		func() { s.splitting.By = "words" }, func() { s.splitting.Model = nil },
	} {
		was := s.splitting
		change()
		require.NotEqual(t, folder.Cut(was), folder.Cut(s.splitting))
		s.next()
		require.Equal(t, [5]int{1, 0, 1}, s.now(t))
		s.next()
		require.Equal(t, [5]int{1}, s.now(t))
	}
	other := *s
	other.next()
	other.splitting.Window = 5
	for range 2 {
		require.Equal(t, [5]int{1, 0, 1}, other.now(t))
		require.Equal(t, [5]int{1, 0, 1}, s.now(t))
	}
	require.Equal(t, [5]int{1, 0, 1}, other.now(t))
	_, err := s.syncOnce(t.Context(), nil)
	require.ErrorIs(t, err, errOtherCut)
	require.ErrorContains(t, err, "words 8+2 of 0 words; end one of them")
	require.Equal(t, exitUsage, exitCode(err))
}

// lockedBuffer is written and read by two goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// While plaid watch runs, the documents of an emptied folder stay, and those that others delete
// come back without an event in the folder.
func TestWatchKeepsAndHealsWhileItRuns(t *testing.T) {
	s := newSync(t)
	s.put(t, "a.md", "Cats sleep.")
	s.put(t, "b.md", "Dogs bark.")
	ctx, stop := context.WithCancel(t.Context())
	var out, stderr lockedBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"watch", s.path, s.root, "--model", nano}, streams{out: &out, err: &stderr})
	}()
	defer func() {
		stop()
		<-ended
	}()
	has := func(ids ...string) func() bool {
		return func() bool {
			ix, err := index.Open(t.Context(), s.path, &index.Options{LockTimeout: time.Minute})
			if err != nil {
				return false
			}
			defer ix.Close()
			for _, id := range ids {
				if has, err := ix.Has(id); err != nil || !has {
					return false
				}
			}
			return true
		}
	}
	require.Eventually(t, has("a.md", "b.md"), time.Minute, 20*time.Millisecond, &stderr)
	s.others(t, func(ix *index.Index) error {
		_, _, err := ix.Delete(t.Context(), []string{"a.md"})
		return err
	})
	require.Eventually(t, has("a.md", "b.md"), time.Minute, 20*time.Millisecond, &stderr)
	for _, name := range []string{"a.md", "b.md"} {
		require.NoError(t, os.Rename(filepath.Join(s.root, name), filepath.Join(s.root, "."+name)))
	}
	warned := func() bool { return strings.Contains(stderr.String(), "of 2 files that "+s.path+" has, 2 are gone") }
	require.Eventually(t, warned, time.Minute, 20*time.Millisecond, &stderr)
	s.put(t, "c.md", "Fish swim.")
	require.Eventually(t, has("a.md", "b.md", "c.md"), time.Minute, 20*time.Millisecond, &stderr)
	require.Contains(t, out.String(), "2 gone but kept")
}
