package index

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/vectors"
)

// model is an index as a list of documents in order of insertion, and what has
// been seen of it at earlier moments.
type model struct {
	dir, path string
	ix        *Index
	docs      []vectors.Document
	made      uint64 // documents so far
	old       []picturesOf
}

type picturesOf struct {
	snap *Snapshot
	docs []vectors.Document
}

const modelDim = 6

func (m *model) doc(id string, rows int) vectors.Document {
	m.made++
	d := corpus(1, rows, modelDim, m.made)[0]
	d.ID = id
	if m.made%3 == 0 {
		d.Payload = fmt.Appendf(nil, "payload of %s, %d", id, m.made)
	}
	return d
}

func (m *model) find(id string) int {
	return slices.IndexFunc(m.docs, func(d vectors.Document) bool { return d.ID == id })
}

func (m *model) remove(id string) bool {
	i := m.find(id)
	if i >= 0 {
		m.docs = slices.Delete(slices.Clone(m.docs), i, i+1)
	}
	return i >= 0
}

func drawIDs(t *rapid.T, most int) []string {
	return rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 25), strconv.Itoa), 1, most, rapid.ID[string]).Draw(t, "ids")
}

func (m *model) add(t *rapid.T) {
	replace := rapid.Bool().Draw(t, "replace")
	var docs []vectors.Document
	taken := 0
	tokens := 0
	for _, id := range drawIDs(t, 4) {
		docs = append(docs, m.doc(id, rapid.IntRange(0, 8).Draw(t, "rows")))
		docs[len(docs)-1].Payload = drawPayload(t)
		tokens += len(docs[len(docs)-1].Tokens) / modelDim
		if m.find(id) >= 0 {
			taken++
		}
	}
	o := &AddOptions{Replace: replace, KeepPayload: rapid.Bool().Draw(t, "keep"), Threads: 1}
	if rapid.Bool().Draw(t, "also delete") {
		o.Delete = drawIDs(t, 4)
	}
	r, err := m.ix.Add(context.Background(), fromDocs(t, modelDim, docs), o)
	if taken > 0 && !replace {
		require.ErrorIs(t, err, ErrDuplicateID)
		return
	}
	require.NoError(t, err)
	require.Equal(t, len(docs), r.Docs)
	require.Equal(t, taken, r.Replaced)
	require.EqualValues(t, tokens, r.Tokens)
	kept, deleted := 0, 0
	for i, d := range docs {
		if at := m.find(d.ID); at >= 0 && o.KeepPayload && len(d.Payload) == 0 && m.docs[at].Payload != nil {
			docs[i].Payload = m.docs[at].Payload
			kept++
		}
		m.remove(d.ID)
	}
	for _, id := range o.Delete {
		if !slices.ContainsFunc(docs, func(d vectors.Document) bool { return d.ID == id }) && m.remove(id) {
			deleted++
		}
	}
	require.Equal(t, kept, r.KeptPayloads)
	require.Equal(t, deleted, r.Deleted)
	m.docs = append(slices.Clone(m.docs), docs...)
}

func (m *model) delete(t *rapid.T) {
	ids := drawIDs(t, 5)
	if rapid.IntRange(0, 9).Draw(t, "all") == 0 {
		ids = nil
		for _, d := range m.docs {
			ids = append(ids, d.ID)
		}
	}
	var missing []string
	want := 0
	for _, id := range ids {
		if m.remove(id) {
			want++
		} else {
			missing = append(missing, id)
		}
	}
	n, miss, err := m.ix.Delete(context.Background(), append(ids, "", "stranger"))
	require.NoError(t, err)
	require.Equal(t, Affected{Documents: want}, n)
	require.Equal(t, append(missing, "", "stranger"), miss)
}

// fail adds what must be refused, after some of it may have been staged.
func (m *model) fail(t *rapid.T) {
	docs := []vectors.Document{m.doc("x", 9), m.doc("y", 9), m.doc("z", 9)}
	boom := errors.New("boom")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	src := &fakeSource{dim: modelDim, docs: docs}
	want := boom
	switch rapid.IntRange(0, 4).Draw(t, "fault") {
	case 0:
		src.visit = func(i int) error { return map[int]error{2: boom}[i] }
	case 1:
		src.visit, want = func(int) error { cancel(); return nil }, context.Canceled
	case 2:
		src.dim, want = modelDim+1, ErrDimension
		src.rows = func(int) int { return 1 }
	case 3:
		docs[2].ID, want = "x", ErrDuplicateID
	case 4:
		if len(m.docs) == 0 {
			return
		}
		docs[2].ID, want = m.docs[len(m.docs)/2].ID, ErrDuplicateID
	}
	_, err := m.ix.Add(ctx, src, nil)
	require.ErrorIs(t, err, want)
}

