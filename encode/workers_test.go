package encode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/nativetest"
	"github.com/plaid-ir/plaid/vectors"
)

// gated is a backend whose batches wait until they are let through, and which notes their
// texts. A text with "panic" or "fail" in it does that.
type gated struct {
	backend
	entered chan []string
	free    chan struct{}
	ended   chan error // contexts of batches that ended while they waited
}

var errText = errors.New("a text that fails")

func (b *gated) compute(ctx context.Context, r Role, batch []*chunk) error {
	var texts []string
	for _, c := range batch {
		for i := range c.texts {
			texts = append(texts, c.texts[i].text.Text)
		}
	}
	b.entered <- texts
	select {
	case <-b.free:
	case <-ctx.Done():
		b.ended <- ctx.Err()
		return ctx.Err()
	}
	if all := strings.Join(texts, " "); strings.Contains(all, "panic") {
		panic("a text that panics")
	} else if strings.Contains(all, "fail") {
		return errText
	}
	return b.backend.compute(ctx, r, batch)
}

func gate(t *testing.T, o *Options) (*Encoder, *gated) {
	e := open(t, nano(t), o)
	b := &gated{e.backend, make(chan []string, 100), make(chan struct{}, 100), make(chan error, 100)}
	e.backend = b
	return e, b
}

// waitingCalls is how many calls have something in the queue.
func waitingCalls(e *Encoder) int {
	e.workers.mu.Lock()
	defer e.workers.mu.Unlock()
	return len(e.workers.queue)
}

func untilWaiting(t *testing.T, e *Encoder, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return waitingCalls(e) == n }, time.Minute, time.Millisecond)
}

// asked is a query under way.
type asked struct {
	got    Embedding
	err    error
	fault  any
	done   chan struct{}
	cancel context.CancelFunc
}

func ask(t *testing.T, e *Encoder, text string) *asked {
	ctx, cancel := context.WithCancel(t.Context())
	a := &asked{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(a.done)
		defer func() { a.fault = recover() }()
		a.got, a.err = e.Query(ctx, text)
	}()
	return a
}

// What waits is computed together, whichever calls it is of, and has the vectors, to the
// bit, that it has alone.
func TestBatchesAcrossCalls(t *testing.T) {
	e, b := gate(t, &Options{Threads: 1})
	alone := open(t, nano(t), nil)
	first := ask(t, e, "first")
	require.Equal(t, []string{"first"}, <-b.entered)
	var calls []*asked
	for i := range 5 {
		calls = append(calls, ask(t, e, fmt.Sprint("cells number ", i)))
	}
	document := make(chan []float32, 1)
	go func() {
		for d, err := range e.Documents(t.Context(), Texts(Text{Text: "a document, of cells."})) {
			if err != nil {
				t.Error(err)
			}
			document <- append([]float32(nil), d.Tokens...)
		}
	}()
	untilWaiting(t, e, 6)
	b.free <- struct{}{}
	require.Len(t, <-b.entered, 6)
	b.free <- struct{}{}
	<-first.done
	for i, c := range calls {
		<-c.done
		require.NoError(t, c.err)
		want, err := alone.Query(t.Context(), fmt.Sprint("cells number ", i))
		require.NoError(t, err)
		require.Equal(t, want, c.got)
	}
	for d, err := range alone.Documents(t.Context(), Texts(Text{Text: "a document, of cells."})) {
		require.NoError(t, err)
		require.Equal(t, d.Tokens, <-document)
	}
	require.Empty(t, b.entered)
}

// A query waits for one chunk of a long stream, and not for all that is queued of it.
func TestCallsTakeTurns(t *testing.T) {
	e, b := gate(t, &Options{Threads: 1})
	b.backend.(*local).chunkIDs = 30 // a query is a batch
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, err := range e.Documents(t.Context(), Texts(make60()...)) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	require.Contains(t, <-b.entered, "cells")
	untilWaiting(t, e, 1)
	a := ask(t, e, "one")
	untilWaiting(t, e, 2)
	c := ask(t, e, "two")
	untilWaiting(t, e, 3)
	for range 3 {
		b.free <- struct{}{}
	}
	require.Contains(t, <-b.entered, "cells")
	require.Equal(t, []string{"one"}, <-b.entered)
	require.Equal(t, []string{"two"}, <-b.entered)
	close(b.free)
	wg.Wait()
	<-a.done
	<-c.done
}

