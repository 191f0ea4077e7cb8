package index

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func snapshotOf(t *testing.T, path string) *Snapshot {
	t.Helper()
	ix, err := Open(context.Background(), path, nil)
	require.NoError(t, err)
	s := taken(t, ix)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, ix.Close())
	})
	return s
}

func allOf(snaps ...*Snapshot) []CopyFrom {
	var from []CopyFrom
	for _, s := range snaps {
		from = append(from, CopyFrom{Snapshot: s})
	}
	return from
}

// Parts have the rows of the index that they are made of, and together are it again.
func TestSplitAndMerge(t *testing.T) {
	small(t)
	ctx := context.Background()
	dir := testenv.RAMDir(t)
	path := filepath.Join(dir, "x.plaid")
	docs := corpus(90, 6, 8, 5)
	model := &storage.Model{Name: "m", Fingerprint: "f"}
	build(t, path, 8, docs, &BuildOptions{Model: model, Nbits: 2})
	from := snapshotOf(t, path)
	want := digestOf(t, path)
	for _, by := range []SplitBy{ByHash, ByRange} {
		for _, n := range []int{1, 2, 5, 40} {
			parts := filepath.Join(dir, fmt.Sprint(by, n))
			reports, err := Split(ctx, from, parts, n, by, nil)
			require.NoError(t, err)
			require.Len(t, reports, n)
			paths, err := ShardPaths(parts)
			require.NoError(t, err)
			require.Len(t, paths, n)
			var snaps []*Snapshot
			total, tokens, clamped := 0, uint64(0), uint64(0)
			for i, p := range paths {
				require.Equal(t, p, reports[i].Path)
				s := snapshotOf(t, p)
				require.NoError(t, s.Verify(ctx))
				require.Equal(t, reports[i].Docs, s.Len())
				require.Equal(t, reports[i].Tokens, s.State().LiveTokens)
				require.Equal(t, from.Header(), s.Header())
				total += s.Len()
				tokens += s.State().LiveTokens
				clamped += s.State().Clamped
				snaps = append(snaps, s)
			}
			require.Equal(t, []any{90, from.State().LiveTokens, from.State().Clamped}, []any{total, tokens, clamped})
			if by == ByRange && n <= 5 {
				for _, r := range reports {
					require.InDelta(t, float64(tokens)/float64(n), r.Tokens, 7)
				}
			}
			merged := filepath.Join(dir, fmt.Sprint("merged", by, n))
			r, err := Copy(ctx, merged, allOf(snaps...), nil)
			require.NoError(t, err)
			require.Equal(t, CopyReport{Path: merged, Docs: 90, Tokens: tokens}, *r)
			if by == ByRange {
				require.Equal(t, want, digestOf(t, merged), "%d parts", n)
			}
			sameDocuments(t, from, snapshotOf(t, merged))
		}
	}
}

// sameDocuments compares documents by id: vectors as they are decoded, and payloads.
func sameDocuments(t *testing.T, a, b *Snapshot) {
	t.Helper()
	require.Equal(t, a.Len(), b.Len())
	for o := range a.State().Docs {
		if !a.Live(o) {
			continue
		}
		other, ok, err := b.Ordinal(a.ID(o))
		require.NoError(t, err)
		require.True(t, ok)
		x, err := a.Vectors(o)
		require.NoError(t, err)
		y, err := b.Vectors(other)
		require.NoError(t, err)
		require.Equal(t, x, y)
		p, err := a.Payload(o)
		require.NoError(t, err)
		q, err := b.Payload(other)
		require.NoError(t, err)
		require.Equal(t, p, q)
	}
}

