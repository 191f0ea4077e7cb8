package server

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func (b *budget) state() (left int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.remaining, len(b.waiting)
}

func untilWaiting(t *testing.T, b *budget, n int) {
	t.Helper()
	require.Eventually(t, func() bool { _, waiting := b.state(); return waiting == n }, time.Minute, time.Millisecond)
}

// A gate estimates by the mean of how long turns were held, in which the last has a share of 1/16.
func TestTurnsAreTimed(t *testing.T) {
	g := newGate(1, time.Second)
	for _, c := range []struct{ held, want time.Duration }{{16 * time.Second, 16 * time.Second}, {0, 15 * time.Second}} {
		require.Nil(t, g.acquire(t.Context()))
		g.release(c.held)
		require.Equal(t, c.want, g.expectedWait(1))
	}
}

// What does not fit waits until others have given enough back, in order.
func TestBudgetWaits(t *testing.T) {
	b := newBudget("max-x", 100, 0, time.Hour)
	holder := b.newReservation()
	require.NoError(t, holder.reserve(t.Context(), 80))
	large, small := b.newReservation(), b.newReservation()
	order := make(chan string, 2)
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, large.reserve(t.Context(), 60)); order <- "large" })
	untilWaiting(t, b, 1)
	wg.Go(func() { require.NoError(t, small.reserve(t.Context(), 10)); order <- "small" })
	untilWaiting(t, b, 2)
	require.Empty(t, order)
	holder.releaseAll()
	wg.Wait()
	left, _ := b.state()
	require.EqualValues(t, 30, left)
	large.releaseAll()
	small.releaseAll()
	left, _ = b.state()
	require.EqualValues(t, 100, left)
	var p *Problem
	require.ErrorAs(t, large.reserve(t.Context(), 101), &p)
	require.Equal(t, CodeTooLarge, p.Code)
	require.Contains(t, p.Message, "max-x")
	require.NoError(t, small.reserve(t.Context(), 1))
	require.ErrorAs(t, small.reserve(t.Context(), math.MaxInt64), &p)
	small.releaseAll()
}

// Requests that take their memory piece by piece, and together need many times what there
// is, all get it: none waits for another that waits for it.
func TestBudgetOfPieces(t *testing.T) {
	const most, one, piece, requests = 100, 50, 5, 40
	b := newBudget("max-x", most, one, time.Hour)
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			a := b.newReservation()
			defer a.releaseAll()
			for range one / piece {
				require.NoError(t, a.reserve(t.Context(), piece))
				left, _ := b.state()
				require.GreaterOrEqual(t, left, int64(0))
			}
		})
	}
	wg.Wait()
	left, waiting := b.state()
	require.EqualValues(t, most, left)
	require.Zero(t, waiting)
	require.Nil(t, b.headroomHolder)
}

// Whoever would wait too long, by how long memory was held until now, is told at once, and
// for how long; a client that leaves is no longer waited for.
func TestBudgetIsBoundedByItsWait(t *testing.T) {
	b := newBudget("max-x", 100, 0, time.Minute)
	b.meanHold = 10 * time.Minute
	holder, other := b.newReservation(), b.newReservation()
	require.NoError(t, holder.reserve(t.Context(), 100))
	var p *Problem
	require.ErrorAs(t, other.reserve(t.Context(), 50), &p)
	require.Equal(t, CodeBusy, p.Code)
	require.Equal(t, 300, p.RetryAfter)
	_, waiting := b.state()
	require.Zero(t, waiting)

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- other.reserve(ctx, 5) }() // expected to wait for half a minute
	untilWaiting(t, b, 1)
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	_, waiting = b.state()
	require.Zero(t, waiting)

	b.maxWait = time.Millisecond // what was expected to be short, and was not
	b.meanHold = 0
	err := other.reserve(t.Context(), 5)
	require.True(t, errors.As(err, &p), err)
	require.Equal(t, CodeBusy, p.Code)
	holder.releaseAll()
	require.NoError(t, other.reserve(t.Context(), 5))
}

// Whatever the body is, what is refused for its fields is what encoding/json refuses.
func TestFieldsAreThoseThatAreDecoded(t *testing.T) {
	type body struct {
		searchIn
		Free map[string]any `json:"free"`
	}
	names := rapid.SampledFrom([]string{"queries", "params", "QUERIES", "weights", "embeddings", "top_k", "free", "metadata", "ids", "x", `a\"]}`, "subset"})
	space := rapid.SampledFrom([]string{"", " ", "\n\t"})
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			s := func() string { return space.Draw(t, "space") }
			kind := rapid.IntRange(0, 6).Draw(t, "kind")
			if depth == 0 {
				kind %= 4
			}
			if kind < 4 {
				return s() + []string{"null", "-1.5e3", `"}],{\\\"["`, "true"}[kind] + s()
			}
			var parts []string
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				v := value(depth-1).Draw(t, "value")
				if kind > 4 {
					v = s() + `"` + names.Draw(t, "name") + `"` + s() + ":" + v
				}
				parts = append(parts, v)
			}
			if kind == 4 {
				return s() + "[" + strings.Join(parts, ",") + s() + "]"
			}
			return "{" + strings.Join(parts, ",") + s() + "}" + s()
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := value(4).Draw(t, "text")
		require.True(t, json.Valid([]byte(text)), text)
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		var into body
		want := d.Decode(&into)
		got := checkFields([]byte(text), reflect.TypeFor[*body]())
		if got == nil {
			require.False(t, want != nil && strings.Contains(want.Error(), "unknown field"), "%s: %v", text, want)
		} else if want != nil && strings.Contains(want.Error(), "unknown field") {
			return
		} else {
			require.Error(t, want, text) // of a type that comes before
		}
	})
}
