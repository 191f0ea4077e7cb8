package cuda_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/nativetest"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
)

// asking is what takes a question from text to hits, on a device.
type asking struct {
	encoder   *encode.Encoder
	engine    *search.Engine
	questions []string
}

// newAsking opens a model and an index on a device, in this order, and reads questions.
func newAsking(t testing.TB, d kernels.Device, model, path, questions string) *asking {
	ctx := context.Background()
	a := new(asking)
	for q, err := range encode.JSONL(ctx, questions) {
		require.NoError(t, err)
		a.questions = append(a.questions, q.Text)
	}
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	a.encoder, err = encode.OpenContext(ctx, model, &encode.Options{OpenedDevice: d})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.encoder.Close()) })
	a.engine, err = search.New(ctx, ix, &search.EngineOptions{Device: d})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.engine.Close()) })
	return a
}

// ask answers a question, by its number modulo how many there are, with ten hits.
func (a *asking) ask(ctx context.Context, i int) ([]search.Hit, error) {
	q, err := a.encoder.Query(ctx, a.questions[i%len(a.questions)])
	if err != nil {
		return nil, err
	}
	r, err := a.engine.Search(ctx, search.Query{Vectors: q.Vectors, Dim: a.encoder.Dim()}, search.Options{K: 10})
	if err != nil {
		return nil, err
	}
	return r.Hits, nil
}

// together asks n questions by so many goroutines, and gives what each took.
func (a *asking) together(n, goroutines int, each func(i int, hits []search.Hit)) ([]time.Duration, error) {
	var next atomic.Int64
	var all sync.WaitGroup
	times, errs := make([]time.Duration, n), make([]error, goroutines)
	for g := range goroutines {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[g] == nil; i = int(next.Add(1)) - 1 {
				begin := time.Now()
				hits, err := a.ask(context.Background(), i)
				times[i], errs[g] = time.Since(begin), err
				each(i, hits)
			}
		})
	}
	all.Wait()
	return times, cmp.Or(errs...)
}

// BenchmarkGPUQuestion takes questions from text to ten hits on a GPU, one at a time and by 32
// goroutines: in the index that PLAID_QUESTION_INDEX names, with the model whose folder is
// PLAID_QUESTION_MODEL, which made it, and the questions of PLAID_QUESTIONS (.jsonl).
func BenchmarkGPUQuestion(b *testing.B) {
	path, model, questions := os.Getenv("PLAID_QUESTION_INDEX"), os.Getenv("PLAID_QUESTION_MODEL"), os.Getenv("PLAID_QUESTIONS")
	if path == "" || model == "" || questions == "" {
		b.Skip("needs PLAID_QUESTION_INDEX, PLAID_QUESTION_MODEL and PLAID_QUESTIONS")
	}
	a := newAsking(b, openGPU(b), model, path, questions)
	for _, goroutines := range []int{1, 32} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			times, err := a.together(b.N, goroutines, func(int, []search.Hit) {})
			require.NoError(b, err)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "questions/s")
			slices.Sort(times)
			b.ReportMetric(float64(times[b.N/2])/1e6, "p50-ms")
			b.ReportMetric(float64(times[b.N*95/100])/1e6, "p95-ms")
		})
	}
}

// The whole way on a device, from texts to an index and from questions to hits, finds what the
// processor finds: one question at a time, and many at once.
func TestQuestions(t *testing.T) {
	ctx := t.Context()
	examples := filepath.Join("..", "..", "docs", "examples", "quickstart")
	model, questions := filepath.Join(examples, "colbert-nano"), filepath.Join(examples, "scifact-sample", "queries.jsonl")
	d := new(nativetest.Device)
	enc, err := encode.OpenContext(ctx, model, &encode.Options{OpenedDevice: d})
	require.NoError(t, err)
	defer func() { require.NoError(t, enc.Close()) }()
	var docs []encode.Text
	for text, err := range encode.JSONL(ctx, filepath.Join(examples, "scifact-sample", "corpus.jsonl")) {
		require.NoError(t, err)
		if text.Text = text.Text[:min(len(text.Text), 150)]; len(docs) < 30 {
			docs = append(docs, text)
		}
	}
	c, err := encode.NewCollection(ctx, enc, func(context.Context) iter.Seq2[encode.Text, error] { return encode.Texts(docs...) })
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.plaid")
	_, err = index.Build(ctx, path, c, &index.BuildOptions{Device: d, Centroids: 64, Nbits: 4})
	require.NoError(t, err)

	a := newAsking(t, d, model, path, questions)
	a.questions = a.questions[:8]
	ix, err := index.Open(ctx, path, nil)
	require.NoError(t, err)
	defer ix.Close()
	cpu, err := search.New(ctx, ix, nil)
	require.NoError(t, err)
	defer cpu.Close()
	want := make([][]search.Hit, len(a.questions))
	for i, question := range a.questions {
		q, err := enc.Query(ctx, question)
		require.NoError(t, err)
		r, err := cpu.Search(ctx, search.Query{Vectors: q.Vectors}, search.Options{K: 10, Mode: search.Exhaustive})
		require.NoError(t, err)
		want[i] = r.Hits
	}
	for _, goroutines := range []int{1, 8} {
		got := make([][]search.Hit, len(want))
		times, err := a.together(len(want), goroutines, func(i int, hits []search.Hit) { got[i] = hits })
		require.NoError(t, err)
		require.Len(t, times, len(want))
		for i := range want {
			require.Len(t, got[i], 10)
			for j, h := range got[i] {
				require.InDelta(t, want[i][j].Score, h.Score, 1e-3, "question %d, place %d, %d goroutines", i, j, goroutines)
			}
		}
	}
}