// Who leaves goes at once, from the queue too, and a batch that nobody waits for any more
// ends.
func TestLeavers(t *testing.T) {
	e, b := gate(t, &Options{Threads: 1})
	first := ask(t, e, "first")
	<-b.entered
	second, third := ask(t, e, "second"), ask(t, e, "third")
	untilWaiting(t, e, 2)
	second.cancel()
	<-second.done // though nothing was let through
	require.ErrorIs(t, second.err, context.Canceled)
	untilWaiting(t, e, 1)
	fourth := ask(t, e, "fourth")
	untilWaiting(t, e, 2)
	b.free <- struct{}{}
	<-first.done
	require.NoError(t, first.err)
	require.Equal(t, []string{"third", "fourth"}, <-b.entered)
	third.cancel()
	<-third.done
	require.ErrorIs(t, third.err, context.Canceled)
	require.Empty(t, b.ended) // the fourth still waits
	fourth.cancel()
	<-fourth.done
	require.ErrorIs(t, <-b.ended, context.Canceled)
	// Nothing is held by those who have left.
	last := ask(t, e, "last")
	require.Equal(t, []string{"last"}, <-b.entered)
	b.free <- struct{}{}
	<-last.done
	require.NoError(t, last.err)
	require.Eventually(t, func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.backendUses == 0 && e.runningCalls == 0 }, time.Minute, time.Millisecond)
}

// A text that fails, or panics, fails its own call only.
func TestFaultsStayWithTheirCall(t *testing.T) {
	e, b := gate(t, &Options{Threads: 1})
	first := ask(t, e, "first")
	<-b.entered
	good, fail, panics, other := ask(t, e, "good"), ask(t, e, "will fail"), ask(t, e, "will panic"), ask(t, e, "other")
	untilWaiting(t, e, 4)
	close(b.free)
	for _, c := range []*asked{first, good, fail, panics, other} {
		<-c.done
	}
	require.NoError(t, first.err)
	require.NoError(t, good.err)
	require.NoError(t, other.err)
	require.NotEmpty(t, good.got.Vectors)
	require.NotEmpty(t, other.got.Vectors)
	require.ErrorIs(t, fail.err, errText)
	var te *TextError
	require.ErrorAs(t, fail.err, &te)
	require.Zero(t, te.Row)
	require.IsType(t, &parallel.Panic{}, panics.fault)
	require.Nil(t, good.fault)
}

// Of texts that go into a spool or a build a device gives halves, of what is kept alone, with
// the bits that a spool makes of float32. Where whole numbers are wanted, or are put together
// first, it gives those.
func TestHalvesOfDevices(t *testing.T) {
	d := &nativetest.Device{Tokens: 700}
	docs := append(load(t, "scifact-sample").docs[:effort.Cases(3, 12):effort.Cases(3, 12)], Text{ID: "empty"}, Text{ID: "dots", Text: ". , !"}, Text{ID: "last", Text: "cells, divide!"})
	open := func(o Options) *Encoder { return open(t, nano(t), &o) }
	onProcessor, onDevice := open(Options{Threads: 2}), open(Options{Threads: 2, OpenedDevice: d})
	spooled := func(e *Encoder, o *SpoolOptions) (all []vectors.Document, vectors int64) {
		s, r, err := Spool(t.Context(), e, Texts(docs...), "", o)
		require.NoError(t, err)
		defer s.Close()
		for doc, err := range s.Docs(t.Context(), 0, s.Len()) {
			require.NoError(t, err)
			doc.Tokens = slices.Clone(doc.Tokens)
			all = append(all, doc)
		}
		return all, r.Vectors
	}
	left := func() [2]int64 { return [2]int64{d.Floats.Swap(0), d.Halves.Swap(0)} }
	want, kept := spooled(onProcessor, nil)
	got, _ := spooled(onDevice, nil)
	require.Equal(t, want, got)
	require.Equal(t, [2]int64{0, kept}, left())

	c, err := NewCollection(t.Context(), onDevice, again(docs))
	require.NoError(t, err)
	i := 0
	for doc, err := range c.Docs(t.Context(), 0, c.Len()) {
		require.NoError(t, err)
		require.Equal(t, want[i].ID, doc.ID)
		require.Equal(t, append([]float32{}, want[i].Tokens...), append([]float32{}, doc.Tokens...))
		i++
	}
	require.Equal(t, [2]int64{0, kept}, left())

	for name, x := range map[string]struct {
		o     Options
		spool *SpoolOptions
	}{"whole numbers": {Options{}, &SpoolOptions{Float32: true}}, "pooled": {Options{Pool: 2}, nil}} {
		x.o.Threads = 2
		want, _ := spooled(open(x.o), x.spool)
		x.o.OpenedDevice = d
		got, _ := spooled(open(x.o), x.spool)
		require.Equal(t, want, got, name)
		n := left()
		require.Zero(t, n[1], name)
		require.Greater(t, n[0], kept, name)
	}
	_, err = onDevice.Query(t.Context(), "do cells divide?")
	require.NoError(t, err)
	for _, err := range onDevice.Documents(t.Context(), Texts(docs...)) {
		require.NoError(t, err)
	}
	require.Zero(t, left()[1])
}
