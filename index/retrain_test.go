package index

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// retrain trains anew, from originals or from what is stored, while documents come and
// go.
func (m *model) retrain(t *rapid.T) {
	o := &RetrainOptions{
		Centroids: rapid.IntRange(1, 9).Draw(t, "centroids"), Nbits: rapid.SampledFrom([]int{0, 1, 2, 4, 8}).Draw(t, "nbits"), Threads: 1,
	}
	if rapid.Bool().Draw(t, "originals") && len(m.docs) > 0 {
		o.Vectors = fromDocs(t, modelDim, append(slices.Clone(m.docs[len(m.docs)/3:]), m.doc("stranger", 5)))
	}
	original := map[*float32]bool{} // where the tokens of a document begin
	if o.Vectors != nil {
		for _, d := range m.docs[len(m.docs)/3:] {
			if len(d.Tokens) > 0 {
				original[&d.Tokens[0]] = true
			}
		}
	}
	tokens := 0
	for _, d := range m.docs {
		tokens += len(d.Tokens)
	}
	changes := rapid.IntRange(0, 2).Draw(t, "changes")
	o.Progress = func(p Progress) {
		if p.Stage != "encode" {
			return
		}
		for ; changes > 0; changes-- {
			m.add(t)
			m.setPayload(t)
			if changes == 2 {
				m.delete(t)
			}
		}
	}
	before := taken(t, m.ix)
	defer func() { require.NoError(t, before.Close()) }()
	r, err := m.ix.Retrain(context.Background(), o)
	if tokens == 0 {
		require.ErrorIs(t, err, ErrNoTokens)
		return
	}
	if errors.Is(err, ErrMismatch) { // so few bits and dimensions can do that to a short document
		return
	}
	require.NoError(t, err)
	require.Equal(t, len(m.docs), r.Docs)
	after := taken(t, m.ix)
	require.Greater(t, after.Generation(), before.Generation())
	require.NotEqual(t, after.Lineage(), before.Lineage())
	require.EqualValues(t, tokens/modelDim, after.Header().Build.Tokens)
	require.NoError(t, after.Close())

	// What was not encoded from its original was encoded from what was stored.
	m.lossy(t, func(d vectors.Document) bool { return len(d.Tokens) > 0 && !original[&d.Tokens[0]] }, before)
}

// lossy notes that documents have the vectors that they had been decoded to.
func (m *model) lossy(t *rapid.T, of func(vectors.Document) bool, before *Snapshot) {
	now := slices.Clone(m.docs)
	for i, d := range now {
		if !of(d) {
			continue
		}
		now[i].Tokens = m.decoded(t, d, before)
	}
	m.docs = now
}

// decoded encodes with the codec of a snapshot and decodes again.
func (m *model) decoded(t *rapid.T, d vectors.Document, s *Snapshot) []float32 {
	x := append([]float32(nil), d.Tokens...)
	if s.Header().Normalize {
		codec.Normalize(x, modelDim)
	}
	c := s.Quantizer()
	var b codec.Block
	require.NoError(t, c.Encode(context.Background(), &b, x, 1, s.ix.backend))
	n := len(x) / modelDim
	ch := &kernels.Chunk{Codes: b.Codes, CodeBytes: c.CodeBytes(), Residuals: b.Residuals, Factors: b.Factors}
	y := make([]float32, n*modelDim)
	c.DecodeTokens(y, ch, 0, n)
	return y
}

func TestRetrainFollowsChanges(t *testing.T) {
	const dim = 8
	ctx := context.Background()
	docs := corpus(60, 6, dim, 3)
	path := newPath(t)
	build(t, path, dim, docs, &BuildOptions{Nbits: 8})
	ix := writing(t, path)
	require.NoError(t, ix.SetDefaults(&storage.Defaults{Classes: []storage.DefaultClass{{K: 10, Probes: 3}}}))
	held := taken(t, ix)
	_, _, err := ix.Delete(ctx, []string{"d0", "d59"})
	require.NoError(t, err)
	added := corpus(90, 6, dim, 4)[60:]
	replaced := corpus(20, 6, dim, 5)[10:] // d10 … d19
	changed := false
	r, err := ix.Retrain(ctx, &RetrainOptions{Nbits: 4, Seed: 5, Progress: func(p Progress) {
		if p.Stage != "encode" || changed {
			return
		}
		changed = true
		add(t, ix, dim, added[:20]...)
		_, _, err := ix.Delete(ctx, []string{"d1", "d60", "d12"}) // an old one, a new one, one that comes back
		require.NoError(t, err)
		_, err = ix.Add(ctx, fromDocs(t, dim, replaced), &AddOptions{Replace: true})
		require.NoError(t, err)
		require.NoError(t, ix.Compact(ctx, nil))
		add(t, ix, dim, added[20:]...)
	}})
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, 39, r.Followed)
	require.Equal(t, CodecReport{Nbits: 4, Centroids: r.After.Centroids, RMSE: r.After.RMSE}, r.After)
	s := taken(t, ix)
	require.NoError(t, s.Verify(ctx))
	require.Equal(t, 4, s.Header().Nbits)
	require.EqualValues(t, 100, s.State().Docs, "ordinals stay")
	for id, want := range map[string]int{"d2": 2, "d58": 58, "d61": 61, "d79": 79, "d12": 82, "d80": 90, "d89": 99} {
		o, ok, err := s.Ordinal(id)
		require.NoError(t, err)
		require.True(t, ok && int(o) == want, "%s is %d, %v", id, o, ok)
	}
	for _, id := range []string{"d0", "d59", "d1", "d60"} {
		_, ok, err := s.Ordinal(id)
		require.NoError(t, err)
		require.False(t, ok, id)
	}
	p, err := s.Payload(82)
	require.NoError(t, err)
	require.Equal(t, string(replaced[2].Payload), string(p))
	d := s.Drift()
	require.Positive(t, d.Added)
	require.Positive(t, d.Ratio)
	defaults, err := s.Defaults()
	require.NoError(t, err)
	require.Nil(t, defaults, "found for another codec")
	require.NoError(t, s.Close())
	requireIndex(t, held, docs)
	require.NoError(t, held.Close())
	require.NoFileExists(t, path+".beside.tmp")
}

