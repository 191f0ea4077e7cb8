package encode

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/onnxruntime"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

// TestStreamErrors: the documents before an error come out, then the error.
func TestStreamErrors(t *testing.T) {
	e := open(t, nano(t), &Options{Threads: 2})
	run := func(ctx context.Context, texts func(yield func(Text, error) bool), stop int) (n int, err error) {
		for _, derr := range chunked(e, 20).Documents(ctx, texts) {
			if derr != nil {
				return n, derr
			}
			if n++; n == stop {
				break
			}
		}
		return n, nil
	}
	many := func(end func(i int) (Text, error)) func(yield func(Text, error) bool) {
		return func(yield func(Text, error) bool) {
			for i := range 1000 {
				if !yield(end(i)) {
					return
				}
			}
		}
	}
	fine := func(i int) (Text, error) { return Text{ID: fmt.Sprint("d", i), Text: "cells divide"}, nil }
	boom := errors.New("boom")
	n, err := run(t.Context(), many(func(i int) (Text, error) {
		if i == 33 {
			return Text{}, boom
		}
		return fine(i)
	}), 0)
	require.ErrorIs(t, err, boom)
	require.Equal(t, 33, n)
	n, err = run(t.Context(), many(func(i int) (Text, error) {
		if i == 7 {
			return Text{ID: "bad", Text: "a\xffb"}, nil
		}
		return fine(i)
	}), 0)
	var te *TextError
	require.ErrorAs(t, err, &te)
	require.ErrorIs(t, err, tokenizer.ErrText)
	require.Equal(t, []any{7, 7, "bad"}, []any{n, te.Row, te.ID})

	n, err = run(t.Context(), many(fine), 5)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	ctx, cancel := context.WithCancel(t.Context())
	n, err = run(ctx, many(func(i int) (Text, error) {
		if i == 40 {
			cancel()
		}
		return fine(i)
	}), 0)
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, n, 40)

	// The stream is read no further ahead than memory is promised for.
	ahead := 0
	n, err = run(t.Context(), many(func(i int) (Text, error) { ahead = i; return fine(i) }), 1)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.LessOrEqual(t, ahead, 2*chunksPerWorker*4)
	require.PanicsWithValue(t, "stream", func() { run(t.Context(), many(func(int) (Text, error) { panic("stream") }), 0) })

	em, err := e.Query(t.Context(), " ")
	require.NoError(t, err)
	require.Empty(t, em.Vectors)
	_, err = e.Query(t.Context(), "\xff")
	require.ErrorIs(t, err, tokenizer.ErrText)
	list, err := e.Queries(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestClosedWhileUsed: what is under way ends as it would have.
func TestClosedWhileUsed(t *testing.T) {
	backends := []*Options{{Threads: 2}}
	if os.Getenv(onnxruntime.EnvLibrary) != "" {
		backends = append(backends, &Options{Threads: 2, Backend: ONNXRuntime})
	}
	for _, o := range backends {
		dir := nano(t)
		if o.Backend == ONNXRuntime {
			dir = miniGraph(t)
		}
		e, err := Open(dir, o)
		require.NoError(t, err)
		chunked(e, 4)
		n := 0
		for _, err := range e.Documents(t.Context(), Texts(make60()...)) {
			require.NoError(t, err)
			if n++; n == 1 {
				require.NoError(t, e.Close())
				require.NoError(t, e.Close())
			}
		}
		require.Equal(t, 60, n)
		_, err = e.Query(t.Context(), "a")
		require.ErrorIs(t, err, ErrClosed)
		_, err = e.Tokenize(Query, "a")
		require.ErrorIs(t, err, ErrClosed)
		for _, err := range e.Documents(t.Context(), Texts(nil...)) {
			require.ErrorIs(t, err, ErrClosed)
		}
	}
}

func make60() (list []Text) {
	for range 60 {
		list = append(list, Text{Text: "cells"})
	}
	return list
}

// TestNoGoroutineStays once a stream has ended, or was left.
func TestNoGoroutineStays(t *testing.T) {
	e := open(t, nano(t), &Options{Threads: 3})
	before := runtime.NumGoroutine()
	for range 3 {
		for range e.Documents(t.Context(), Texts(Text{Text: "a"}, Text{Text: "b"})) {
			break
		}
	}
	for i := 0; runtime.NumGoroutine() > before && i < 6000; i++ { // the last ones are about to end
		time.Sleep(10 * time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// Where several goroutines make the ids, documents come in order, with the same bits, and
// a text that is none ends the stream behind those before it.
func TestIDsByManyGoroutines(t *testing.T) {
	one, many := open(t, nano(t), nil), chunked(open(t, nano(t), nil), 2000)
	localOf(many).threads = 4
	var texts []Text
	for i := range 120 {
		text := strings.Repeat("cells divide, ", i%9) + fmt.Sprint(i)
		if i%13 == 5 {
			text = " "
		}
		texts = append(texts, Text{ID: fmt.Sprint("doc", i), Text: text})
	}
	read := func(e *Encoder, texts []Text) (docs []vectors.Document, err error) {
		for d, err := range e.Documents(t.Context(), Texts(texts...)) {
			if err != nil {
				return docs, err
			}
			d.Tokens = slices.Clone(d.Tokens)
			docs = append(docs, d)
		}
		return docs, nil
	}
	want, err := read(one, texts)
	require.NoError(t, err)
	got, err := read(many, texts)
	require.NoError(t, err)
	require.Equal(t, want, got)
	texts[77].Text, texts[91].Text = "\xff", "\xfe"
	got, err = read(many, texts)
	var fault *TextError
	require.ErrorAs(t, err, &fault)
	require.Equal(t, 77, fault.Row)
	require.Equal(t, "doc77", fault.ID)
	require.Equal(t, want[:77], got)
}

// TestSameBytes: the bits of a text's vectors depend on nothing but the text and
// the model: not on threads, chunks, order or company.
func TestSameBytes(t *testing.T) {
	c := load(t, "scifact-sample")
	if !effort.Long() {
		c.docs = short(c.docs)
	}
	c.docs = append(c.docs[:8:8], Text{ID: "empty"}, Text{ID: "short", Text: "cells"})
	bits := func(x []float32) []uint32 {
		b := make([]uint32, len(x))
		for i, v := range x {
			b[i] = math.Float32bits(v)
		}
		return b
	}
	for _, p := range []Precision{F32, Int8} {
		want := map[string][]uint32{}
		for _, k := range []struct {
			threads, chunk int
			backwards      bool
		}{{1, 1500, false}, {1, 1, false}, {2, 100, true}, {3, 500, false}, {2, 1500, true}} {
			e := open(t, nano(t), &Options{Precision: p, Threads: k.threads})
			docs := slices.Clone(c.docs)
			if k.backwards {
				slices.Reverse(docs)
			}
			i := 0
			for doc, err := range chunked(e, k.chunk).Documents(t.Context(), Texts(docs...)) {
				require.NoError(t, err)
				require.Equal(t, docs[i].ID, doc.ID)
				i++
				if len(want) < len(docs) {
					want[doc.ID] = bits(doc.Tokens)
				}
				require.True(t, slices.Equal(want[doc.ID], bits(doc.Tokens)), "%v %+v %s", p, k, doc.ID)
			}
			require.Equal(t, len(docs), i)
			q, err := e.Query(t.Context(), c.queries[0].Text)
			require.NoError(t, err)
			if want["query"] == nil {
				want["query"] = bits(q.Vectors)
			}
			require.Equal(t, want["query"], bits(q.Vectors))
		}
	}
}
