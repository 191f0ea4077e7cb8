package parallel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

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
		err := Line(context.Background(), items, func(free func() (*int, error), put func(*int)) error {
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
	require.ErrorIs(t, Line(ctx, []int{1, 2}, fill, func(int) error {
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
		_ = Line(context.Background(), []int{1, 2}, fill, func(int) error { return nil }, func(int) error { panic("no") })
	})
	require.PanicsWithValue(t, "first", func() {
		_ = Line(context.Background(), []int{1, 2}, func(func() (int, error), func(int)) error { panic("first") }, func(int) error { return nil })
	})
}
