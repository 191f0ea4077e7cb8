package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func TestBuildKeepsEverything(t *testing.T) {
	for _, dim := range []int{1, 7, 96, 130, 768, 64, 128, 4096}[:effort.Cases(5, 8)] {
		for _, nbits := range []int{1, 2, 4, 8} {
			t.Run(fmt.Sprintf("dim %d, %d bits", dim, nbits), func(t *testing.T) {
				t.Parallel()
				docs := corpus(12, 5, dim, uint64(dim))
				path := newPath(t)
				r := build(t, path, dim, docs, &BuildOptions{Nbits: nbits, Centroids: 8, Seed: 3})
				requireFile(t, path, docs)
				reading(t, path, func(s *Snapshot) {
					require.Equal(t, dim, s.Dim())
					require.Equal(t, nbits, s.Header().Nbits)
					require.Equal(t, len(docs), r.Docs)
					require.EqualValues(t, r.Tokens, s.State().Tokens)
					rmse, worst := decodedError(t, s, docs)
					require.InDelta(t, rmse, r.RMSE, 1e-3)
					require.Greater(t, worst, map[int]float64{1: 0.5, 2: 0.75, 4: 0.97, 8: 0.99}[nbits])
				})
			})
		}
	}
}

func TestBuildOptionsGiveOneContent(t *testing.T) {
	const dim = 40
	docs := corpus(effort.Cases(40, 120), 30, dim, 5)
	base := BuildOptions{Seed: 9, Threads: 1}
	digest := func(change func(*BuildOptions)) string {
		o := base
		change(&o)
		path := newPath(t)
		build(t, path, dim, docs, &o)
		return digestOf(t, path)
	}
	want := digest(func(*BuildOptions) {})
	counts := []int{2, 7}
	if effort.Long() {
		counts = append(counts, 1)
	}
	for _, threads := range counts {
		require.Equal(t, want, digest(func(o *BuildOptions) { o.Threads = threads }), "%d threads", threads)
	}
	if effort.Brief() {
		return
	}
	require.NotEqual(t, want, digest(func(o *BuildOptions) { o.Seed = 10 }))
	require.NotEqual(t, want, digest(func(o *BuildOptions) { o.Nbits = 4 }))
	require.NotEqual(t, want, digest(func(o *BuildOptions) { o.NoDimScales = true }))
	require.NotEqual(t, want, digest(func(o *BuildOptions) { o.NoCentroidScales = true }))
	docs[7].Payload = []byte(`{"changed":true}`)
	require.NotEqual(t, want, digest(func(*BuildOptions) {}))
}

// Batches end by tokens, by payload and by documents, all of which follow the
// memory budget: none may be seen in the file.
func TestBatchesLeaveNoTrace(t *testing.T) {
	const dim = 1024
	docs := corpus(effort.Cases(40, 60), 30, dim, 6)
	for i := range docs {
		docs[i].Payload = make([]byte, 100_000)
		docs[i].Payload[0] = byte(i)
	}
	var digests []string
	for _, memory := range []int64{32 << 20, 1 << 30} {
		path := newPath(t)
		build(t, path, dim, docs, &BuildOptions{Memory: memory, Centroids: 8, Iterations: 1})
		digests = append(digests, digestOf(t, path))
		requireFile(t, path, docs)
	}
	require.Equal(t, digests[0], digests[1])
}

func TestUnusualCorpora(t *testing.T) {
	one := []float32{0.6, 0.8, 0}
	zero := []float32{0, 0, 0}
	many := func(n int, v []float32) (x []float32) {
		for range n {
			x = append(x, v...)
		}
		return x
	}
	for name, docs := range map[string][]vectors.Document{
		"one token":      {{ID: "a", Tokens: one, Payload: []byte("p")}},
		"one document":   {{ID: "a", Tokens: clustered(rand.New(rand.NewPCG(1, 1)), 9, 3)}},
		"same vectors":   {{ID: "a", Tokens: many(40, one)}, {ID: "b", Tokens: many(30, one)}},
		"empty at front": {{ID: "a"}, {ID: "b", Payload: []byte("b")}, {ID: "c", Tokens: one}},
		"empty at end":   {{ID: "c", Tokens: one}, {ID: "a"}, {ID: "b", Payload: []byte("b")}},
		"zero vectors":   {{ID: "c", Tokens: one}, {ID: "z", Tokens: zero}, {ID: "y", Tokens: append(many(2, zero), one...)}},
		"long payload":   {{ID: "c", Tokens: one, Payload: make([]byte, effort.Cases(6<<20, 20<<20))}, {ID: "e", Payload: make([]byte, 1)}},
		"odd ids":        {{ID: " ", Tokens: one}, {ID: "ü\u2028", Tokens: one}, {ID: strings.Repeat("x", vectors.MaxIDBytes), Tokens: one}},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			r := build(t, path, 3, docs, &BuildOptions{Centroids: 64})
			requireFile(t, path, docs)
			reading(t, path, func(s *Snapshot) {
				require.LessOrEqual(t, s.Header().Centroids, int(r.Tokens), "centroids without a token")
				_, worst := decodedError(t, s, docs[:1])
				require.Greater(t, worst, 0.5)
			})
		})
	}
}

