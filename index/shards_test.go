package index

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// twoParts builds two files with one codec.
func twoParts(t *testing.T, docs []vectors.Document) (paths [2]string) {
	t.Helper()
	ctx := context.Background()
	dir := testenv.RAMDir(t)
	_, err := Train(ctx, filepath.Join(dir, "codec"), fromDocs(t, 8, docs), nil)
	require.NoError(t, err)
	c := snapshotOf(t, filepath.Join(dir, "codec"))
	for i := range paths {
		paths[i] = filepath.Join(dir, ShardFileName(i, 2))
		half := len(docs) / 2
		build(t, paths[i], 8, docs[i*half:(i+1)*half], &BuildOptions{Like: c})
	}
	return paths
}

// idsOf are ids that go to each of n parts when they are new.
func idsOf(n int, prefix string) []string {
	ids := make([]string, n)
	for found, i := 0, 0; found < n; i++ {
		id := prefix + string(rune('a'+i%26)) + string(rune('a'+i/26))
		if p := HashShard(id, n); ids[p] == "" {
			ids[p], found = id, found+1
		}
	}
	return ids
}

// A change that fails in a file names it, and those where it is done.
func TestSetFailsInTheMiddle(t *testing.T) {
	ctx := context.Background()
	paths := twoParts(t, corpus(40, 4, 8, 2))
	first := writing(t, paths[0])
	second, err := Open(ctx, paths[1], nil) // which cannot be changed
	require.NoError(t, err)
	defer second.Close()
	set, err := NewShards(first, second)
	require.NoError(t, err)
	ids := idsOf(2, "new")
	docs := corpus(2, 4, 8, 3)
	docs[0].ID, docs[1].ID = ids[0], ids[1]
	_, err = set.Add(ctx, fromDocs(t, 8, docs), nil)
	var failed *ShardsError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, storage.ErrReadOnly)
	require.Equal(t, ShardsError{Path: second.Path(), Done: []string{first.Path()}, Err: failed.Err}, *failed)
	snap, err := set.Snapshot()
	require.NoError(t, err)
	require.EqualValues(t, 41, snap.Len())
	part, _, err := snap.FindShard(ids[0])
	require.NoError(t, err)
	require.Zero(t, part)
	part, _, err = snap.FindShard(ids[1])
	require.NoError(t, err)
	require.Equal(t, -1, part)
	require.NoError(t, snap.Close())
	_, _, err = set.Delete(ctx, []string{"d39"}) // nothing is done elsewhere
	require.ErrorIs(t, err, storage.ErrReadOnly)
	require.NotErrorAs(t, err, &failed)

	// What is wrong with the input is found before anything is changed.
	docs[1].ID = "d39"
	_, err = set.Add(ctx, fromDocs(t, 8, docs[1:]), nil)
	require.ErrorIs(t, err, ErrDuplicateID)
	require.ErrorContains(t, err, paths[1])
	_, err = set.Add(ctx, fromDocs(t, 6, corpus(3, 3, 6, 1)), nil)
	require.ErrorIs(t, err, ErrDimension)
	require.NoError(t, set.Close())
}

// An id that is in several files is one document after it has been replaced.
func TestSetReplacesAll(t *testing.T) {
	ctx := context.Background()
	docs := corpus(40, 4, 8, 4)
	docs[30].ID = "d3"
	dir := testenv.RAMDir(t)
	_, err := Train(ctx, filepath.Join(dir, "codec"), fromDocs(t, 8, docs[:20]), nil)
	require.NoError(t, err)
	c := snapshotOf(t, filepath.Join(dir, "codec"))
	a, b := filepath.Join(dir, "a.plaid"), filepath.Join(dir, "b.plaid")
	build(t, a, 8, docs[:20], &BuildOptions{Like: c})
	build(t, b, 8, docs[20:], &BuildOptions{Like: c})
	paths, err := ShardPaths(dir)
	require.NoError(t, err)
	require.Equal(t, []string{a, b}, paths)
	set, err := OpenShards(ctx, paths, &Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	r, err := set.Add(ctx, fromDocs(t, 8, []vectors.Document{{ID: "d3", Tokens: docs[5].Tokens}}), &AddOptions{Replace: true})
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 0}, []int{r.Docs, r.Replaced, r.Deleted}, "nothing was to be deleted")
	snap, err := set.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	require.EqualValues(t, 39, snap.Len())
	_, there, err := snap.Snapshots()[1].Ordinal("d3")
	require.NoError(t, err)
	require.False(t, there)
	_, err = OpenShards(ctx, []string{c.Path(), c.Path()}, nil)
	require.ErrorIs(t, err, ErrOption)
	_, err = ShardPaths(t.TempDir())
	require.ErrorIs(t, err, storage.ErrNotIndex)
}

