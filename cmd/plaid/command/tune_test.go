package command

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/search/quality"
)

// A check that failed is said, and nothing stored, unless that is asked for.
func TestTuneVerdict(t *testing.T) {
	for _, c := range []struct {
		force, dryRun, confirmed bool
		keep, fails              bool
	}{
		{confirmed: true, keep: true},
		{confirmed: true, force: true, keep: true},
		{confirmed: true, dryRun: true},
		{fails: true},
		{dryRun: true, fails: true},
		{force: true, keep: true},
	} {
		flags := &tuneFlags{force: c.force, dryRun: c.dryRun}
		keep, err := flags.verdict(c.confirmed)
		require.Equal(t, c.keep, keep, "%+v", c)
		require.Equal(t, c.fails, err != nil, "%+v", c)
		if c.fails {
			require.ErrorIs(t, err, errUnconfirmed)
			require.Equal(t, exitFailed, exitCode(err))
		}
	}
	r := tuneReport{Target: 0.99, Classes: []quality.Tuned{{K: 10, Setting: quality.Setting{Probes: 4}, HeldOut: quality.Trial{Recall: 0.98, Cost: time.Millisecond}}}}
	require.Regexp(t, `(?m)^ *10 +4 +· +· +0\.0000 +0\.9800 +0 +1\.000 .* NOT CONFIRMED$`, string(r.table()))
	require.NotContains(t, string(r.table()), "stored")
	r.Stored = true
	require.Contains(t, string(r.table()), "stored as the defaults")
}

func TestTablesOfNumbers(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0.0000", 0.00004: "0.0000", -0.00004: "0.0000", 0.00006: "+0.0001", -0.25: "-0.2500", 1: "+1.0000",
	} {
		require.Equal(t, want, signed(in))
	}
	require.Equal(t, "<0.0001", chance(9e-5))
	require.Equal(t, "0.0001", chance(1e-4))
}