// An index that was changed is copied without what was deleted.
func TestCopyOfChanged(t *testing.T) {
	ctx := context.Background()
	dir := testenv.RAMDir(t)
	path, to := filepath.Join(dir, "x.plaid"), filepath.Join(dir, "y.plaid")
	docs := corpus(50, 5, 8, 6)
	build(t, path, 8, docs[:30], nil)
	ix := writing(t, path)
	add(t, ix, 8, docs[30:]...)
	_, _, err := ix.Delete(ctx, []string{"d1", "d20", "d40"})
	require.NoError(t, err)
	require.NoError(t, ix.SetDefaults(&storage.Defaults{Classes: []storage.DefaultClass{{K: 10, Probes: 3}}}))
	snap := taken(t, ix)
	defer snap.Close()
	_, err = Copy(ctx, to, allOf(snap), nil)
	require.NoError(t, err)
	s := snapshotOf(t, to)
	require.NoError(t, s.Verify(ctx))
	require.EqualValues(t, 47, s.State().Docs, "no holes")
	sameDocuments(t, snap, s)
	require.Equal(t, snap.State().AddedTokens, s.State().AddedTokens)
	d, err := s.Defaults()
	require.NoError(t, err)
	require.Equal(t, 3, d.Classes[0].Probes)

	some := filepath.Join(dir, "some.plaid")
	r, err := Copy(ctx, some, []CopyFrom{{snap, roaring.BitmapOf(0, 1, 2, 49, 50, 7000)}}, nil)
	require.NoError(t, err)
	require.Equal(t, 3, r.Docs, "d0, d2 and d49")
	require.NoError(t, snapshotOf(t, some).Verify(ctx))

	_, err = Copy(ctx, to, allOf(snap), nil)
	require.ErrorIs(t, err, storage.ErrExists)
	_, err = Copy(ctx, filepath.Join(dir, "twice"), allOf(snap, s), nil)
	require.ErrorIs(t, err, ErrDuplicateID)
	require.ErrorContains(t, err, `"d0"`)
	require.NoFileExists(t, filepath.Join(dir, "twice"))
	build(t, filepath.Join(dir, "other"), 8, docs, &BuildOptions{Seed: 3})
	_, err = Copy(ctx, filepath.Join(dir, "both"), allOf(snap, snapshotOf(t, filepath.Join(dir, "other"))), nil)
	require.ErrorIs(t, err, ErrCodec)
	_, err = Copy(ctx, filepath.Join(dir, "none"), nil, nil)
	require.ErrorIs(t, err, ErrOption)
	for _, bad := range []func() error{
		func() error { _, err := Split(ctx, snap, filepath.Join(dir, "s"), 0, ByHash, nil); return err },
		func() error { _, err := Split(ctx, snap, filepath.Join(dir, "s"), 2, "size", nil); return err },
	} {
		require.ErrorIs(t, bad(), ErrOption)
	}
	_, err = Split(ctx, snap, dir, 2, ByHash, nil)
	require.ErrorIs(t, err, fs.ErrExist)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Split(canceled, snap, filepath.Join(dir, "s"), 2, ByHash, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Copy(canceled, filepath.Join(dir, "c"), allOf(snap), nil)
	require.ErrorIs(t, err, context.Canceled)
	requireFiles(t, dir, 4)
}

// A codec alone is an index without documents, from which the same indexes are built.
func TestTrain(t *testing.T) {
	ctx := context.Background()
	dir := testenv.RAMDir(t)
	path := func(name string) string { return filepath.Join(dir, name) }
	docs := corpus(80, 6, 8, 7)
	o := &BuildOptions{Seed: 5, Nbits: 4, Pool: 2, Model: &storage.Model{Name: "m", Fingerprint: "f"}}
	build(t, path("direct"), 8, docs, o)
	r, err := Train(ctx, path("codec"), fromDocs(t, 8, docs), o)
	require.NoError(t, err)
	require.Positive(t, r.RMSE)
	c := snapshotOf(t, path("codec"))
	require.NoError(t, c.Verify(ctx))
	in, err := c.Info(ctx)
	require.NoError(t, err)
	require.Zero(t, in.Docs)
	require.Positive(t, in.Header.Centroids)

	build(t, path("like"), 8, docs, &BuildOptions{Like: c})
	require.Equal(t, digestOf(t, path("direct")), digestOf(t, path("like")))
	direct := snapshotOf(t, path("direct"))
	_, err = Copy(ctx, path("alone"), []CopyFrom{{direct, roaring.New()}}, nil)
	require.NoError(t, err)
	require.Equal(t, digestOf(t, path("codec")), digestOf(t, path("alone")))
	a, err := c.CodecDigest()
	require.NoError(t, err)
	b, err := direct.CodecDigest()
	require.NoError(t, err)
	require.Equal(t, a, b)

	// A codec that is there is taken as it is.
	_, err = Train(ctx, path("given"), fromDocs(t, 8, docs[:1]), &BuildOptions{Codec: c.Quantizer(), Pool: 2, Seed: 5})
	require.NoError(t, err)
	given := snapshotOf(t, path("given"))
	require.NoError(t, given.Verify(ctx))
	require.Zero(t, given.Len())
	require.Equal(t, c.Codec(), given.Codec())

	// Parts that are built one by one are those of a split.
	for i, part := range [][]vectors.Document{docs[:30], docs[30:]} {
		build(t, path(fmt.Sprint("part", i)), 8, part, &BuildOptions{Like: c})
	}
	_, err = Copy(ctx, path("merged"), allOf(snapshotOf(t, path("part0")), snapshotOf(t, path("part1"))), nil)
	require.NoError(t, err)
	require.Equal(t, digestOf(t, path("direct")), digestOf(t, path("merged")))

	// It is filled as any index is.
	_, err = Copy(ctx, path("grown"), allOf(c), nil)
	require.NoError(t, err)
	ix := writing(t, path("grown"))
	add(t, ix, 8, docs...)
	requireSameVectors(t, direct, ix)

	for name, bad := range map[string]*BuildOptions{
		"bits": {Like: c, Nbits: 2}, "centroids": {Like: c, Centroids: 3}, "pool": {Like: c, Pool: 3}, "two": {Like: c, Codec: c.Quantizer()}, "scaling": {Like: c, Unnormalized: true},
	} {
		_, err := Build(ctx, path("bad"), fromDocs(t, 8, docs), bad)
		require.ErrorIs(t, err, ErrOption, name)
	}
	_, err = Build(ctx, path("bad"), fromDocs(t, 8, docs), &BuildOptions{Like: c, Model: &storage.Model{Name: "n", Fingerprint: "g"}})
	require.ErrorIs(t, err, storage.ErrModel)
	_, err = Build(ctx, path("bad"), fromDocs(t, 6, corpus(9, 3, 6, 1)), &BuildOptions{Like: c})
	require.ErrorIs(t, err, ErrDimension)
	_, err = Train(ctx, path("bad"), fromDocs(t, 8, docs), &BuildOptions{Like: c})
	require.ErrorIs(t, err, ErrOption)
	require.NoFileExists(t, path("bad"))
}

func requireSameVectors(t *testing.T, a *Snapshot, ix *Index) {
	t.Helper()
	b := taken(t, ix)
	defer b.Close()
	sameDocuments(t, a, b)
}

func init() { testenv.Children["split"] = splitChild }

// splitChild splits and merges until it is killed.
func splitChild() error {
	ctx := context.Background()
	chunkBytes, transactionBytes, maxRunBytes = 300, 500, 5000 // as small does
	dir := os.Getenv("PLAID_TEST_PATH")
	ix, err := Open(ctx, filepath.Join(dir, "x.plaid"), nil)
	if err != nil {
		return err
	}
	s, err := ix.Snapshot()
	if err != nil {
		return err
	}
	fmt.Println("begin")
	for {
		if _, err := Split(ctx, s, filepath.Join(dir, "parts"), 3, ByRange, nil); err != nil {
			return err
		}
		set, err := OpenShards(ctx, []string{filepath.Join(dir, "parts", ShardFileName(0, 3)), filepath.Join(dir, "parts", ShardFileName(1, 3)), filepath.Join(dir, "parts", ShardFileName(2, 3))}, nil)
		if err != nil {
			return err
		}
		parts, err := set.Snapshot()
		if err != nil {
			return err
		}
		if _, err := Copy(ctx, filepath.Join(dir, "merged.plaid"), allOf(parts.Snapshots()...), &CopyOptions{Force: true}); err != nil {
			return err
		}
		fmt.Println("done")
		if err := parts.Close(); err != nil {
			return err
		}
		if err := set.Close(); err != nil {
			return err
		}
		if err := os.RemoveAll(filepath.Join(dir, "parts")); err != nil {
			return err
		}
	}
}

// A process is killed while it splits and merges: what has its name is complete.
func TestSplitKilled(t *testing.T) {
	kills := effort.Cases(3, 10)
	small(t)
	dir := testenv.RAMDir(t)
	path := filepath.Join(dir, "x.plaid")
	build(t, path, 8, corpus(40, 6, 8, 9), nil)
	want := digestOf(t, path)
	for kill := range kills {
		cmd, _, out, stderr := startChild(t, "split", "PLAID_TEST_PATH="+dir)
		lines := bufio.NewScanner(out)
		for i := 0; i <= kill%3 && lines.Scan(); i++ {
		}
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		testenv.WaitUnlocked(t, path, filepath.Join(dir, "merged.plaid"))
		require.Empty(t, stderr.String())
		if _, err := os.Stat(filepath.Join(dir, "merged.plaid")); err == nil {
			ix, err := Open(context.Background(), filepath.Join(dir, "merged.plaid"), nil)
			if err != nil {
				require.ErrorIs(t, err, storage.ErrUnfinished)
			} else {
				require.NoError(t, ix.Close())
				require.Equal(t, want, digestOf(t, filepath.Join(dir, "merged.plaid")))
			}
		}
		parts, err := os.ReadDir(filepath.Join(dir, "parts"))
		if err != nil {
			continue
		}
		for _, p := range parts { // some may have been removed by the child, none is half
			reading(t, filepath.Join(dir, "parts", p.Name()), func(s *Snapshot) { require.NoError(t, s.Verify(context.Background())) })
		}
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "parts")))
	}
}
