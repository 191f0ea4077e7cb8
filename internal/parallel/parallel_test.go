package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/parallel"
)

func TestEveryPieceRunsOnce(t *testing.T) {
	for _, threads := range []int{0, 1, 2, 7, 100} {
		for _, n := range []int{0, 1, 2, 50} {
			ran := make([]atomic.Int32, n)
			busy := make([]atomic.Int32, 200)
			var p parallel.Pool
			for range 3 { // a pool is used again
				require.NoError(t, p.Run(t.Context(), n, threads, parallel.Func(func(w, i int) error {
					require.Less(t, w, parallel.Threads(threads, n))
					require.EqualValues(t, 1, busy[w].Add(1), "two pieces of one worker at a time")
					ran[i].Add(1)
					busy[w].Add(-1)
					return nil
				})))
			}
			for i := range ran {
				require.EqualValues(t, 3, ran[i].Load())
			}
		}
	}
}

func TestTheLowestErrorIsReturned(t *testing.T) {
	for range 200 {
		begun := atomic.Int32{}
		err := parallel.Do(t.Context(), 100, 8, func(i int) error {
			begun.Add(1)
			if i >= 20 && i%2 == 0 {
				return fmt.Errorf("piece %d", i)
			}
			if i == 20 {
				time.Sleep(time.Microsecond)
			}
			return nil
		})
		require.EqualError(t, err, "piece 20")
	}
}

func TestAContextEndsTheWork(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := atomic.Int32{}
	err := parallel.Do(ctx, 1000, 4, func(i int) error {
		if n.Add(1) >= 10 { // each, so that none goes on while the tenth is not run
			cancel()
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, n.Load(), int32(20))
	require.ErrorIs(t, parallel.Do(ctx, 10, 1, func(int) error { t.Error("ran"); return nil }), context.Canceled)
}

func TestAPanicIsTheCallers(t *testing.T) {
	boom := errors.New("boom")
	for _, threads := range []int{1, 4} {
		running := atomic.Int32{}
		got := func() (v any) {
			defer func() { v = recover() }()
			_ = parallel.Do(t.Context(), 100, threads, func(i int) error {
				running.Add(1)
				defer running.Add(-1)
				if i == 10 {
					panic(boom)
				}
				return nil
			})
			return nil
		}()
		require.Zero(t, running.Load(), "it waits for what was begun")
		if p, ok := got.(*parallel.Panic); ok {
			require.ErrorIs(t, p, boom)
			require.Contains(t, p.Error(), "TestAPanicIsTheCallers")
		} else {
			require.Equal(t, boom, got)
		}
	}
}

type counter struct{ n int }

func (c *counter) Run(_, _ int) error { c.n++; return nil }

func TestOneThreadAllocatesNothing(t *testing.T) {
	var p parallel.Pool
	c := &counter{}
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(10, func() { _ = p.Run(ctx, 5, 1, c) }))
	require.Equal(t, 55, c.n)
}

func TestBlocks(t *testing.T) {
	require.Equal(t, 0, parallel.Blocks(0, 4))
	require.Equal(t, 3, parallel.Blocks(9, 4))
	lo, hi := parallel.Block(2, 9, 4)
	require.Equal(t, [2]int{8, 9}, [2]int{lo, hi})
}

// TestSpare runs in a process of its own, as it is for all of a process.
func TestSpare(t *testing.T) {
	if os.Getenv("PLAID_TEST_SPARE") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSpare$")
		cmd.Env = append(os.Environ(), "PLAID_TEST_SPARE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	runtime.GOMAXPROCS(3)
	require.Equal(t, 3, parallel.Processors())
	for range 2 {
		parallel.AddSpareProcessors()
		require.Equal(t, 4, runtime.GOMAXPROCS(0))
		require.Equal(t, 3, parallel.Processors())
		require.Equal(t, 3, parallel.Threads(0, 100), "no more compute than before")
	}
	runtime.GOMAXPROCS(1)
	require.Equal(t, 1, parallel.Processors())
}