func (m *model) compact(t *rapid.T) {
	require.NoError(t, m.ix.Compact(context.Background(), nil))
	s := taken(t, m.ix)
	require.LessOrEqual(t, s.Segments(), 1)
	require.Equal(t, s.State().Tokens, s.State().LiveTokens)
	require.NoError(t, s.Close())
}

func (m *model) remember(t *rapid.T) {
	if len(m.old) == 3 {
		require.NoError(t, m.old[0].snap.Close())
		m.old = m.old[1:]
	}
	s := taken(t, m.ix)
	m.old = append(m.old, picturesOf{s, m.docs})
}

func (m *model) reopen(t *rapid.T) {
	m.forgetAll(t)
	require.NoError(t, m.ix.Close())
	requireFile(t, m.path, m.docs)
	var err error
	m.ix, err = Open(context.Background(), m.path, &Options{Write: true})
	require.NoError(t, err)
}

func (m *model) forgetAll(t *rapid.T) {
	for _, p := range m.old {
		require.NoError(t, p.snap.Close())
	}
	m.old = nil
}

func (m *model) check(t *rapid.T) {
	s := taken(t, m.ix)
	requireIndex(t, s, m.docs)
	requireFewSegments(t, s)
	require.NoError(t, s.Close())
	for i, p := range m.old {
		require.NoError(t, differs(p.snap, p.docs), "earlier snapshot %d", i)
	}
	requireFiles(t, m.dir, 1)
}

// backUp makes a copy, and brings it up to date after the next change.
func (m *model) backUp(t *rapid.T) {
	for range 2 {
		_, err := m.ix.BackupTo(context.Background(), m.dir+".copy", &BackupOptions{Incremental: true})
		require.NoError(t, err)
		requireFile(t, m.dir+".copy", m.docs)
		m.setPayload(t)
	}
	require.NoError(t, os.Remove(m.dir+".copy"))
}

// requireFewSegments: each segment is more than twice as large as the next.
func requireFewSegments(t tb, s *Snapshot) {
	segments := s.State().Segments
	for i := 1; i < len(segments); i++ {
		require.Greater(t, segments[i-1].Tokens, 2*segments[i].Tokens, "%+v", segments)
	}
	require.LessOrEqual(t, len(segments), 2+bits.Len64(s.State().Tokens))
}

// Random changes against the model.
func TestChangesLikeTheModel(t *testing.T) {
	defer setFlag(t, "rapid.checks", strconv.Itoa(effort.Cases(15, 400)))()
	small(t)
	dir := testenv.RAMDir(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		sub := filepath.Join(dir, strconv.Itoa(n))
		require.NoError(t, os.Mkdir(sub, 0o777))
		defer os.RemoveAll(sub)
		m := &model{dir: sub, path: filepath.Join(sub, "m.plaid")}
		for i := range rapid.IntRange(1, 12).Draw(t, "built") {
			m.docs = append(m.docs, m.doc(strconv.Itoa(i), 8))
		}
		m.docs[0].Tokens = corpusTokens(3, modelDim)
		_, err := Build(context.Background(), m.path, fromDocs(t, modelDim, m.docs), &BuildOptions{
			Nbits: rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "nbits"), Centroids: rapid.IntRange(1, 9).Draw(t, "centroids"), Threads: 1,
			NoCentroidScales: rapid.Bool().Draw(t, "scales"), Unnormalized: rapid.IntRange(0, 4).Draw(t, "unnormalized") == 0,
		})
		require.NoError(t, err)
		m.ix, err = Open(context.Background(), m.path, &Options{Write: true})
		require.NoError(t, err)
		defer func() {
			for _, p := range m.old {
				_ = p.snap.Close()
			}
			_ = m.ix.Close()
		}()
		t.Repeat(map[string]func(*rapid.T){
			"add": m.add, "add too": m.add, "delete": m.delete, "fail": m.fail, "compact": m.compact, "delete where": m.deleteWhere, "retrain": m.retrain,
			"set payload": m.setPayload, "update": m.updateWhere, "update too": m.updateWhere, "select": m.selects, "select too": m.selects,
			"remember": m.remember, "reopen": m.reopen, "back up": m.backUp, "": m.check,
		})
		m.reopen(t)
		m.check(t)
	})
}

func corpusTokens(n, dim int) (x []float32) {
	for len(x) < n*dim {
		x = append(x, corpus(1, 9, dim, uint64(len(x)))[0].Tokens...)
		x = append(x, make([]float32, dim-1)...)
		x = append(x, 1)
	}
	return x[:n*dim]
}

