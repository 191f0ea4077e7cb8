package index

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// heavyTail makes documents of these numbers of tokens.
func heavyTail(dim int, rows ...int) []vectors.Document {
	rng := rand.New(rand.NewPCG(1, 2))
	docs := make([]vectors.Document, len(rows))
	for i, n := range rows {
		docs[i] = vectors.Document{ID: strconv.Itoa(i), Tokens: clustered(rng, n, dim)}
	}
	return docs
}

// Documents of very different lengths: the sample has about as many tokens as it
// may have, whatever the seed.
func TestSampleRegardsTokens(t *testing.T) {
	const dim = 8
	many := slices.Repeat([]int{20}, 196)
	for name, rows := range map[string][]int{
		"three":     {5, 30_000, 5},
		"few long":  append(many, 8000, 8000, 8000, 8000),
		"one long":  append(many, 50_000),
		"with gaps": {0, 3, 0, 20_000, 0, 0, 1, 0},
	} {
		src := fromDocs(t, dim, heavyTail(dim, rows...))
		for seed := range uint64(effort.Cases(1, 4)) {
			o := &BuildOptions{Centroids: 16, Seed: seed, Threads: 2, Iterations: 1}
			r := build(t, newPath(t), dim, heavyTail(dim, rows...), o)
			require.InDelta(t, 16*maxPointsPerCentroid, r.Train.Vectors, 16*maxPointsPerCentroid/2, "%s, seed %d", name, seed)
			require.Less(t, r.RMSE, 0.9, "%s, seed %d", name, seed)
			require.Equal(t, 16, r.Train.K)
		}
		total := int64(0)
		for _, n := range rows {
			total += int64(n)
		}
		a := selectSample(src, total, 4096, 4096, BuildOptions{Seed: 3})
		require.Equal(t, a, selectSample(src, total, 4096, 4096, BuildOptions{Seed: 3}))
		require.NotEqual(t, a, selectSample(src, total, 4096, 4096, BuildOptions{Seed: 4}))
	}
}

// Each span is read once, in order, with its tokens.
func TestReadSpans(t *testing.T) {
	const dim = 2
	docs := heavyTail(dim, 3, 0, 5, 2, 7, 1)
	spans := []span{{0, 1, 3}, {2, 0, 2}, {2, 3, 5}, {3, 0, 2}, {5, 0, 1}}
	var got []float32
	for tokens, err := range readSpans(context.Background(), fromDocs(t, dim, docs), spans) {
		require.NoError(t, err)
		got = append(got, tokens...)
	}
	var want []float32
	for _, s := range spans {
		want = append(want, docs[s.doc].Tokens[s.lo*dim:s.hi*dim]...)
	}
	require.Equal(t, want, got)
}

// A number of documents that is asked for is a number of documents.
func TestSampleOfDocuments(t *testing.T) {
	docs := heavyTail(4, append(slices.Repeat([]int{2}, 30), 500)...)
	for seed := range uint64(10) {
		r := build(t, newPath(t), 4, docs, &BuildOptions{Centroids: 4, SampleDocs: 5, Seed: seed})
		require.Equal(t, 5, r.SampleDocs)
	}
}

// pooledDocs is what an index should hold of documents.
func pooledDocs(docs []vectors.Document, dim, n int) []vectors.Document {
	var p pool.Pooler
	var out []vectors.Document
	for _, d := range docs {
		x := append([]float32(nil), d.Tokens...)
		codec.Normalize(x, dim)
		d.Tokens = p.Pool(nil, x, dim, n)
		out = append(out, d)
	}
	return out
}

func TestPool(t *testing.T) {
	const dim = 16
	docs := corpus(90, 30, dim, 5)
	for _, n := range []int{2, 3} {
		want := pooledDocs(docs, dim, n)
		var digest string
		for _, threads := range []int{1, 3} {
			path := newPath(t)
			r := build(t, path, dim, docs[:60], &BuildOptions{Pool: n, Threads: threads, Centroids: 20})
			tokens := 0
			for _, d := range want[:60] {
				tokens += len(d.Tokens) / dim
			}
			require.EqualValues(t, tokens, r.Tokens)
			requireFile(t, path, want[:60])

			ix := writing(t, path)
			added, err := ix.Add(context.Background(), fromDocs(t, dim, docs[60:]), &AddOptions{Threads: threads})
			require.NoError(t, err)
			require.Equal(t, 30, added.Docs)
			s := taken(t, ix)
			require.Equal(t, n, s.Header().Build.Pool)
			requireIndex(t, s, want)
			require.NoError(t, s.Close())
			require.NoError(t, ix.Compact(context.Background(), nil))
			require.NoError(t, ix.Close())
			requireFile(t, path, want)
			if digest == "" {
				digest = digestOf(t, path)
			}
			require.Equal(t, digest, digestOf(t, path), "the number of threads changes the index")
		}
	}
}

