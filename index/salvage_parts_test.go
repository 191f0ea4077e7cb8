package index_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// flipIn changes a bit right behind a text that means something; where tells
// which of them.
func flipIn(t *testing.T, data []byte, text string, offset int, where func(rest []byte) bool) {
	t.Helper()
	used := bytesInUse(data)
	n := 0
	for from := 0; ; {
		i := bytes.Index(data[from:], []byte(text))
		if i < 0 {
			break
		}
		at := from + i
		from = at + 1
		if used[at] && (where == nil || where(data[at+len(text):])) {
			data[at+len(text)+offset] ^= 1
			n++
		}
	}
	require.Equal(t, 1, n, "%q is there %d times", text, n)
}

func flipID(t *testing.T, data []byte, d document) {
	flipIn(t, data, d.id, -1, func(rest []byte) bool { return binary.LittleEndian.Uint32(rest) == d.ordinal })
}

// The newer meta page decides which commit a file shows. If it is damaged the
// file is refused; Salvage takes the commit before, and says so.
func TestSalvageOfDamagedMetaPages(t *testing.T) {
	s := newSalvager(t, 60)
	size := os.Getpagesize()
	newer := int(s.newest % 2)
	for page, want := range map[int][]document{newer: s.before, 1 - newer: s.want} {
		data := slices.Clone(s.sp.data)
		data[page*size+16+16] ^= 1 // the root
		r := s.try(t, data, "meta page")
		require.NotNil(t, r)
		require.True(t, r.Transaction.DamagedMeta)
		require.EqualValues(t, len(want), r.Docs)
		require.False(t, r.Complete())
		require.NotEmpty(t, r.Faults)
		if page == newer {
			require.Equal(t, s.newest-1, r.Transaction.ID)
			require.Equal(t, s.newest, r.Transaction.Claimed)
		} else {
			require.Equal(t, s.newest, r.Transaction.ID)
			require.Equal(t, s.newest-1, r.Transaction.Claimed)
		}
		_, err := index.Open(context.Background(), s.sp.path, nil)
		require.ErrorIs(t, err, storage.ErrCorrupt, "refused without being asked")
	}
	data := slices.Clone(s.sp.data)
	data[16] ^= 1
	data[size+16] ^= 1
	require.Nil(t, s.try(t, data, "both meta pages"))
	_, err := index.Salvage(context.Background(), s.sp.path, s.out, nil)
	require.ErrorIs(t, err, storage.ErrNotIndex)
}

func TestSalvageWithoutTombstones(t *testing.T) {
	s := newSalvager(t, 60)
	data := slices.Clone(s.sp.data)
	flipIn(t, data, "tombstones", 3, nil)
	r := s.try(t, data, "tombstones")
	require.True(t, r != nil && r.Complete(), "the ids tell: %+v", r)
	require.NotEmpty(t, r.Faults)

	victim := s.want[30]
	flipID(t, data, victim)
	require.Nil(t, s.try(t, data, "tombstones and an id"))
	_, err := index.Salvage(context.Background(), s.sp.path, s.out, nil)
	require.ErrorIs(t, err, storage.ErrCorrupt)
	require.ErrorContains(t, err, "with-deleted")

	r, err = index.Salvage(context.Background(), s.sp.path, s.out, &index.SalvageOptions{WithDeleted: true})
	require.NoError(t, err)
	require.False(t, r.Complete())
	got := s.sp.documents(t, s.out)
	byID := map[string]document{}
	for _, d := range got {
		byID[d.id] = d
	}
	require.Len(t, byID, len(got))
	for _, w := range s.want {
		require.Equal(t, w.vectors, byID[w.id].vectors, w.id)
		require.Equal(t, w.payload, byID[w.id].payload, w.id)
	}
	// Those whose place no rewrite has emptied since they were deleted are back,
	// without payload, and listed together with the one that lost its id.
	require.Equal(t, []string{"document-00007", "document-00020", victim.id}, r.Uncertain)
	require.Len(t, got, len(s.want)+2)
	require.EqualValues(t, 3, r.LostDocs, "what was replaced: %+v", r.Lost)
	for _, l := range r.Lost {
		require.Contains(t, l.Why, "the same id and is newer")
	}
}

