package quality

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

func recallOf(t *testing.T, e *search.Engine, qs []search.Query, which []int, o search.Options) float64 {
	t.Helper()
	sum := 0.0
	for _, i := range which {
		want := find(t, e, qs[i], search.Options{K: o.K, Mode: search.Exhaustive}).Hits
		sum += shareFound(find(t, e, qs[i], o).Hits, want) / float64(len(which))
	}
	return sum
}

func TestTune(t *testing.T) {
	e, snap, qs, _ := recallIndex(t)
	steps := 0
	tuning, err := Tune(t.Context(), e, snap, qs, TuneOptions{Recall: 0.9, K: []int{20, 5, 20}, Progress: func(index.Progress) { steps++ }})
	require.NoError(t, err)
	require.Positive(t, steps)
	both := slices.Sorted(slices.Values(slices.Concat(tuning.TunedOn, tuning.HeldOut)))
	require.Len(t, both, len(qs))
	require.Equal(t, len(qs), len(slices.Compact(both)), "a query in both halves")
	require.Len(t, tuning.HeldOut, len(qs)/2)
	require.Len(t, tuning.Classes, 2)
	for i, c := range tuning.Classes {
		require.Equal(t, []int{5, 20}[i], c.K)
		require.GreaterOrEqual(t, c.Tuned.Recall-c.Margin, 0.9)
		require.InDelta(t, recallOf(t, e, qs, tuning.TunedOn, c.Setting.Options(c.K)), c.Tuned.Recall, 1e-9)
		require.InDelta(t, recallOf(t, e, qs, tuning.HeldOut, c.Setting.Options(c.K)), c.HeldOut.Recall, 1e-9)
		require.InDelta(t, recallOf(t, e, qs, tuning.HeldOut, search.Options{K: c.K}), c.Derived.Recall, 1e-9)
		require.Equal(t, c.HeldOut.Recall >= 0.9, c.Confirmed)
		require.Greater(t, len(c.Trials), 5)
		require.True(t, slices.ContainsFunc(c.Trials, func(x Trial) bool { return x.Setting == c.Setting }))
	}

	d := tuning.Defaults(storage.State{Live: 400, LiveTokens: 5000}, time.Now())
	require.NoError(t, d.Validate())
	require.Equal(t, 20, d.Classes[1].K)
	require.Equal(t, tuning.Classes[1].HeldOut.Recall, d.Classes[1].HeldOut)
	require.Equal(t, tuning.Classes[1].Confirmed, d.Classes[1].Confirmed())
}

// Nothing of what is chosen depends on a clock, and all centroids are no number.
func TestTuneIsCounted(t *testing.T) {
	e, snap, qs, _ := recallIndex(t)
	chosen := func() (all []Setting) {
		tuning, err := Tune(t.Context(), e, snap, qs[:effort.Cases(20, 40)], TuneOptions{Recall: 0.95, K: []int{3, 10, 30}})
		require.NoError(t, err)
		for _, c := range tuning.Classes {
			all = append(all, c.Setting)
			for _, x := range c.Trials {
				require.Less(t, x.Probes, snap.Header().Centroids, "%v", x.Setting)
				require.Positive(t, x.Work)
			}
			require.True(t, slices.ContainsFunc(c.Trials, func(x Trial) bool { return x.Scan }))
			// Recall is not sold for little.
			derived := c.Trials[0]
			require.Equal(t, Setting{}, derived.Setting)
			if c.Setting != derived.Setting && c.Tuned.Recall < derived.Recall && derived.Recall-c.Margin >= 0.95 {
				require.LessOrEqual(t, c.Tuned.Work, worthwhileWorse*derived.Work)
			}
		}
		return all
	}
	require.Equal(t, chosen(), chosen())

	scan := find(t, e, qs[0], Setting{Scan: true}.Options(3))
	require.Zero(t, scan.Stats.Probed)
	require.Equal(t, 1, scan.Stats.Plans[search.PlanScan.String()])
	d := (&Tuning{Classes: []Tuned{{K: 3, Setting: Setting{Scan: true}}}}).Defaults(storage.State{}, time.Now())
	require.NoError(t, d.Validate())
	require.True(t, d.Classes[0].Scan)
	d.Classes[0].Probes = 1
	require.Error(t, d.Validate())
}

// A recall of 1 can always be had.
func TestTuneForEverything(t *testing.T) {
	e, snap, qs, _ := recallIndex(t)
	tuning, err := Tune(t.Context(), e, snap, qs, TuneOptions{Recall: 1, K: []int{3, 5000}})
	require.NoError(t, err)
	for _, c := range tuning.Classes {
		require.Equal(t, 1.0, c.Tuned.Recall)
	}
	require.Equal(t, 1.0, tuning.Classes[1].HeldOut.Recall, "all documents are asked for")
}