func TestPoolErrors(t *testing.T) {
	const dim = 4
	docs := corpus(20, 8, dim, 5)
	_, err := Build(context.Background(), newPath(t), fromDocs(t, dim, docs), &BuildOptions{Pool: -1})
	require.ErrorIs(t, err, ErrOption)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	src, err := newPooledSource(t.Context(), &pooledSource{Source: fromDocs(t, dim, docs), pooling: pooling{factor: 2}, threads: 2, normalize: true, memory: 1 << 25})
	require.NoError(t, err)
	for _, err := range src.Docs(ctx, 0, len(docs)) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

// An index of texts that are encoded as they are read has the content of one of their
// spool; and wherever its build is interrupted, the next one goes on from there.
func TestTextsWithoutSpool(t *testing.T) {
	tiny(t)
	ctx := context.Background()
	e, err := encode.Open("../docs/examples/quickstart/colbert-nano", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	words := strings.Fields("cells divide and proteins fold in the membrane of old yeast while light falls on green leaves")
	const n = 60
	var texts []encode.Text
	for i := range n {
		text := encode.Text{ID: fmt.Sprint("d", i), Text: words[i%17] + " " + words[i*7%17] + " " + words[i*i%17], Payload: fmt.Appendf(nil, `{"n":%d}`, i)}
		if i%13 == 5 {
			text.Text = ""
		}
		texts = append(texts, text)
	}
	broken, stop := errors.New("broken"), n
	open := func(context.Context) iter.Seq2[encode.Text, error] {
		return func(yield func(encode.Text, error) bool) {
			for i, text := range texts {
				if i == stop {
					yield(encode.Text{}, broken)
					return
				}
				if !yield(text, nil) {
					return
				}
			}
		}
	}
	c, err := encode.NewCollection(ctx, e, open)
	require.NoError(t, err)
	spool, _, err := encode.Spool(ctx, e, open(ctx), "", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, spool.Close()) }()

	dir := testenv.RAMDir(t)
	path := func(name any) string { return filepath.Join(dir, fmt.Sprint(name)) }
	o := BuildOptions{Centroids: 16, Memory: 32 << 20, Threads: 1}
	_, err = Build(ctx, path("spool"), spool, &o)
	require.NoError(t, err)
	want := digestOf(t, path("spool"))
	_, err = Build(ctx, path("texts"), c, &o)
	require.NoError(t, err)
	require.Equal(t, want, digestOf(t, path("texts")))

	_, err = Train(ctx, path("codec"), spool, &o)
	require.NoError(t, err)
	o = BuildOptions{Like: snapshotOf(t, path("codec")), Memory: o.Memory, Threads: 1}
	_, err = Build(ctx, path("like"), spool, &o)
	require.NoError(t, err)
	want = digestOf(t, path("like"))
	o.Input, o.Resume = c.Tag(), true
	resumed := 0
	for _, at := range []int{1, 20, 41, 59}[effort.Cases(2, 0):] {
		for _, stop = range []int{at, min(at+7, n-1)} {
			_, err := Build(ctx, path(at), c, &o)
			require.ErrorIs(t, err, broken)
		}
		stop = n
		r, err := Build(ctx, path(at), c, &o)
		require.NoError(t, err)
		require.Equal(t, want, digestOf(t, path(at)), "interrupted at %d", at)
		resumed += r.Resumed
	}
	require.Greater(t, resumed, n)
}

var errLost = errors.New("device lost")

// losing is a device that is lost after some calls of Nearest; it counts the
// tokens that it is asked for, and those that are asked for afterwards.
type losing struct {
	kernels.Device
	after         int64
	calls         atomic.Int64
	tokens, later atomic.Int64
}

func (l *losing) Info() kernels.DeviceInfo                    { return kernels.DeviceInfo{Name: "test:0"} }
func (l *losing) Builder(cpu kernels.Backend) kernels.Builder { return losingBuilder{cpu, l} }

type losingBuilder struct {
	kernels.Backend
	l *losing
}

func (b losingBuilder) Nearest(ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int) error {
	b.l.tokens.Add(int64(len(codes)))
	if n := b.l.calls.Add(1); n > b.l.after {
		b.l.later.Add(int64(len(codes)))
		return errLost
	}
	return b.Backend.Nearest(ctx, codes, scores, centroids, x, dim)
}

func (b losingBuilder) Prepare(context.Context, []float32, int) (kernels.Backend, func(), error) {
	return b, func() {}, nil
}

// A device that is lost ends the build at once, in training and in encoding,
// and leaves no index.
func TestBuildEndsWithTheDevice(t *testing.T) {
	const dim, threads = 4, 2
	docs := corpus(600, 60, dim, 1)
	o := BuildOptions{Centroids: 16, Threads: threads}
	whole := &losing{after: 1 << 40}
	o.Device = whole
	build(t, newPath(t), dim, docs, &o)
	calls := whole.calls.Load()
	for _, after := range []int64{0, 3, calls / 2, calls - 1} {
		l := &losing{after: after}
		o.Device = l
		path := newPath(t)
		_, err := Build(context.Background(), path, fromDocs(t, dim, docs), &o)
		require.ErrorIs(t, err, errLost, "after %d of %d calls", after, calls)
		require.LessOrEqual(t, l.later.Load(), int64(threads*2048), "blocks that were begun, and no more")
		if after < calls/2 {
			require.Less(t, l.tokens.Load(), whole.tokens.Load()/2, "after %d of %d calls", after, calls)
		}
		_, err = os.Stat(path)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}

// What the batches under way have of tokens that a device encodes is a fourth of the memory, and no
// more than a device is busy with.
func TestMemoryOfResidentBatches(t *testing.T) {
	for _, dim := range []int{16, 1024} {
		r, _, err := codec.Train(context.Background(), make([]float32, 4*dim), dim, codec.TrainOptions{K: 1, Nbits: 8})
		require.NoError(t, err)
		for _, memory := range []int64{32 << 20, DefaultMemory} {
			n := residentBatchLimit(r, memory)
			require.LessOrEqual(t, int64(batchesInFlight*n*(r.RowBytes()+r.CodeBytes()+2)), memory/4)
			require.LessOrEqual(t, n, residentTokens)
		}
		require.Equal(t, residentTokens, residentBatchLimit(r, 64<<30))
	}
}
