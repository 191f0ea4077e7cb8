package parallel

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Items go through all stages in order, and the error is that of a program that does one
// item after the other.
func TestLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stages, n, room := rapid.IntRange(1, 4).Draw(t, "stages"), rapid.IntRange(0, 20).Draw(t, "items"), rapid.IntRange(1, 4).Draw(t, "room")
		type fault struct{ stage, item int } // stage −1: of first
		faults := map[fault]bool{}
		for range rapid.IntRange(0, 3).Draw(t, "faults") {
			faults[fault{rapid.IntRange(-1, stages-1).Draw(t, "stage"), rapid.IntRange(0, 20).Draw(t, "item")}] = true
		}
		want := ""
		for item := range n {
			for stage := -1; stage < stages && want == ""; stage++ {
				if faults[fault{stage, item}] {
					want = fmt.Sprint(stage, item)
				}
			}
		}
		seen := make([][]int, stages)
		var under atomic.Int64
		var fns []func(*int) error
		for s := range stages {
			fns = append(fns, func(item *int) error {
				for range rand.IntN(3) {
					runtime.Gosched()
				}
				seen[s] = append(seen[s], *item)
				if s == stages-1 {
					under.Add(-1)
				}
				if faults[fault{s, *item}] {
					return errors.New(fmt.Sprint(s, *item))
				}
				return nil
			})
		}
		items := make([]*int, room)
		for i := range items {
			items[i] = new(int)
		}
		err := Pipeline(context.Background(), items, func(free func() (*int, error), put func(*int)) error {
			for i := range n {
				item, err := free()
				if err != nil {
					return err
				}
				if faults[fault{-1, i}] {
					return errors.New(fmt.Sprint(-1, i))
				}
				*item = i
				if under.Add(1) > int64(room) {
					return errors.New("too many at once")
				}
				put(item)
			}
			return nil
		}, fns...)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
		for s, got := range seen {
			for i, item := range got {
				require.Equal(t, i, item, "stage %d", s)
			}
			if want == "" {
				require.Len(t, got, n)
			}
		}
	})
}

func TestLineEndsWithTheContextAndCarriesPanics(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	fill := func(free func() (int, error), put func(int)) error {
		for {
			item, err := free()
			if err != nil {
				return err
			}
			put(item)
		}
	}
	n := 0
	require.ErrorIs(t, Pipeline(ctx, []int{1, 2}, fill, func(int) error {
		if n++; n == 5 {
			cancel()
		}
		return nil
	}), context.Canceled)
	require.PanicsWithError(t, "no\n\nstack", func() {
		defer func() {
			p := recover().(*Panic)
			require.NotEmpty(t, p.Stack)
			p.Stack = []byte("stack")
			panic(p)
		}()
		_ = Pipeline(context.Background(), []int{1, 2}, fill, func(int) error { return nil }, func(int) error { panic("no") })
	})
	require.PanicsWithValue(t, "first", func() {
		_ = Pipeline(context.Background(), []int{1, 2}, func(func() (int, error), func(int)) error { panic("first") }, func(int) error { return nil })
	})
}

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
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); {
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