// Whatever ends a training leaves the index as it was.
func TestRetrainFails(t *testing.T) {
	const dim = 8
	ctx := context.Background()
	docs := corpus(40, 6, dim, 3)
	other := corpus(40, 6, dim, 4)
	longer := slices.Clone(docs)
	longer[7].Tokens = append(slices.Clone(longer[7].Tokens), longer[8].Tokens...)
	boom := errors.New("boom")
	for name, x := range map[string]struct {
		o    RetrainOptions
		want error
	}{
		"lengths":   {RetrainOptions{Vectors: fromDocs(t, dim, longer)}, ErrMismatch},
		"vectors":   {RetrainOptions{Vectors: fromDocs(t, dim, swapped(docs, dim))}, ErrMismatch},
		"dimension": {RetrainOptions{Vectors: fromDocs(t, 4, other)}, ErrDimension},
		"bits":      {RetrainOptions{Nbits: 3}, ErrOption},
		"source":    {RetrainOptions{Vectors: &fakeSource{dim: dim, docs: docs, visit: func(i int) error { return map[int]error{30: boom}[i] }}}, boom},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			build(t, path, dim, docs, &BuildOptions{Nbits: 8})
			ix := writing(t, path)
			_, err := ix.Retrain(ctx, &x.o)
			require.ErrorIs(t, err, x.want)
			s := taken(t, ix)
			requireIndex(t, s, docs)
			require.NoError(t, s.Close())
			requireFiles(t, filepath.Dir(path), 1)
			_, err = ix.Retrain(ctx, &RetrainOptions{Vectors: fromDocs(t, dim, docs)})
			require.NoError(t, err)
			s = taken(t, ix)
			requireIndex(t, s, docs)
			require.NoError(t, s.Close())
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		path := newPath(t)
		build(t, path, dim, docs, nil)
		ix := writing(t, path)
		for _, stage := range []string{"train", "encode"} {
			ctx, cancel := context.WithCancel(ctx)
			_, err := ix.Retrain(ctx, &RetrainOptions{Progress: func(p Progress) {
				if p.Stage == stage {
					cancel()
				}
			}})
			require.ErrorIs(t, err, context.Canceled)
			require.NoFileExists(t, path+".beside.tmp")
		}
		requireShown(t, ix, docs)
	})
	t.Run("disk", func(t *testing.T) {
		path := newPath(t)
		build(t, path, dim, docs, nil)
		ix := writing(t, path)
		t.Cleanup(func() { files.HookSynced = nil })
		files.HookSynced = func(p string) error {
			if p == path+".beside.tmp" {
				return boom
			}
			return nil
		}
		_, err := ix.Retrain(ctx, nil)
		require.ErrorIs(t, err, boom)
		require.NotErrorIs(t, err, storage.ErrOutcomeUnknown)
		files.HookSynced = func(p string) error {
			if p == filepath.Dir(path) {
				return boom
			}
			return nil
		}
		_, err = ix.Retrain(ctx, nil)
		require.ErrorIs(t, err, storage.ErrOutcomeUnknown)
		files.HookSynced = nil
		requireShown(t, ix, docs)
	})
}

// short is a source that ends before a document without a word, or goes on behind
// the last one that was asked for.
type short struct {
	vectors.Source
	end, more int
}

func (s *short) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return s.Source.Docs(ctx, min(from, s.end), min(to+s.more, s.end))
}