func TestTuneErrors(t *testing.T) {
	e, snap, qs, _ := recallIndex(t)
	for _, o := range []TuneOptions{{Recall: 1.01}, {Recall: -1}, {K: []int{10, 0}}} {
		_, err := Tune(t.Context(), e, snap, qs, o)
		require.ErrorIs(t, err, search.ErrOption)
	}
	_, err := Tune(t.Context(), e, snap, qs[:3], TuneOptions{})
	require.ErrorIs(t, err, search.ErrQuery)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = Tune(ctx, e, snap, qs, TuneOptions{Progress: func(p index.Progress) {
		if p.Stage == "tuning k = 10" {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestSweep(t *testing.T) {
	e, _, qs, _ := recallIndex(t)
	settings := append(Grid(10, 128, []int{0, 1, 500}, nil, []int{0, 3, 10}), Setting{Exhaustive: true})
	require.Equal(t, 7, len(settings), "%v", settings)
	points, err := Sweep(t.Context(), e, qs, SweepOptions{K: 10, Settings: settings, Repeat: 2, Judge: func(r []search.Result) (float64, error) {
		return float64(len(r)), nil
	}}, nil)
	require.NoError(t, err)
	all := make([]int, len(qs))
	for i := range all {
		all[i] = i
	}
	front := 0
	for i, p := range points {
		require.Equal(t, settings[i], p.Setting)
		require.InDelta(t, recallOf(t, e, qs, all, p.Setting.Options(10)), p.Recall, 1e-9, "%v", p.Setting)
		require.Equal(t, float64(len(qs)), *p.Value)
		require.Equal(t, len(qs), p.Stats.Queries)
		require.Positive(t, p.QPS)
		require.Positive(t, p.Latency.P50)
		require.LessOrEqual(t, p.Latency.P50, p.Latency.P95)
		require.LessOrEqual(t, p.Latency.P95, p.Latency.P99)
		require.LessOrEqual(t, p.Latency.P99, p.Latency.Max)
		if p.Pareto {
			front++
		}
	}
	require.Equal(t, 1.0, points[6].Recall)
	require.Positive(t, front)

	boom := errors.New("boom")
	_, err = Sweep(t.Context(), e, qs, SweepOptions{Settings: settings, Judge: func([]search.Result) (float64, error) { return 0, boom }}, nil)
	require.ErrorIs(t, err, boom)
	_, err = Sweep(t.Context(), e, nil, SweepOptions{Settings: settings}, nil)
	require.ErrorIs(t, err, search.ErrQuery)
	_, err = Sweep(t.Context(), e, qs, SweepOptions{Settings: []Setting{{Probes: -1}}}, nil)
	require.ErrorIs(t, err, search.ErrOption)
}

func TestLatency(t *testing.T) {
	var times []time.Duration
	for i := 100; i > 0; i-- {
		times = append(times, time.Duration(i))
	}
	require.Equal(t, Latency{Mean: 50, P50: 50, P95: 95, P99: 99, Max: 100}, NewLatency(times))
	require.Equal(t, Latency{Mean: 7, P50: 7, P95: 7, P99: 7, Max: 7}, NewLatency([]time.Duration{7}))
	require.Zero(t, NewLatency(nil))
}

// Every point off the front is beaten by one on it; none on it is beaten.
func TestParetoProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := make([]Point, rapid.IntRange(1, 12).Draw(t, "n"))
		for i := range points {
			points[i].Latency.P50 = time.Duration(rapid.IntRange(1, 5).Draw(t, "p50"))
			points[i].Recall = float64(rapid.IntRange(0, 4).Draw(t, "recall")) / 4
		}
		markPareto(points)
		for _, p := range points {
			beaten := slices.ContainsFunc(points, func(o Point) bool {
				return o.Latency.P50 <= p.Latency.P50 && o.Recall >= p.Recall && (o.Latency.P50 < p.Latency.P50 || o.Recall > p.Recall)
			})
			require.Equal(t, !beaten, p.Pareto)
		}
		require.True(t, slices.ContainsFunc(points, func(p Point) bool { return p.Pareto }))
	})
}

func TestSettingString(t *testing.T) {
	for want, s := range map[string]Setting{
		"derived": {}, "exhaustive": {Exhaustive: true}, "probes 8, exact 200": {Probes: 8, Exact: 200}, "scan, exact 200": {Scan: true, Exact: 200}, "approx 50": {Approx: 50},
	} {
		require.Equal(t, want, fmt.Sprint(s))
	}
}