func setFlag(t *testing.T, name, value string) (restore func()) {
	old := flag.Lookup(name).Value.String()
	require.NoError(t, flag.Set(name, value))
	return func() { require.NoError(t, flag.Set(name, old)) }
}

func writing(t *testing.T, path string) *Index {
	t.Helper()
	ix, err := Open(context.Background(), path, &Options{Write: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	return ix
}

func add(t *testing.T, ix *Index, dim int, docs ...vectors.Document) {
	t.Helper()
	_, err := ix.Add(context.Background(), fromDocs(t, dim, docs), nil)
	require.NoError(t, err)
}

func TestDeleteEverythingAndComeBack(t *testing.T) {
	const dim = 8
	docs := corpus(20, 6, dim, 1)
	path := newPath(t)
	build(t, path, dim, docs, nil)
	ix := writing(t, path)
	var ids []string
	for _, d := range docs {
		ids = append(ids, d.ID)
	}
	n, missing, err := ix.Delete(context.Background(), append(ids, ids...))
	require.NoError(t, err)
	require.Equal(t, Affected{Documents: len(ids)}, n)
	require.Empty(t, missing)
	for range 2 {
		s := taken(t, ix)
		requireIndex(t, s, nil)
		require.Zero(t, s.State().LiveTokens)
		_, ok, err := s.Ordinal("d1")
		require.NoError(t, err)
		require.False(t, ok)
		require.Nil(t, must(s.Payload(1)))
		_, err = s.Vectors(1)
		require.ErrorIs(t, err, ErrNotFound)
		_, err = s.Vectors(1000)
		require.ErrorIs(t, err, ErrNotFound)
		require.NoError(t, s.Close())
		require.NoError(t, ix.Compact(context.Background(), nil))
	}
	n, missing, err = ix.Delete(context.Background(), []string{"d1"})
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, []string{"d1"}, missing)

	again := corpus(20, 6, dim, 2)
	add(t, ix, dim, again...)
	s := taken(t, ix)
	requireIndex(t, s, again)
	require.EqualValues(t, 40, s.State().Docs, "ordinals are never given out twice")
	require.NoError(t, s.Close())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestChangesThatAreNone(t *testing.T) {
	path := newPath(t)
	docs := corpus(9, 5, 8, 1)
	build(t, path, 8, docs, nil)
	ix := writing(t, path)
	snap := func() string {
		s := taken(t, ix)
		defer s.Close()
		return snapshotDigest(t, s)
	}
	before := snap()
	r, err := ix.Add(context.Background(), &fakeSource{dim: 99}, nil)
	require.NoError(t, err)
	require.Equal(t, &AddReport{}, r)
	n, _, err := ix.Delete(context.Background(), nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, before, snap())

	// An addition of empty documents only has no dimension.
	add(t, ix, 0, vectors.Document{ID: "empty"})
	s := taken(t, ix)
	requireIndex(t, s, append(docs, vectors.Document{ID: "empty"}))
	require.NoError(t, s.Close())

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range []error{
		second(ix.Add(ctx, fromDocs(t, 8, corpus(30, 5, 8, 3)[20:]), nil)),
		ix.Compact(ctx, nil),
		func() error { _, _, err := ix.Delete(ctx, []string{"d1"}); return err }(),
	} {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func second[T any](_ T, err error) error { return err }

// Compaction of a fresh index changes nothing, and of two that differ in how
// they came to hold the same documents it makes the same.
func TestCompactIsCanonical(t *testing.T) {
	docs := corpus(30, 6, 8, 1)
	a, b := newPath(t), newPath(t)
	build(t, a, 8, docs, &BuildOptions{Seed: 1})
	want := digestOf(t, a)
	ix := writing(t, a)
	var stages []Progress
	require.NoError(t, ix.Compact(context.Background(), func(p Progress) { stages = append(stages, p) }))
	require.NotEmpty(t, stages)
	s := taken(t, ix)
	require.Equal(t, want, snapshotDigest(t, s))

	_, err := Build(context.Background(), b, fromDocs(t, 8, docs[:1+20]), &BuildOptions{Codec: s.Quantizer()})
	require.NoError(t, err)
	jx := writing(t, b)
	for _, d := range docs[21:] {
		add(t, jx, 8, d)
	}
	require.NoError(t, jx.Compact(context.Background(), nil))
	j := taken(t, jx)
	requireIndex(t, j, docs)
	js, ss := j.State(), s.State()
	js.Clamped, ss.Clamped = 0, 0
	require.NotZero(t, js.AddedTokens, "what was added before is still known")
	js.AddedTokens, js.AddedSumSq = 0, 0
	require.Equal(t, ss, js)
	require.NoError(t, j.Close())
	require.NoError(t, s.Close())
}