func TestSalvageWithoutState(t *testing.T) {
	s := newSalvager(t, 60)
	data := slices.Clone(s.sp.data)
	flipIn(t, data, "state{", 3, nil)
	r := s.try(t, data, "state")
	require.NotNil(t, r)
	require.True(t, r.StateLost)
	require.EqualValues(t, len(s.want), r.Docs)
	require.Zero(t, r.LostDocs)

	flipID(t, data, s.want[3]) // is needed for nothing as long as the table is there
	r = s.try(t, data, "state and an id")
	require.NotNil(t, r)
	require.EqualValues(t, len(s.want), r.Docs)
}

// Nothing says any more which documents had a payload: those without one are listed.
func TestSalvageWithoutStateAndPayloadDocs(t *testing.T) {
	s := newSalvager(t, 60)
	victim := s.want[slices.IndexFunc(s.want, func(d document) bool { return len(d.payload) > 10 })]
	data := slices.Clone(s.sp.data)
	flipIn(t, data, "payload-docs", 3, nil)
	flipIn(t, data, victim.payload, -5, nil)
	require.NoError(t, os.WriteFile(s.sp.path, data, 0o600))
	r, err := index.Salvage(context.Background(), s.sp.path, s.out, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.UnknownPayloads)
	require.Contains(t, r.UncertainPayloads, victim.id)
	require.NoError(t, os.Remove(s.out))

	flipIn(t, data, "state{", 3, nil)
	require.NoError(t, os.WriteFile(s.sp.path, data, 0o600))
	r, err = index.Salvage(context.Background(), s.sp.path, s.out, nil)
	require.NoError(t, err)
	require.True(t, r.StateLost)
	require.False(t, r.Complete())
	var without []string
	for _, d := range s.sp.documents(t, s.out) {
		if d.payload == "" {
			without = append(without, d.id)
		}
	}
	require.Contains(t, without, victim.id)
	require.Equal(t, without, r.UncertainPayloads)
}

// What the tree does not lead to counts only where the list of free pages says
// that it was not given up.
func TestSalvageWithoutFreeList(t *testing.T) {
	s := newSalvager(t, 60)
	size := os.Getpagesize()
	ne := binary.NativeEndian
	meta := int(s.newest%2)*size + 16
	list, root := int(ne.Uint64(s.sp.data[meta+32:])), int(ne.Uint64(s.sp.data[meta+16:]))
	data := slices.Clone(s.sp.data)
	clear(data[list*size : (list+1)*size])
	r := s.try(t, data, "free list")
	require.True(t, r != nil && r.Complete(), "%+v", r)

	clear(data[root*size : (root+1)*size])
	require.Nil(t, s.try(t, data, "free list and root"))
	for reason := range s.reasons {
		require.Contains(t, reason, "header")
	}
	// With it, the root can be done without.
	data = slices.Clone(s.sp.data)
	clear(data[root*size : (root+1)*size])
	r = s.try(t, data, "root")
	require.NotNil(t, r)
	require.Zero(t, r.LostDocs)
}

func TestSalvageErrors(t *testing.T) {
	ctx := context.Background()
	sp := newSpecimen(t, 40)
	out := filepath.Join(t.TempDir(), "out.plaid")
	salvage := func(path string) error {
		_, err := index.Salvage(ctx, path, out, nil)
		require.NoFileExists(t, out)
		return err
	}
	dir := t.TempDir()
	require.ErrorIs(t, salvage(filepath.Join(dir, "none")), fs.ErrNotExist)
	require.ErrorIs(t, salvage(dir), storage.ErrNotIndex)
	for _, n := range []int{0, 10, 5000, 100_000} {
		text := filepath.Join(dir, "text")
		require.NoError(t, os.WriteFile(text, bytes.Repeat([]byte("x"), n), 0o600))
		require.ErrorIs(t, salvage(text), storage.ErrNotIndex)
	}
	f, err := storage.Open(context.Background(), filepath.Join(dir, "begun"), storage.Options{Write: true, Create: true})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.ErrorIs(t, salvage(filepath.Join(dir, "begun")), storage.ErrUnfinished)

	ix, err := index.Open(context.Background(), sp.path, &index.Options{Write: true})
	require.NoError(t, err)
	require.ErrorIs(t, salvage(sp.path), storage.ErrLocked)
	require.NoError(t, ix.Close())
	_, err = index.Salvage(ctx, sp.path, sp.path, nil)
	require.ErrorIs(t, err, storage.ErrExists)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = index.Salvage(canceled, sp.path, out, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, out)
}