// Sources of package vectors refuse most of this, others may not.
func TestBadSources(t *testing.T) {
	const dim = 4
	good := corpus(30, 5, dim, 2)
	change := func(i int, f func(d *vectors.Document)) []vectors.Document {
		docs := append([]vectors.Document(nil), good...)
		docs[i].Tokens = append([]float32{1, 2, 3, 4, 5, 6, 7, 8}, docs[i].Tokens...)
		f(&docs[i])
		return docs
	}
	boom := errors.New("boom")
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for name, c := range map[string]struct {
		src  *fakeSource
		want error
		says string
	}{
		"no documents": {&fakeSource{dim: dim}, ErrNoDocuments, "no documents"},
		"no tokens":    {&fakeSource{dim: dim, docs: []vectors.Document{{ID: "a"}, {ID: "b"}}}, ErrNoTokens, "2 documents"},
		"duplicate":    {&fakeSource{dim: dim, docs: change(20, func(d *vectors.Document) { d.ID = "d3" })}, ErrDuplicateID, `document 20: id is taken: "d3"`},
		"empty id":     {&fakeSource{dim: dim, docs: change(20, func(d *vectors.Document) { d.ID = "" })}, vectors.ErrID, "document 20"},
		"line in id":   {&fakeSource{dim: dim, docs: change(20, func(d *vectors.Document) { d.ID = "a\nb" })}, vectors.ErrID, `a\nb`},
		"long id":      {&fakeSource{dim: dim, docs: change(20, func(d *vectors.Document) { d.ID = strings.Repeat("x", 5000) })}, vectors.ErrID, "5000 bytes"},
		"NaN":          {&fakeSource{dim: dim, docs: change(20, func(d *vectors.Document) { d.Tokens[6] = nan })}, vectors.ErrValue, "token 1, component 2"},
		"infinite":     {&fakeSource{dim: dim, docs: change(29, func(d *vectors.Document) { d.Tokens[0] = inf })}, vectors.ErrValue, "d29"},
		"NaN before a false passage": {&fakeSource{dim: dim, docs: func() []vectors.Document {
			docs := change(20, func(d *vectors.Document) { d.Tokens[6] = nan })
			docs[22].Payload = []byte(`{"_passage":7}`)
			return docs
		}()}, vectors.ErrValue, "token 1, component 2"},
		"fails":          {&fakeSource{dim: dim, docs: good, visit: func(i int) error { return map[int]error{25: boom}[i] }}, boom, "boom"},
		"ends early":     {&fakeSource{dim: dim, docs: good, said: 31, id: func(i int) string { return fmt.Sprint("d", i) }, rows: func(i int) int { return len(good[min(i, 29)].Tokens) / dim }}, vectors.ErrShape, "30 of 31"},
		"other rows":     {&fakeSource{dim: dim, docs: good, rows: func(int) int { return 2 }}, ErrDimension, "the source announced 2 vectors"},
		"other id":       {&fakeSource{dim: dim, docs: good, id: func(i int) string { return fmt.Sprint("e", i) }}, vectors.ErrID, "the source announced \"e"},
		"torn vector":    {&fakeSource{dim: dim, docs: change(20, func(d *vectors.Document) { d.Tokens = d.Tokens[1:] })}, ErrDimension, "d20"},
		"codec mismatch": {&fakeSource{dim: 5, docs: []vectors.Document{{ID: "a", Tokens: make([]float32, 5)}}}, ErrDimension, "codec has 4"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := testenv.RAMDir(t)
			path := filepath.Join(dir, "test.plaid")
			build(t, path, dim, good, nil)
			ix, err := Open(context.Background(), path, nil)
			require.NoError(t, err)
			s := taken(t, ix)
			// With a codec nothing is sampled, so that encoding must notice it.
			for _, o := range []BuildOptions{{}, {SampleDocs: 1}, {Codec: s.Quantizer()}} {
				if name == "codec mismatch" && o.Codec == nil || name == "no tokens" && o.Codec != nil { // that is no error
					continue
				}
				_, err := Build(context.Background(), filepath.Join(dir, "fresh.plaid"), c.src, &o)
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, c.says)
				requireFiles(t, dir, 1)
			}
			require.NoError(t, s.Close())
			require.NoError(t, ix.Close())

			before := digestOf(t, path)
			_, err = Build(context.Background(), path, c.src, &BuildOptions{Force: true})
			if name != "codec mismatch" {
				require.ErrorIs(t, err, c.want)
				require.Equal(t, before, digestOf(t, path))
				requireFile(t, path, good)
			}
		})
	}
}