// Original vectors of which fewer or more come than were asked for end a retraining,
// in each of its passes.
func TestRetrainFromALyingSource(t *testing.T) {
	const dim = 8
	docs := corpus(40, 6, dim, 3)
	src := fromDocs(t, dim, docs)
	path := newPath(t)
	build(t, path, dim, docs, &BuildOptions{Nbits: 8})
	ix := writing(t, path)
	s := taken(t, ix)
	defer s.Close()
	for _, pass := range []string{"training", "encoding"} {
		for _, lying := range []*short{{src, 0, 0}, {src, 17, 0}, {src, 39, 0}, {src, 40, 1}} {
			o := RetrainOptions{Vectors: lying}
			if pass == "encoding" {
				o.Codec = s.Quantizer()
			}
			if lying.more > 0 { // there is a document behind those of the run
				o.Vectors = &short{fromDocs(t, dim, append(slices.Clone(docs[:20:20]), append(corpus(50, 6, dim, 5)[49:], docs[20:]...)...)), 41, 1}
			}
			_, err := ix.Retrain(t.Context(), &o)
			require.ErrorIs(t, err, vectors.ErrShape, "%s, %d documents", pass, lying.end)
			require.ErrorContains(t, err, "the source of the original vectors")
		}
		ctx, cancel := context.WithCancel(t.Context())
		o := RetrainOptions{Vectors: &fakeSource{dim: dim, docs: docs[:20], said: 40, rows: src.Rows, id: src.ID, visit: func(int) error { cancel(); return nil }}}
		if pass == "encoding" {
			o.Codec = s.Quantizer()
		}
		_, err := ix.Retrain(ctx, &o)
		require.ErrorIs(t, err, context.Canceled)
	}
	requireIndex(t, s, docs)
	requireShown(t, ix, docs)
}

func requireShown(t *testing.T, ix *Index, docs []vectors.Document) {
	t.Helper()
	s := taken(t, ix)
	requireIndex(t, s, docs)
	require.NoError(t, s.Close())
}

// swapped has documents of the same ids and lengths with other vectors.
func swapped(docs []vectors.Document, dim int) []vectors.Document {
	rng := rand.New(rand.NewPCG(1, 1))
	out := slices.Clone(docs)
	for i := range out {
		out[i].Tokens = make([]float32, len(docs[i].Tokens))
		for j := range out[i].Tokens {
			out[i].Tokens[j] = float32(rng.NormFloat64())
		}
	}
	return out
}

// Documents of passages come, go, and are replaced while an index is trained.
func TestRetrainFollowsPassages(t *testing.T) {
	ctx, path := t.Context(), newPath(t)
	docs := longer(t, 0, map[string]int{"a": 4, "b": 3, "c": 2, "e": 0, "f": 3, "g": 2, "h": 5})
	_, err := Build(ctx, path, fromDocs(t, 4, docs), &BuildOptions{Centroids: 2})
	require.NoError(t, err)
	ix := writing(t, path)
	var want *Snapshot
	_, err = ix.Retrain(ctx, &RetrainOptions{Centroids: 2, Progress: func(p Progress) {
		if p.Stage != "encode" || want != nil {
			return
		}
		round := 0
		replace := func(passages map[string]int) {
			round++
			_, err := ix.Add(ctx, fromDocs(t, 4, longer(t, round, passages)), &AddOptions{Replace: true})
			require.NoError(t, err)
		}
		drop := func(gone Affected, ids ...string) {
			n, missing, err := ix.Delete(ctx, ids)
			require.NoError(t, err)
			require.Empty(t, missing)
			require.Equal(t, gone, n)
		}
		replace(map[string]int{"a": 2, "e": 3, "f": 0})
		drop(Affected{Documents: 1, Passages: 3}, "b#1", "c")
		replace(map[string]int{"d": 4, "i": 5})
		drop(Affected{Passages: 4}, "d#0", "d#2", "e#2", "i#3")
		replace(map[string]int{"g": 3})
		_, _, err := ix.UpdateByID(ctx, []string{"h", "d"}, condition.Fields{"round": json.RawMessage("7")})
		require.NoError(t, err)
		replace(map[string]int{"a": 3, "c": 0, "e": 0})
		drop(Affected{Documents: 1, Passages: 2}, "d")
		drop(Affected{Documents: 1, Passages: 2}, "b#0", "b#2")
		drop(Affected{Passages: 1}, "h#4")
		want = taken(t, ix)
	}})
	require.NoError(t, err)
	require.NotNil(t, want)
	got := taken(t, ix)
	require.NoError(t, got.Verify(ctx))
	require.True(t, got.Tombstones().Equals(want.Tombstones()))
	require.True(t, got.Passages().Equals(want.Passages()))
	require.Equal(t, want.Documents(), got.Documents())
	require.Equal(t, want.Len(), got.Len())
	for it := liveDocs(want.fileSnapshot).Iterator(); it.HasNext(); {
		o := it.Next()
		require.Equal(t, want.ID(o), got.ID(o))
		require.Equal(t, string(mustPayload(t, want, o)), string(mustPayload(t, got, o)))
	}
	for id, n := range map[string]int{"a": 3, "b": 0, "c": 1, "d": 0, "e": 1, "f": 1, "g": 3, "h": 4, "i": 4} {
		old, err := want.PassagesOf(id)
		require.NoError(t, err)
		parts, err := got.PassagesOf(id)
		require.NoError(t, err)
		require.Equal(t, old, parts, id)
		require.Len(t, parts, n, id)
	}
	require.NoError(t, errors.Join(want.Close(), got.Close()))
}
