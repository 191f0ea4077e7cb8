package index

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage"
)

// Each kind of change whose last sync fails: the open index shows what it held
// before and takes no more changes, and opened again it is sound, with the change.
func TestChangesOfUnknownOutcome(t *testing.T) {
	const dim = 8
	ctx := context.Background()
	docs := corpus(40, 6, dim, 3)
	renewed := corpus(3, 6, dim, 9)
	change := map[string]func(*Index) error{
		"add": func(ix *Index) error {
			_, err := ix.Add(ctx, fromDocs(t, dim, docs[30:]), nil)
			return err
		},
		"replace": func(ix *Index) error {
			_, err := ix.Add(ctx, fromDocs(t, dim, renewed), &AddOptions{Replace: true})
			return err
		},
		"delete": func(ix *Index) error {
			_, _, err := ix.Delete(ctx, []string{"d1", "d5"})
			return err
		},
		"tune": func(ix *Index) error {
			return ix.SetDefaults(&storage.Defaults{Classes: []storage.DefaultClass{{K: 10, Probes: 3}}})
		},
		"compact": func(ix *Index) error { return ix.Compact(ctx, nil) },
	}
	for name, first := range change {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			build(t, path, dim, docs[:30], nil)
			ix := writing(t, path)
			_, _, err := ix.Delete(ctx, []string{"d7"}) // for compaction to leave out
			require.NoError(t, err)
			want := append(docs[:7:7], docs[8:30]...)
			held, err := ix.Snapshot()
			require.NoError(t, err)
			before := snapshotDigest(t, held)

			t.Cleanup(func() { files.HookSynced = nil })
			last := ix.Path()
			if name == "compact" {
				last = filepath.Dir(last)
				files.HookSynced = func(string) error { return errors.New("no answer") } // of the new file, which goes again
				err := first(ix)
				require.ErrorContains(t, err, "no answer")
				require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
			}
			files.HookSynced = func(path string) error {
				if path == last {
					return errors.New("no answer")
				}
				return nil
			}
			require.ErrorIs(t, first(ix), storage.ErrOutcomeUnknown)
			files.HookSynced = nil

			check := func() {
				now, err := ix.Snapshot()
				require.NoError(t, err)
				for _, s := range []*Snapshot{held, now} {
					requireIndex(t, s, want)
					d, err := s.Defaults()
					require.NoError(t, err)
					require.Nil(t, d)
				}
				require.NoError(t, now.Close())
			}
			check()
			for _, next := range change {
				require.ErrorIs(t, next(ix), storage.ErrOutcomeUnknown)
			}
			check()
			require.NoError(t, held.Close())
			require.NoError(t, ix.Close())

			ix = writing(t, path)
			now, err := ix.Snapshot()
			require.NoError(t, err)
			require.NoError(t, now.Verify(ctx))
			d, err := now.Defaults()
			require.NoError(t, err)
			require.True(t, snapshotDigest(t, now) != before || d != nil)
			require.NoError(t, now.Close())
			require.NoError(t, ix.Compact(ctx, nil))
			require.NoError(t, ix.Close())
		})
	}
}

// A first build whose last sync fails leaves nothing, and so has a known outcome.
func TestFirstBuildOfUnknownOutcome(t *testing.T) {
	path := newPath(t)
	docs := corpus(10, 6, 8, 3)
	o := &BuildOptions{Progress: func(p Progress) {
		if p.Stage == "encode" {
			files.HookSynced = func(string) error { return errors.New("no answer") }
		}
	}}
	t.Cleanup(func() { files.HookSynced = nil })
	_, err := Build(context.Background(), path, fromDocs(t, 8, docs), o)
	require.ErrorContains(t, err, "removed again")
	require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
	require.NoFileExists(t, path)
	files.HookSynced = nil
	build(t, path, 8, docs, nil)

	_, err = Build(context.Background(), path, fromDocs(t, 8, docs[:4]), &BuildOptions{Force: true, Progress: o.Progress})
	require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
	files.HookSynced = nil
	reading(t, path, func(s *Snapshot) { require.NoError(t, s.Verify(context.Background())) })
}