func TestBuildOptionErrors(t *testing.T) {
	src := fromDocs(t, 4, corpus(3, 3, 4, 1))
	path := newPath(t)
	for _, o := range []BuildOptions{
		{Nbits: 3}, {Nbits: -1}, {Centroids: -1}, {Centroids: storage.MaxCentroids + 1}, {SampleDocs: -1},
		{Iterations: -1}, {Threads: -1}, {Memory: 1 << 20}, {Memory: -1},
	} {
		_, err := Build(context.Background(), path, src, &o)
		require.ErrorIs(t, err, ErrOption, "%+v", o)
	}
	_, err := Build(context.Background(), path, src, &BuildOptions{Backend: "abacus"})
	require.Error(t, err)
	require.NoFileExists(t, path)
	_, err = Build(context.Background(), filepath.Join(t.TempDir(), "no", "such", "folder"), src, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCancelledBuild(t *testing.T) {
	docs := corpus(400, 20, 16, 4)
	for _, stage := range []string{"", "sample", "train", "encode"} {
		for _, there := range []bool{false, true} {
			dir := testenv.RAMDir(t)
			path := filepath.Join(dir, "test.plaid")
			old := corpus(5, 5, 16, 8)
			if there {
				build(t, path, 16, old, nil)
			}
			ctx, cancel := context.WithCancel(context.Background())
			if stage == "" {
				cancel()
			}
			_, err := Build(ctx, path, fromDocs(t, 16, docs), &BuildOptions{
				Force: true,
				Progress: func(p Progress) {
					require.LessOrEqual(t, p.Done, p.Total)
					if p.Stage == stage {
						cancel()
					}
				},
			})
			cancel()
			require.ErrorIs(t, err, context.Canceled, "stage %q", stage)
			if !there {
				requireFiles(t, dir, 0)
				continue
			}
			requireFiles(t, dir, 1)
			requireFile(t, path, old)
		}
	}
}

func TestForce(t *testing.T) {
	a, b := corpus(6, 5, 8, 1), corpus(9, 5, 12, 2)
	big := corpus(9, 5, 12, 3)
	for i := range big {
		big[i].Payload = make([]byte, 200_000)
	}
	path := newPath(t)
	build(t, path, 8, a, nil)
	_, err := Build(context.Background(), path, fromDocs(t, 12, b), nil)
	require.ErrorIs(t, err, storage.ErrExists)
	require.ErrorContains(t, err, path)
	requireFile(t, path, a)

	for i, docs := range [][]vectors.Document{b, big, big, b} {
		build(t, path, 12, docs, &BuildOptions{Force: true})
		requireFile(t, path, docs)
		ix, err := Open(context.Background(), path, &Options{Write: true}) // no lock is left behind
		require.NoError(t, err, "%d", i)
		require.NoError(t, ix.Close())
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(200_000), "the space of the large index is given back")

	fresh := filepath.Join(filepath.Dir(path), "fresh")
	build(t, fresh, 12, b, nil)
	require.Equal(t, digestOf(t, fresh), digestOf(t, path))
}

// A rebuild is done when it is committed, whether or not the space of the old
// index can be freed.
func TestForceDoesNotFailAfterTheCommit(t *testing.T) {
	dir := testenv.RAMDir(t)
	path := filepath.Join(dir, "test.plaid")
	old := corpus(9, 5, 8, 1)
	for i := range old {
		old[i].Payload = make([]byte, 100_000)
	}
	build(t, path, 8, old, nil)
	docs := corpus(4, 4, 8, 2)
	var log bytes.Buffer
	r := build(t, path, 8, docs, &BuildOptions{
		Force:  true,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Progress: func(p Progress) { // no rewrite gets past this
			require.NoError(t, os.MkdirAll(path+".rewrite.tmp/x", 0o777))
		},
	})
	require.Contains(t, log.String(), "was not freed")
	require.Error(t, r.NotFreed)
	requireFile(t, path, docs)
}

func TestForceSparesOtherFiles(t *testing.T) {
	for name, content := range map[string]string{"text": "precious", "zeros": string(make([]byte, 50_000)), "npy": "\x93NUMPY\x01\x00"} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		for _, force := range []bool{false, true} {
			_, err := Build(context.Background(), path, fromDocs(t, 8, corpus(3, 3, 8, 1)), &BuildOptions{Force: force})
			require.ErrorIs(t, err, storage.ErrNotIndex)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, content, string(after))
		}
	}
	_, err := Build(context.Background(), t.TempDir(), fromDocs(t, 8, corpus(3, 3, 8, 1)), &BuildOptions{Force: true})
	require.ErrorIs(t, err, storage.ErrNotIndex)
}

