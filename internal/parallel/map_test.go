package parallel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// counting yields 0 to n−1, then the error where there is one.
func counting(n int, err error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(0, err)
		}
	}
}

// Map is the loop that it stands for, whatever fails and wherever its user stops.
func TestMapIsALoop(t *testing.T) {
	ctx := context.Background()
	failed, odd := errors.New("of the sequence"), errors.New("of an item")
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 1000).Draw(rt, "items")
		var end error
		if rapid.Bool().Draw(rt, "fails at the end") {
			end = failed
		}
		bad := rapid.IntRange(-1, 1200).Draw(rt, "bad item")
		stop := rapid.IntRange(0, 1200).Draw(rt, "stopped after")
		size := rapid.SampledFrom([]int{0, 1, 5000, mapBytes, mapAhead}).Draw(rt, "bytes")
		f := func(i int) (string, error) {
			if i == bad {
				return "", fmt.Errorf("%w %d", odd, i)
			}
			return fmt.Sprint("item ", i), nil
		}
		collect := func(threads int) (all []string, err error) {
			for s, e := range Map(ctx, counting(n, end), threads, func(int) int { return size }, f) {
				if e != nil {
					return all, e
				}
				if all = append(all, s); len(all) > stop {
					break
				}
			}
			return all, nil
		}
		want, wantErr := collect(1)
		got, err := collect(rapid.IntRange(2, 8).Draw(rt, "threads"))
		require.Equal(rt, want, got)
		require.Equal(rt, wantErr, err)
	})
}

// What is under way is bounded in items and in bytes, and nothing runs after the end.
func TestMapIsBounded(t *testing.T) {
	for _, size := range []int{1, mapBytes / 2, mapAhead} {
		before := runtime.NumGoroutine()
		var read atomic.Int64
		in := func(yield func(int, error) bool) {
			for i := 0; yield(i, nil); i++ {
				read.Add(1)
			}
		}
		const threads = 3
		for i, err := range Map(t.Context(), in, threads, func(int) int { return size }, func(i int) (int, error) { return i, nil }) {
			require.NoError(t, err)
			if i == 10 {
				break
			}
		}
		most := int64(10 + (4*threads+3)*mapItems)
		if size == mapAhead {
			most = 10 + 4
		}
		require.LessOrEqual(t, read.Load(), most, "items of %d bytes", size)
		for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), before)
	}
}

func TestMapEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	var last error
	for _, err := range Map(ctx, counting(1<<30, nil), 2, func(int) int { return 1 }, func(i int) (int, error) { return i, nil }) {
		if last = err; err != nil {
			break
		}
		if n++; n == 100 {
			cancel()
		}
	}
	require.ErrorIs(t, last, context.Canceled)
}

func TestMapPanicsOnItsCaller(t *testing.T) {
	use := func(in iter.Seq2[int, error], f func(int) (int, error)) {
		for range Map(t.Context(), in, 2, func(int) int { return 1 }, f) {
		}
	}
	same := func(i int) (int, error) { return i, nil }
	for name, fn := range map[string]func(){
		"item":     func() { use(counting(100, nil), func(i int) (int, error) { panic("here") }) },
		"sequence": func() { use(func(func(int, error) bool) { panic("here") }, same) },
	} {
		var p *Panic
		func() {
			defer func() { p, _ = recover().(*Panic) }()
			fn()
		}()
		require.NotNil(t, p, name)
		require.Equal(t, "here", p.Value, name)
	}
}
