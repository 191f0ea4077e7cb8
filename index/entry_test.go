package index

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func appliedAt(t tb, ix *Index) uint64 {
	t.Helper()
	s := taken(t, ix)
	defer s.Close()
	n, err := s.Applied()
	require.NoError(t, err)
	return n.Sequence
}

// Entries do what the methods of an index do, leave the same content, and are done
// once each.
func TestEntries(t *testing.T) {
	ctx := context.Background()
	path, plainPath := newPath(t), newPath(t)
	docs := corpus(60, 5, 8, 3)
	docs[2].Payload, docs[7].Payload = []byte(`{"y":1}`), nil
	build(t, path, 8, docs[:40], &BuildOptions{Seed: 1})
	build(t, plainPath, 8, docs[:40], &BuildOptions{Seed: 1})
	ix, plain := writing(t, path), writing(t, plainPath)
	require.Zero(t, appliedAt(t, ix))

	changes := []struct {
		entry func(e Entry) error
		plain func() error
	}{
		{func(e Entry) error { _, err := e.Add(ctx, fromDocs(t, 8, docs[40:50]), nil); return err },
			func() error { _, err := plain.Add(ctx, fromDocs(t, 8, docs[40:50]), nil); return err }},
		{func(e Entry) error { _, _, err := e.Delete(ctx, []string{"d3", "d41", "nobody"}); return err },
			func() error { _, _, err := plain.Delete(ctx, []string{"d3", "d41", "nobody"}); return err }},
		{func(e Entry) error { _, err := e.DeleteWhere(ctx, where(t, "_id = 'd7'")); return err },
			func() error { _, err := plain.DeleteWhere(ctx, where(t, "_id = 'd7'")); return err }},
		{func(e Entry) error {
			_, err := e.UpdatePayload(ctx, where(t, "_id = 'd2'"), condition.Fields{"x": json.RawMessage("1")})
			return err
		}, func() error {
			_, err := plain.UpdatePayload(ctx, where(t, "_id = 'd2'"), condition.Fields{"x": json.RawMessage("1")})
			return err
		}},
		{func(e Entry) error {
			_, _, err := e.SetPayload(ctx, map[string][]byte{"d5": []byte("five")})
			return err
		},
			func() error { _, _, err := plain.SetPayload(ctx, map[string][]byte{"d5": []byte("five")}); return err }},
		// What changes nothing is noted all the same.
		{func(e Entry) error { _, _, err := e.Delete(ctx, []string{"nobody"}); return err }, nil},
		{func(e Entry) error { _, err := e.Add(ctx, fromDocs(t, 8, nil), nil); return err }, nil},
		{func(e Entry) error { _, _, err := e.SetPayload(ctx, map[string][]byte{"nobody": nil}); return err }, nil},
		{func(e Entry) error { return e.Skip(ctx) }, nil},
	}
	for i, c := range changes {
		n := uint64(10 * (i + 1)) // numbers may have gaps
		require.NoError(t, c.entry(ix.Entry(n)), "entry %d", i)
		require.Equal(t, n, appliedAt(t, ix))
		for _, again := range []uint64{n, n - 1, 1} {
			require.ErrorIs(t, c.entry(ix.Entry(again)), ErrApplied, "entry %d", i)
		}
		require.ErrorIs(t, c.entry(ix.Entry(0)), ErrOption)
		if c.plain != nil {
			require.NoError(t, c.plain())
		}
		a, err := ix.Info(ctx)
		require.NoError(t, err)
		b, err := plain.Info(ctx)
		require.NoError(t, err)
		require.Equal(t, b.Digest, a.Digest, "entry %d: the number is no part of the content", i)
		require.Equal(t, n, a.Applied)
		require.Zero(t, b.Applied)
	}

	last := appliedAt(t, ix)
	_, err := ix.Entry(last+1).Add(ctx, fromDocs(t, 8, docs[:1]), nil)
	require.ErrorIs(t, err, ErrDuplicateID)
	require.Equal(t, last, appliedAt(t, ix), "a change that failed is none")

	// It stays through what keeps the content, and goes with it.
	copied := filepath.Join(t.TempDir(), "copy.plaid")
	_, err = ix.BackupTo(ctx, copied, nil)
	require.NoError(t, err)
	require.Equal(t, last, appliedAt(t, writing(t, copied)))
	require.NoError(t, ix.Compact(ctx, nil))
	require.Equal(t, last, appliedAt(t, ix))
	_, err = ix.Retrain(ctx, &RetrainOptions{Nbits: 4})
	require.NoError(t, err)
	require.Equal(t, last, appliedAt(t, ix))
	require.NoError(t, ix.Entry(last+1).Skip(ctx))
	require.NoError(t, ix.Verify(ctx))
	require.NoError(t, ix.Close())
	ix = writing(t, path)
	require.Equal(t, last+1, appliedAt(t, ix))
	require.NoError(t, ix.Close())
	build(t, path, 8, docs, &BuildOptions{Force: true})
	require.Zero(t, appliedAt(t, writing(t, path)))
}

