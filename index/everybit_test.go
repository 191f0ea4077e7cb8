package index_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

var everyBit = flag.Bool("every-bit", false, "damage tests: flip each bit in use of a small index")

// smallSpecimens are indexes of few pages: one at rest, and one whose writer died while
// it added documents.
func smallSpecimens(t *testing.T) map[string]*specimen {
	rest := newSpecimen(t, 28)
	ix, err := index.Open(context.Background(), rest.path, &index.Options{Write: true})
	require.NoError(t, err)
	*index.ChunkBytes = 4 << 20 // few chunks, whose tails are most of a small file
	require.NoError(t, ix.Compact(context.Background(), nil))
	_, _, err = ix.Delete(context.Background(), rest.ids[3:4])
	require.NoError(t, err)
	rest.gone, rest.ids = append(rest.gone, rest.ids[3]), slices.Delete(rest.ids, 3, 4)
	set := func(id, payload string) {
		_, _, err := ix.Entry(index.AppliedAt(t, ix)+1).SetPayload(context.Background(), map[string][]byte{id: []byte(payload)})
		require.NoError(t, err)
	}
	set(rest.ids[0], `{"n": 1}`)
	set(rest.ids[1], "")
	require.NoError(t, ix.Close())
	data, err := os.ReadFile(rest.path)
	require.NoError(t, err)

	more, err := vectors.FromDocuments(specimenDim, index.Corpus(60, 6, specimenDim, 4))
	require.NoError(t, err)
	ix, err = index.Open(context.Background(), rest.path, &index.Options{Write: true})
	require.NoError(t, err)
	var staged []byte
	_, err = ix.Add(context.Background(), more, &index.AddOptions{Threads: 1, Memory: 1 << 20, Progress: func(p index.Progress) {
		if p.Stage == "commit" && staged == nil {
			staged, err = os.ReadFile(rest.path)
			require.NoError(t, err)
		}
	}})
	require.NoError(t, err)
	require.NoError(t, ix.Close())
	require.NotNil(t, staged)

	dying := &specimen{ids: rest.ids, gone: rest.gone, queries: rest.queries, path: filepath.Join(filepath.Dir(rest.path), "dying.plaid")}
	rest.use(t, data)
	dying.use(t, staged)
	return map[string]*specimen{"at rest": rest, "with what a writer staged": dying}
}

// Bits are flipped, most of them in keys and in what leads to them; in the long form
// (-every-bit) each bit that is in use. Whatever is shown of the file is right, or an error that says that the file is
// damaged: to read, to verify, to open for writing, and for who asks whether there is an
// index at all, as the service does, which takes one that was never finished for none.
func TestEveryBit(t *testing.T) {
	if effort.Brief() {
		t.Skip("long, and of one goroutine")
	}
	specimens := smallSpecimens(t)
	for _, name := range slices.Sorted(maps.Keys(specimens)) {
		sp := specimens[name]
		ix, err := index.Open(context.Background(), sp.path, &index.Options{Write: true})
		require.NoError(t, err)
		require.NoError(t, ix.Close())
		swept := sp.look()
		used, keys := bytesInUse(sp.data), bytesOfKeys(sp.data)
		var live, dead tally
		try := func(at, bit int) {
			data := slices.Clone(sp.data)
			data[at] ^= 1 << bit
			what := fmt.Sprintf("%s: bit %d of byte %d of page %d, %#x → %#x", name, bit, at%os.Getpagesize(), at/os.Getpagesize(), sp.data[at], data[at])
			n := &live
			if !used[at] {
				n = &dead
			}
			fate := sp.try(t, n, data, what)
			if !used[at] {
				require.Equal(t, harmless, fate, what)
			}
			sp.requireIndex(t, swept, what)
		}
		bits := 0
		for at := range sp.data {
			for bit := range 8 {
				bits++
				step := 40009 // of what means nothing
				switch {
				case *everyBit && (name == "at rest" && used[at] || keys[at]):
					step = 1
				case *everyBit && used[at]:
					step = 61
				case *everyBit:
					step = 997
				case keys[at]:
					step = effort.Cases(251, 43)
				case used[at]:
					step = effort.Cases(9001, 2003)
				}
				if bits%step == 0 {
					try(at, bit)
				}
			}
		}
		t.Logf("%s: %d bits", name, bits)
		t.Logf("bits that mean something: %v", &live)
		t.Logf("bits of free pages and ends of pages: %v", &dead)
		require.Positive(t, live.found)
	}
}

// requireIndex makes sure that the damaged file is not taken for one that holds no
// index, and that it shows nothing else after a writer has opened it than the whole one.
func (sp *specimen) requireIndex(t *testing.T, swept look, what string) {
	t.Helper()
	ctx := context.Background()
	check := func(err error) bool {
		if err == nil {
			return false
		}
		require.NotErrorIs(t, err, storage.ErrUnfinished, what)
		require.NotErrorIs(t, err, storage.ErrNotIndex, what)
		require.ErrorIs(t, err, storage.ErrCorrupt, what)
		return true
	}
	ix, err := index.Open(ctx, sp.path, nil)
	if !check(err) {
		require.NoError(t, ix.Close())
	}
	ix, err = index.Open(ctx, sp.path, &index.Options{Write: true})
	if check(err) {
		return
	}
	require.NoError(t, ix.Close())
	l, whole := sp.look(), swept.results()
	require.NoError(t, l.open, "%s: after a writer has opened it", what)
	for name, r := range l.results() {
		if r.err != nil {
			index.RequireTyped(t, r.err, what)
		} else {
			require.Equal(t, whole[name], r, "%s: %s, after a writer has opened it", what, name)
		}
	}
}

// A name that is damaged costs a salvage nothing.
func TestSalvageDamagedNames(t *testing.T) {
	s := newSalvager(t, 40)
	for i, at := range namesIn(s.sp.data) {
		if i%effort.Cases(5, 1) != 0 {
			continue
		}
		data := slices.Clone(s.sp.data)
		data[at] ^= 1 << (i % 8)
		what := fmt.Sprintf("byte %d of page %d, %q → %q", at%os.Getpagesize(), at/os.Getpagesize(), data[at]^1<<(i%8), data[at])
		r := s.try(t, data, what)
		require.NotNil(t, r, "%s: %v", what, s.reasons)
		require.Zero(t, r.LostDocs, "%s: %+v", what, r)
		require.Empty(t, r.LostPayloads, what)
		require.NotEmpty(t, r.Faults, what)
	}
	t.Log(s)
	require.Greater(t, s.cases, effort.Cases(20, 100))
}
