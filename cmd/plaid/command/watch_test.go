package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/race"
)

func newFolderSync(t *testing.T, root string) *folderSync {
	e, err := encode.Open("../../../examples/quickstart/colbert-nano", &encode.Options{Threads: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	s := &folderSync{app: newApp(streams{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}}, nil), path: filepath.Join(t.TempDir(), "x.plaid"), root: root, encoder: e}
	s.app.lockTimeout = time.Minute
	s.limits.File = 200
	s.parting = encode.Parting{Size: 3, Overlap: 1}
	s.build.Threads = 1
	return s
}

// requireAsFolder: the index has the passages that the files of the folder have now, and no
// others.
func requireAsFolder(t *testing.T, s *folderSync) {
	t.Helper()
	want, got := map[string]string{}, map[string]string{}
	files, _, err := folder.Scan(t.Context(), s.root, s.limits, nil)
	require.NoError(t, err)
	for _, f := range files {
		c, err := f.Read(s.limits)
		if errors.Is(err, folder.ErrBinary) {
			continue
		}
		require.NoError(t, err)
		for p, err := range c.Texts(s.parting) {
			require.NoError(t, err)
			want[p.ID] = string(p.Payload)
		}
	}
	err = s.app.openSnapshot(t.Context(), s.path, func(_ *index.Index, snap *index.Snapshot) error {
		for ordinal := range snap.State().Docs {
			if snap.Live(ordinal) {
				d, err := snap.At(ordinal)
				require.NoError(t, err)
				got[d.ID] = string(d.Payload)
			}
		}
		return nil
	})
	if len(want) == 0 && errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Files come, change, move and go, at random; after each look the index is as the folder is.
func TestIndexFollowsFolder(t *testing.T) {
	steps := race.Cases(15, 60, 300)
	root := t.TempDir()
	s := newFolderSync(t, root)
	rng := rand.New(rand.NewPCG(7, 0))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	name := func() string {
		return filepath.Join(root, pick("a", "b"), pick("x.md", "y.go", "z.txt", "x.md#1.md", "x.md#1"))
	}
	for step := range steps {
		for range 1 + rng.IntN(3) {
			at := name()
			require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o777))
			switch rng.IntN(9) {
			case 0:
				if err := os.Remove(at); err != nil {
					require.ErrorIs(t, err, fs.ErrNotExist)
				}
			case 1:
				if err := os.Rename(at, name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
					require.NoError(t, os.MkdirAll(filepath.Join(root, "b"), 0o777))
				}
			case 2:
				require.NoError(t, os.MkdirAll(filepath.Join(root, "a"), 0o777))
				require.NoError(t, os.WriteFile(filepath.Join(root, "a", ".gitignore"), []byte(pick("", "x.md", "*.go\n!y.go", "*")), 0o666))
			case 3:
				require.NoError(t, os.RemoveAll(filepath.Join(root, pick("a", "b"))))
			case 4:
				require.NoError(t, os.WriteFile(at, []byte(pick("\xff", "", " \n", strings.Repeat("long ", 50))), 0o666))
			default:
				var text strings.Builder
				for range rng.IntN(8) {
					text.WriteString(pick("cats sleep", "# Dogs", "they bark.", "func a() {\n}\n") + pick(" ", "\n", "\n\n"))
				}
				require.NoError(t, os.WriteFile(at, []byte(text.String()), 0o666))
			}
		}
		if rng.IntN(10) == 0 {
			s.known = nil // another process
		}
		r, err := s.look(t.Context(), nil)
		if !errors.Is(err, errNothingToIndex) {
			require.NoError(t, err, "step %d", step)
			requireAsFolder(t, s)
			again, err := s.look(t.Context(), nil)
			require.NoError(t, err)
			require.Zero(t, again.Added+again.Changed+again.Deleted+again.Passages, "step %d: %+v after %+v", step, again, r)
		}
	}
}

// What happens in a folder that is watched is found soon, and the index is free between.
func TestWatchFollows(t *testing.T) {
	root := t.TempDir()
	s := newFolderSync(t, root)
	require.NoError(t, os.WriteFile(filepath.Join(root, "a.md"), []byte("cats sleep"), 0o666))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.app.watch(ctx, s) }()
	other := newApp(streams{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}}, nil)
	other.lockTimeout = time.Minute
	has := func(id string) (there bool) {
		err := other.open(t.Context(), s.path, false, func(ix *index.Index) (err error) {
			there, err = ix.Has(id)
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) {
			require.NoError(t, err)
		}
		return there
	}
	eventually := func(what func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !what(); time.Sleep(20 * time.Millisecond) {
			require.True(t, time.Now().Before(deadline))
		}
	}
	eventually(func() bool { return has("a.md") })
	for i := range 3 {
		name := fmt.Sprintf("new/deep%d/b.md", i)
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("dogs bark"), 0o666))
		eventually(func() bool { return has(name) })
	}
	require.NoError(t, os.RemoveAll(filepath.Join(root, "new")))
	eventually(func() bool { return !has("new/deep0/b.md") && !has("new/deep2/b.md") })
	require.True(t, has("a.md"))
	end()
	require.NoError(t, <-done)
}

func TestBestLine(t *testing.T) {
	n, line := bestLine("\none cat\n  two Cats, and a dog\n", "Where are cats and dogs?")
	require.Equal(t, 2, n)
	require.Equal(t, "two Cats, and a dog", line)
	n, line = bestLine("\n\nfirst\nsecond", "nothing")
	require.Equal(t, 2, n)
	require.Equal(t, "first", line)
	_, line = bestLine("", "x")
	require.Empty(t, line)
}