// A number that is damaged is an error, not another number.
func TestEntriesDamaged(t *testing.T) {
	path := newPath(t)
	build(t, path, 8, corpus(20, 5, 8, 1), nil)
	ix := writing(t, path)
	require.NoError(t, ix.Entry(77).Skip(context.Background()))
	require.NoError(t, ix.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	found := 0
	for at := 0; ; at++ {
		i := bytes.Index(data[at:], []byte("applied"))
		if i < 0 {
			break
		}
		at += i
		for _, bit := range []int{at + 2, at + 7, at + 15, at + 24} { // key, generation, number, checksum
			bad := bytes.Clone(data)
			bad[bit] ^= 1
			require.NoError(t, os.WriteFile(path, bad, 0o600))
			reading(t, path, func(s *Snapshot) {
				n, err := s.Applied()
				if err != nil {
					require.ErrorIs(t, err, storage.ErrCorrupt)
					require.Error(t, s.Verify(context.Background()))
					found++
					return
				}
				require.EqualValues(t, 77, n.Sequence, "what is left of another page")
			})
		}
	}
	require.GreaterOrEqual(t, found, 4)
}

func init() { testenv.Children["entries"] = entriesChild }

// entriesChild adds documents, an entry each, and says so.
func entriesChild() error {
	ctx := context.Background()
	ix, err := Open(ctx, os.Getenv("PLAID_TEST_PATH"), &Options{Write: true})
	if err != nil {
		return err
	}
	s, err := ix.Snapshot()
	if err != nil {
		return err
	}
	last, err := s.Applied()
	if err != nil {
		return err
	}
	for n := last.Sequence; ; {
		n++
		src, err := vectors.FromDocuments(8, entryDocs(n))
		if err != nil {
			return err
		}
		if _, err := ix.Entry(n).Add(ctx, src, nil); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

func entryDocs(n uint64) []vectors.Document {
	docs := corpus(2, 3, 8, n)
	for i := range docs {
		docs[i].ID = fmt.Sprintf("e%d-%d", n, i)
	}
	return docs
}

// A process is killed while it follows a log: the number says exactly which entries
// the file has.
func TestEntriesKilled(t *testing.T) {
	kills := effort.Cases(4, 12)
	path := newPath(t)
	build(t, path, 8, corpus(20, 5, 8, 1), nil)
	for kill := range kills {
		cmd, _, out, _ := startChild(t, "entries", "PLAID_TEST_PATH="+path)
		said, lines := uint64(0), bufio.NewScanner(out)
		for i := 0; i <= kill%5 && lines.Scan(); i++ {
			var err error
			said, err = strconv.ParseUint(lines.Text(), 10, 64)
			require.NoError(t, err)
		}
		require.NoError(t, cmd.Process.Kill())
		rest, err := io.ReadAll(out)
		require.NoError(t, err)
		require.Error(t, cmd.Wait())
		testenv.WaitUnlocked(t, path)
		ix := writing(t, path)
		n := appliedAt(t, ix)
		require.GreaterOrEqual(t, n, said, "acknowledged entries are lost; then came %q", rest)
		s := taken(t, ix)
		require.EqualValues(t, 20+2*n, s.Len())
		_, last, err := s.Ordinal(fmt.Sprintf("e%d-1", n))
		require.NoError(t, err)
		require.True(t, last)
		require.NoError(t, s.Close())
		require.NoError(t, ix.Close())
	}
}
