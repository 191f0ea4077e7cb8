package command

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

// The stages of a build add up to all that it takes, from the command line to the report.
func TestStagesAddUp(t *testing.T) {
	dir, texts := t.TempDir(), few(t, 12)
	path, vectors := filepath.Join(dir, "x.plaid"), filepath.Join(dir, "v")
	code, _, stderr := try(t, "encode", texts, "--model", nano, "-o", vectors)
	require.Equal(t, exitOK, code, stderr)
	for _, in := range [][]string{
		{"index", path, "--text", texts, "--model", nano},
		{"index", path, "--force", "--vectors", filepath.Join(vectors, "docs.npy"), "--lengths", filepath.Join(vectors, "doclens.npy")},
		{"index", filepath.Join(dir, "codec"), "--codec-only", "--text", texts, "--model", nano},
	} {
		code, stdout, stderr := try(t, append(in, "--centroids", "16", "--json")...)
		require.Equal(t, exitOK, code, stderr)
		var r struct{ Seconds map[string]float64 }
		require.NoError(t, json.Unmarshal([]byte(stdout), &r))
		sum := 0.0
		for stage, seconds := range r.Seconds {
			require.GreaterOrEqual(t, seconds, 0.0, stage)
			if stage != "total" {
				sum += seconds
			}
		}
		require.InDelta(t, r.Seconds["total"], sum, 1e-6, "%v", r.Seconds)
		require.Positive(t, r.Seconds["open"])
	}

	var b bytes.Buffer
	(&buildSeconds{Open: .7, Texts: .5, Sample: .004, Train: 2.6, Encode: .5, Check: .1, Other: .396, Total: 4.8}).writeLine(&b)
	require.Equal(t, "time:  4.8s (open 700ms, texts 500ms, train 2.6s, compress 500ms, check 100ms, other 396ms)\n", b.String())
}

// The lines of the table add up: those of the tokens to theirs, the others to the file.
func TestSizesAddUp(t *testing.T) {
	var b bytes.Buffer
	sizesText(&b, &index.Info{
		Tokens: 1,
		Pages:  storage.Pages{Size: 1 << 20, Page: 4096, Free: 3},
		Sizes: storage.Sizes{
			Codec: 1, Codes: 2, Residuals: 4, Factors: 8, Docs: 16, IDs: 32, Postings: 64, Tombstones: 128, Payload: 256, Fields: 512,
		},
	})
	sum, sums := int64(0), map[string]int64{}
	for line := range strings.Lines(b.String()) {
		cells := strings.Fields(line)
		n, err := strconv.ParseInt(strings.ReplaceAll(cells[len(cells)-2], ",", ""), 10, 64)
		if err != nil {
			continue // the head
		}
		switch name := strings.Join(cells[:len(cells)-2], " "); name {
		case "tokens, all in", "file":
			sums[name] = n
			require.Equal(t, sum, n, "%s\n%s", name, &b)
		default:
			sum += n
		}
	}
	require.Len(t, sums, 2)
}

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
		keep, err := flags.decideStoring(c.confirmed)
		require.Equal(t, c.keep, keep, "%+v", c)
		require.Equal(t, c.fails, err != nil, "%+v", c)
		if c.fails {
			require.ErrorIs(t, err, errUnconfirmed)
			require.Equal(t, exitFailed, exitCode(err))
		}
	}
	r := tuneReport{Target: 0.99, Classes: []quality.Tuned{{K: 10, Setting: quality.Setting{Probes: 4}, HeldOut: quality.Trial{Recall: 0.98, Cost: time.Millisecond}}}}
	require.Regexp(t, `(?m)^ *10 +4 +· +· +0\.0000 +0\.9800 +0\.00 +0 +1\.000 .* NOT CONFIRMED$`, string(r.textTable()))
	require.NotContains(t, string(r.textTable()), "stored")
	r.Stored = true
	require.Contains(t, string(r.textTable()), "stored as the defaults")
}

func TestTablesOfNumbers(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0.0000", 0.00004: "0.0000", -0.00004: "0.0000", 0.00006: "+0.0001", -0.25: "-0.2500", 1: "+1.0000",
	} {
		require.Equal(t, want, signedDifference(in))
	}
	require.Equal(t, "<0.0001", probability(9e-5))
	require.Equal(t, "0.0001", probability(1e-4))
}
