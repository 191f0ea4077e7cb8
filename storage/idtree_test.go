package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

// writeManyIDs makes an index whose ids take pages on two levels, in several
// commits, and returns the file as it was after each.
func writeManyIDs(t *testing.T) (path string, ids []string, versions [][]byte) {
	path = filepath.Join(testenv.RAMDir(t), "ids.plaid")
	f, err := Open(context.Background(), path, Options{Write: true, Create: true})
	require.NoError(t, err)
	require.NoError(t, fillTestIndex(f))
	for i := range 6 {
		docs := make([]testDoc, 40)
		for j := range docs {
			docs[j].id = fmt.Sprintf("%02d/%s/%d", j, strings.Repeat("x", 30), i)
			ids = append(ids, docs[j].id)
		}
		require.NoError(t, f.Update(func(tx *Tx) error {
			g, s, err := currentState(tx)
			require.NoError(t, err)
			return putDocs(g, s, docs)
		}))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		versions = append(versions, data)
	}
	require.NoError(t, f.Close())
	return path, append(ids, "alpha", "beta", "gamma"), versions
}

// requireIDs looks up all ids, and some that are not there, with a snapshot of its
// own for each order: whatever is said must be true, or ErrCorrupt.
func requireIDs(t *testing.T, path string, ids []string, what string) (noticed bool) {
	t.Helper()
	names := []string{ids[0], "none", "x"}
	for i := 0; i < len(ids); i += effort.Cases(6, 1) {
		names = append(names, ids[i])
	}
	for _, name := range names {
		f, err := Open(context.Background(), path, Options{})
		if err != nil {
			require.True(t, isOurs(err), "%s: %v", what, err)
			return true
		}
		v, err := f.Snapshot()
		if err != nil {
			require.True(t, isOurs(err), "%s: %v", what, err)
			require.NoError(t, f.Close())
			return true
		}
		ordinal, ok, err := v.Ordinal(name)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt, what)
			noticed = true
		} else {
			require.Equal(t, slices.Contains(ids, name), ok, "%s: %q", what, name)
			if ok {
				require.Equal(t, name, v.ID(ordinal), what)
			}
		}
		require.NoError(t, v.Close())
		require.NoError(t, f.Close())
		if noticed {
			return true
		}
	}
	return false
}

// A bit of a key, in whatever page it lies: no document is "not found" for it.
func TestFlippedIDs(t *testing.T) {
	path, ids, versions := writeManyIDs(t)
	data := versions[len(versions)-1]
	require.False(t, requireIDs(t, path, ids, "sound"))
	sample := ids
	if !effort.Long() {
		sample = ids[:len(ids):len(ids)][200:]
	}
	noticed := 0
	for n, id := range sample {
		for at := 0; ; {
			i := bytes.Index(data[at:], []byte(id))
			if i < 0 {
				break
			}
			at += i
			bad := slices.Clone(data)
			bit := n % (8 * len(id))
			bad[at+bit/8] ^= 1 << (bit % 8)
			require.NoError(t, os.WriteFile(path, bad, 0o644))
			// The id itself is looked for first, then those that damaged pages above lead to.
			if requireIDs(t, path, slices.Concat([]string{id}, ids), fmt.Sprintf("%q, bit %d", id, bit)) {
				noticed++
			}
			at++
		}
	}
	require.GreaterOrEqual(t, noticed, len(sample))
}

// Pages as they were some commits before, as a disk leaves them that loses a write.
func TestStaleIDPages(t *testing.T) {
	path, ids, versions := writeManyIDs(t)
	last := versions[len(versions)-1]
	size := os.Getpagesize()
	noticed := 0
	for _, old := range versions[:len(versions)-1] {
		for at := 2 * size; at < len(old); at += size * effort.Cases(7, 1) {
			if bytes.Equal(old[at:at+size], last[at:at+size]) {
				continue
			}
			bad := slices.Clone(last)
			copy(bad[at:], old[at:at+size])
			require.NoError(t, os.WriteFile(path, bad, 0o644))
			if requireIDs(t, path, ids, fmt.Sprintf("page %d", at/size)) {
				noticed++
			}
		}
	}
	require.Positive(t, noticed)
}

// The ids are walked once for a handle, also when it commits later; and what it
// staged is no fault.
func TestIDsAreCheckedOnce(t *testing.T) {
	path, ids, _ := writeManyIDs(t)
	f := openWriting(t, path)
	old, err := f.Snapshot()
	require.NoError(t, err)
	require.NoError(t, addDoc(f, "later"))
	missing := func(v *Snapshot) {
		_, ok, err := v.Ordinal("none")
		require.NoError(t, err)
		require.False(t, ok)
	}
	now, err := f.Snapshot()
	require.NoError(t, err)
	missing(now)
	since := f.handle.checkedIDs.since
	require.Equal(t, now.tx.ID(), since)
	missing(old) // an earlier state is looked at for itself
	require.Less(t, f.handle.checkedIDs.since, since)
	since = f.handle.checkedIDs.since
	require.NoError(t, addDoc(f, "latest"))
	require.NoError(t, f.Update(func(tx *Tx) error {
		require.NoError(t, tx.MarkStaging())
		g, err := tx.Generation(1)
		require.NoError(t, err)
		return g.PutID("staged", 1000)
	}))
	for _, id := range append(ids, "later", "latest") {
		v, err := f.Snapshot()
		require.NoError(t, err)
		_, ok, err := v.Ordinal(id)
		require.NoError(t, err)
		require.True(t, ok)
		missing(v)
		require.NoError(t, v.walkIDs())
		require.NoError(t, v.Close())
	}
	require.Equal(t, since, f.handle.checkedIDs.since)
	require.NoError(t, now.Verify(context.Background()))
	require.NoError(t, errors.Join(now.Close(), old.Close(), f.Close()))
}
