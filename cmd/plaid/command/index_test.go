package command

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
	(&buildSeconds{Open: .7, Texts: .5, Sample: .004, Train: 2.6, Encode: .5, Check: .1, Other: .396, Total: 4.8}).line(&b)
	require.Equal(t, "time:  4.8s (open 700ms, texts 500ms, train 2.6s, compress 500ms, check 100ms, other 396ms)\n", b.String())
}
