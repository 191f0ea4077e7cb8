package encode

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counting is a backend that counts what goes on at a time.
type counting struct {
	backend
	computing, most, chunks, mostChunks, texts, placed atomic.Int64
	free                                               chan struct{} // nil: nothing waits
}

func highest(now int64, most *atomic.Int64) {
	for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
	}
}

func (b *counting) prepare(r Role, text string) (sequence, error) {
	b.texts.Add(1)
	s, err := b.backend.prepare(r, text)
	highest(b.chunks.Add(1), &b.mostChunks)
	return s, err
}

func (b *counting) tokenize(r Role, text string) ([]Token, error) {
	b.placed.Add(1)
	return b.backend.tokenize(r, text)
}

func (b *counting) isFull(c *chunk) bool { return len(c.texts) == 1 }

func (b *counting) compute(ctx context.Context, r Role, batch []*chunk) error {
	highest(b.computing.Add(1), &b.most)
	defer b.computing.Add(-1)
	if b.free != nil {
		<-b.free
	}
	return b.backend.compute(ctx, r, batch)
}

// Calls share the threads, and the chunks that there is memory for: sixty-four of them
// compute no more at a time than one.
func TestCallsShareTheThreads(t *testing.T) {
	e := open(t, nano(t), &Options{Threads: 2})
	b := &counting{backend: e.backend, free: make(chan struct{})}
	e.backend = b
	const calls, texts = 64, 20
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			n := 0
			for d, err := range e.Documents(t.Context(), func(yield func(Text, error) bool) {
				for i := range texts {
					if !yield(Text{ID: fmt.Sprint("d", i), Text: "cells divide"}, nil) {
						return
					}
				}
			}) {
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint("d", n), d.ID)
				b.chunks.Add(-1)
				n++
			}
			require.Equal(t, texts, n)
		})
	}
	require.Eventually(t, func() bool { return waitingCalls(e) > calls/2 }, time.Minute, time.Millisecond)
	close(b.free)
	wg.Wait()
	require.LessOrEqual(t, b.most.Load(), int64(2))
	// Two each, and a little more for the calls that began while few were there.
	require.LessOrEqual(t, b.mostChunks.Load(), int64(3*calls))
}

// A query is tokenized once, and has the tokens that Tokenize gives.
func TestQueriesAreTokenizedOnce(t *testing.T) {
	e := open(t, nano(t), nil)
	text := "  How do cells divide? "
	want, err := e.Tokenize(Query, text)
	require.NoError(t, err)
	b := &counting{backend: e.backend}
	e.backend = b
	got, err := e.Query(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, want, got.Tokens)
	require.EqualValues(t, 1, b.texts.Load())
	require.Zero(t, b.placed.Load())
}