// An empty file, as mktemp makes it, needs no force.
func TestBuildIntoEmptyFile(t *testing.T) {
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	docs := corpus(3, 3, 8, 1)
	build(t, path, 8, docs, nil)
	requireFile(t, path, docs)
}

// Of builds that race for a path one wins and the others say so.
func TestRacingBuilds(t *testing.T) {
	for range 5 {
		path := newPath(t)
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			src := fromDocs(t, 8, corpus(20+i, 5, 8, uint64(i)))
			wg.Go(func() {
				_, errs[i] = Build(context.Background(), path, src, &BuildOptions{LockTimeout: 5 * time.Minute})
			})
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			if err == nil {
				require.Equal(t, -1, winner, "two builds succeeded")
				winner = i
				continue
			}
			require.ErrorIs(t, err, storage.ErrExists)
		}
		require.GreaterOrEqual(t, winner, 0)
		requireFile(t, path, corpus(20+winner, 5, 8, uint64(winner)))
	}
}

func TestBuildWithCodec(t *testing.T) {
	docs := corpus(20, 6, 8, 1)
	x := clustered(rand.New(rand.NewPCG(5, 5)), 200, 8)
	codec.Normalize(x, 8)
	c, _, err := codec.Train(context.Background(), x, 8, codec.TrainOptions{K: 7, Nbits: 4})
	require.NoError(t, err)
	path := newPath(t)
	reads := 0
	src := &fakeSource{dim: 8, docs: docs, visit: func(int) error { reads++; return nil }}
	r, err := Build(context.Background(), path, src, &BuildOptions{Codec: c, Nbits: 2})
	require.NoError(t, err)
	require.Equal(t, len(docs), reads, "read once")
	require.Zero(t, r.SampleDocs)
	requireFile(t, path, docs)
	reading(t, path, func(s *Snapshot) {
		require.Equal(t, c.Kernel().Centroids.Data, append([]byte(nil), s.Codec().Centroids.Data...))
		require.Equal(t, 4, s.Header().Nbits)
	})
}

func TestUnnormalized(t *testing.T) {
	docs := corpus(20, 6, 8, 1)
	path := newPath(t)
	build(t, path, 8, docs, &BuildOptions{Unnormalized: true})
	requireFile(t, path, docs)
	reading(t, path, func(s *Snapshot) { require.False(t, s.Header().Normalize) })
}

func TestInfo(t *testing.T) {
	docs := corpus(20, 6, 8, 1)
	path := newPath(t)
	r := build(t, path, 8, docs, nil)
	reading(t, path, func(s *Snapshot) {
		in, err := s.Info(context.Background())
		require.NoError(t, err)
		require.EqualValues(t, len(docs), in.Docs)
		require.EqualValues(t, r.Tokens, in.Tokens)
		require.NotNil(t, in.Built)
		require.Equal(t, snapshotDigest(t, s), in.Digest)
		require.Positive(t, in.BytesPerToken)
		info, err := os.Stat(path)
		require.NoError(t, err)
		if files.EmulateWindows { // it has room to grow
			require.LessOrEqual(t, in.Pages.Size, info.Size())
		} else {
			require.Equal(t, info.Size(), in.Pages.Size)
		}
		require.Greater(t, in.Pages.Size, in.Sizes.Total())
	})
}

// A segment has no more pairs than fit the numbers that they are counted with, however
// large the budget.
func TestSegmentsOfALargeBudget(t *testing.T) {
	most := maxSegmentBytes
	t.Cleanup(func() { maxSegmentBytes = most })
	require.Less(t, most/pairBytes, int64(math.MaxUint32)/2, "one document more has its place")
	maxSegmentBytes = 40 * pairBytes
	docs := corpus(100, 6, 8, 5)
	path := newPath(t)
	build(t, path, 8, docs[:60], &BuildOptions{Memory: 1 << 40})
	ix := writing(t, path)
	_, err := ix.Add(t.Context(), fromDocs(t, 8, docs[60:]), &AddOptions{Memory: 1 << 40})
	require.NoError(t, err)
	s := taken(t, ix)
	defer s.Close()
	require.Greater(t, s.Segments(), 4)
	for _, seg := range s.State().Segments {
		require.Less(t, seg.Docs, uint32(42))
	}
	require.NoError(t, s.Verify(t.Context()))
	requireIndex(t, s, docs)
}
