package command

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/search/quality"
)

// An exhaustive search that takes far longer than all budgets leaves the drawing to these.
func TestBenchPlotWithoutOutlier(t *testing.T) {
	point := func(ms, probes int, exhaustive bool) quality.Point {
		return quality.Point{
			Setting: quality.Setting{Probes: probes, Exhaustive: exhaustive}, Recall: .9,
			Latency: quality.Latency{P50: time.Duration(ms) * time.Millisecond},
		}
	}
	draw := func(exhaustive int) string {
		r := &benchReport{Index: "x.plaid", K: 10, Points: []quality.Point{point(2, 1, false), point(6, 4, false), point(exhaustive, 0, true)}}
		b, err := r.svg()
		require.NoError(t, err)
		return string(b)
	}
	far := draw(100)
	require.Contains(t, far, "outside: 1")
	require.Contains(t, far, "latency of a query, median (ms); exhaustive: 100")
	near := draw(10)
	require.NotContains(t, near, "outside")
	require.NotContains(t, near, "(ms); exhaustive")
}