// All files of a set are asked whether an addition is made before the first is changed, those that only
// lose documents too; by its own turn a file is asked again if it has changed.
func TestSetAddIf(t *testing.T) {
	paths := twoParts(t, corpus(40, 4, 8, 6))
	set, err := OpenShards(t.Context(), paths[:], &Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	second := set.Files()[1]
	ids, fresh := idsOf(2, "new"), corpus(3, 4, 8, 7)
	errUnwanted := errors.New("unwanted")
	both, one := []vectors.Document{fresh[0], fresh[1]}, []vectors.Document{fresh[0]}
	both[0].ID, both[1].ID, one[0].ID = ids[0], ids[1], ids[0]
	other := idsOf(2, "other")[1]
	meanwhile := []vectors.Document{{ID: other, Tokens: fresh[2].Tokens}}
	for _, docs := range [][]vectors.Document{both, one} { // the second file has d39
		for _, change := range []bool{false, true} {
			var asked []string
			o := &AddOptions{Delete: []string{"d39"}, If: func(now *Snapshot) error {
				asked = append(asked, now.Path())
				switch {
				case change && len(asked) == 2: // before the turn of the file
					_, err := second.Add(t.Context(), fromDocs(t, 8, meanwhile), nil)
					return err
				case now.Path() == second.Path():
					return errUnwanted
				}
				return nil
			}}
			_, err = set.Add(t.Context(), fromDocs(t, 8, docs), o)
			require.ErrorIs(t, err, errUnwanted)
			require.ErrorContains(t, err, second.Path())
			var failed *ShardsError
			require.Equal(t, change, errors.As(err, &failed))
			snap, err := set.Snapshot()
			require.NoError(t, err)
			if change {
				require.Equal(t, []string{paths[0], paths[1], paths[1]}, asked)
				require.EqualValues(t, 42, snap.Len())
				_, _, err = set.Delete(t.Context(), []string{ids[0], other})
				require.NoError(t, err)
			} else {
				require.Equal(t, paths[:], asked)
				require.EqualValues(t, 40, snap.Len(), "nothing is done")
			}
			require.NoError(t, snap.Close())
		}
	}
	asked := 0
	_, err = set.Add(t.Context(), fromDocs(t, 8, both), &AddOptions{If: func(*Snapshot) error { asked++; return nil }})
	require.NoError(t, err)
	require.Equal(t, 2, asked)
}

// A file that is followed may be replaced, but not by one of another codec.
func TestSetFollowsOneCodec(t *testing.T) {
	ctx := context.Background()
	docs := corpus(40, 4, 8, 5)
	paths := twoParts(t, docs)
	set, err := OpenShards(ctx, paths[:], nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	replace := func(o *BuildOptions, n int) {
		build(t, paths[1]+".new", 8, docs[20:20+n], o)
		require.NoError(t, os.Rename(paths[1]+".new", paths[1]))
		_, err := set.Files()[1].Refresh(ctx)
		require.NoError(t, err)
	}
	first := snapshotOf(t, paths[0])
	replace(&BuildOptions{Like: first}, 9)
	snap, err := set.Snapshot()
	require.NoError(t, err)
	require.EqualValues(t, 29, snap.Len())
	require.NoError(t, snap.Close())
	replace(&BuildOptions{Seed: 4}, 9)
	_, err = set.Snapshot()
	require.ErrorIs(t, err, ErrCodec)
	replace(&BuildOptions{Like: first}, 20)
	snap, err = set.Snapshot()
	require.NoError(t, err)
	require.EqualValues(t, 40, snap.Len())
	require.NoError(t, snap.Close())
}

// What is wrong with one payload of one file changes nothing in any, and a field need be
// in one file only.
// Snapshots are searched together if their codec is one, which is compared once.
func TestTogether(t *testing.T) {
	docs := corpus(40, 4, 8, 5)
	paths := twoParts(t, docs)
	a, b := snapshotOf(t, paths[0]), snapshotOf(t, paths[1])
	same := map[*kernels.Codec]int{}
	for _, parts := range [][]*Snapshot{{a}, {b}, {a, b}, {b, a}} {
		snap, err := JoinSnapshots(same, parts...)
		require.NoError(t, err)
		require.Equal(t, parts, snap.Snapshots())
		require.NoError(t, snap.Close())
		require.True(t, a.Live(0), "it is the caller's")
	}
	require.Len(t, same, 2)
	require.Equal(t, same[a.Codec()], same[b.Codec()])
	other := newPath(t)
	build(t, other, 8, docs[:20], &BuildOptions{Seed: 4, Nbits: 2})
	var differ *CodecError
	_, err := JoinSnapshots(same, a, b, snapshotOf(t, other))
	require.ErrorAs(t, err, &differ)
	_, err = JoinSnapshots(same, snapshotOf(t, other), a)
	require.ErrorAs(t, err, &differ)
}

func TestSetPayloads(t *testing.T) {
	ctx := context.Background()
	docs := corpus(40, 4, 8, 7)
	for i := range docs {
		docs[i].Payload = fmt.Appendf(nil, `{"n":%d,"part%d":true}`, i, i/20)
	}
	docs[33].Payload = []byte("[1]") // is in the second file
	paths := twoParts(t, docs)
	set, err := OpenShards(ctx, paths[:], &Options{Write: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	digests := func() []string {
		return []string{digestOfIndex(t, set.Files()[0]), digestOfIndex(t, set.Files()[1])}
	}
	before := digests()
	checked := condition.Fields{"checked": json.RawMessage("true")}
	_, err = set.UpdatePayload(ctx, where(t, "1=1"), checked)
	require.ErrorIs(t, err, condition.ErrNotObject)
	require.ErrorContains(t, err, `document "d33"`)
	require.ErrorContains(t, err, paths[1])
	_, err = set.UpdatePayload(ctx, where(t, "part2 = 1"), checked)
	require.ErrorIs(t, err, condition.ErrUnknownField)
	_, err = set.UpdatePayload(ctx, where(t, "1=1"), condition.Fields{"_id": json.RawMessage("1")})
	require.ErrorIs(t, err, ErrOption)
	_, _, err = set.SetPayload(ctx, map[string][]byte{"d1": []byte("{}"), "d39": []byte("\xff")})
	require.ErrorIs(t, err, vectors.ErrPayload)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = set.UpdatePayload(canceled, where(t, "n > 1"), checked)
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = set.SetPayload(canceled, map[string][]byte{"d1": nil})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, digests())

	n, err := set.UpdatePayload(ctx, where(t, "part1 = 1 OR n < 2"), checked)
	require.NoError(t, err)
	require.Equal(t, Affected{Documents: 21}, n) // d33 has no fields
	n, missing, err := set.SetPayload(ctx, map[string][]byte{"d2": []byte(`{"checked":1}`), "nobody": nil, "d33": nil})
	require.NoError(t, err)
	require.Equal(t, []any{Affected{Documents: 2}, []string{"nobody"}}, []any{n, missing})
	for i, ix := range set.Files() {
		snap := taken(t, ix)
		require.NoError(t, snap.Verify(ctx))
		found, err := snap.Select(ctx, where(t, "checked = 1"))
		require.NoError(t, err)
		require.EqualValues(t, []int{3, 19}[i], found.GetCardinality())
		require.NoError(t, snap.Close())
	}

	// The second file cannot be changed: what is done in the first is said.
	first := set.Files()[0]
	path := newPath(t)
	like, err := set.Files()[0].Snapshot()
	require.NoError(t, err)
	build(t, path, 8, docs[20:30], &BuildOptions{Like: like})
	require.NoError(t, like.Close())
	second, err := Open(ctx, path, nil)
	require.NoError(t, err)
	defer second.Close()
	mixed, err := NewShards(first, second)
	require.NoError(t, err)
	_, err = mixed.UpdatePayload(ctx, where(t, "n > 10"), checked)
	var failed *ShardsError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, storage.ErrReadOnly)
	require.Equal(t, []string{first.Path()}, failed.Done)
	require.NoError(t, mixed.Close())
}

// Hashes spread ids evenly, and do not change.
func TestPlace(t *testing.T) {
	require.Equal(t, []int{3, 2, 1, 3}, []int{HashShard("", 4), HashShard("a", 4), HashShard("doc17", 4), HashShard("ordnung", 4)})
	for _, n := range []int{1, 3, 16, 4096} {
		count := make([]int, n)
		docs := 100 * n
		for i := range docs {
			count[HashShard(string(rune('a'+i%26))+string(rune(0x4e00+i%20000))+string(rune('0'+i/20000%10))+string(rune('0'+i/200000)), n)]++
		}
		for _, c := range count {
			require.InDelta(t, 100, c, 70, "%d parts", n)
		}
	}
}

// damageCodes changes a bit of the first chunk's codes.
func damageCodes(t *testing.T, path string) {
	t.Helper()
	var codes []byte
	reading(t, path, func(s *Snapshot) {
		ch, err := s.Chunk(0, storage.All)
		require.NoError(t, err)
		codes = bytes.Clone(ch.Residuals)
	})
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(data, codes)
	require.Positive(t, at)
	data[at] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// Damage of one file is said of that file.
func TestSetVerifiesEach(t *testing.T) {
	paths := twoParts(t, corpus(40, 4, 8, 6))
	damageCodes(t, paths[1])
	set, err := OpenShards(context.Background(), paths[:], nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	snap, err := set.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	require.NoError(t, snap.Snapshots()[0].Warm(t.Context(), 1, nil))
	var damaged *storage.CorruptError
	require.ErrorAs(t, snap.Snapshots()[1].Warm(t.Context(), 1, nil), &damaged)
	require.Equal(t, paths[1], damaged.Path)
	_, err = Copy(t.Context(), paths[0]+".merged", allOf(snap.Snapshots()...), nil)
	require.ErrorAs(t, err, &damaged)
	require.Equal(t, paths[1], damaged.Path)
	require.NoFileExists(t, paths[0]+".merged")
}

// A set that waits for the lock of a file holds those of the others only now and then.
func TestSetWaitsWithoutLocks(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a.plaid"), filepath.Join(dir, "b.plaid")}
	for i, path := range paths {
		docs := longer(t, 0, map[string]int{string(rune('a' + i)): 0})
		_, err := Build(t.Context(), path, fromDocs(t, 4, docs), &BuildOptions{Centroids: 1})
		require.NoError(t, err)
	}
	o := &Options{Write: true, LockTimeout: 5 * time.Minute}
	holder, err := Open(t.Context(), paths[1], o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error)
	looked := waiting(t)
	go func() {
		_, err := OpenShards(ctx, paths, o)
		opened <- err
	}()
	<-looked
	other, err := Open(t.Context(), paths[0], o)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-opened, context.Canceled)
	require.NoError(t, errors.Join(other.Close(), holder.Close()))
}

// Several files have no oldest document: a limit is refused, and nothing is stored.
func TestSetRefusesMaxDocuments(t *testing.T) {
	paths := twoParts(t, corpus(10, 4, 8, 2))
	set, err := OpenShards(t.Context(), paths[:], &Options{Write: true})
	require.NoError(t, err)
	defer set.Close()
	most := uint64(3)
	_, err = set.Add(t.Context(), fromDocs(t, 8, corpus(1, 4, 8, 3)), &AddOptions{Replace: true, MaxDocuments: &most})
	require.ErrorIs(t, err, ErrOption)
	snap, err := set.Snapshot()
	require.NoError(t, err)
	defer snap.Close()
	require.EqualValues(t, 10, snap.Len())
}
