package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// small is a folder of vectors.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	write := func(name string, docs int) {
		var text bytes.Buffer
		for range docs {
			var rows [6][8]float64
			for i := range rows {
				for j := range rows[i] {
					rows[i][j] = rng.NormFloat64()
				}
			}
			require.NoError(t, json.NewEncoder(&text).Encode(map[string]any{"vectors": rows}))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o666))
	}
	write("docs.jsonl", 200)
	write("queries.jsonl", 12)
	return dir
}

func TestLoad(t *testing.T) {
	dir := small(t)
	for name, o := range map[string]loadOptions{
		"one query":   {clients: []int{2, 5}, open: []float64{0.3}, batch: 1},
		"two queries": {clients: []int{3}, batch: 2},
	} {
		t.Run(name, func(t *testing.T) {
			o.data, o.rounds, o.slice, o.k, o.documents, o.group = t.TempDir(), 2, 50*time.Millisecond, 10, 400, 10
			r, err := measureLoad(t.Context(), &o, dir, io.Discard)
			require.NoError(t, err)
			require.EqualValues(t, 200, r.stats.Documents)
			beside := 0
			for _, row := range r.rows {
				delete(row.service.errors, unsent) // the machine may have been busy
				delete(row.engine.errors, unsent)
				require.Empty(t, row.service.errors)
				require.Empty(t, row.engine.errors)
				require.True(t, row.service.requests > 0 || row.loop != "closed")
				require.LessOrEqual(t, row.service.p50, row.service.slowest)
				if row.writing {
					beside++
					require.NotNil(t, row.writer)
					require.Empty(t, row.writer.errors)
				}
			}
			require.Len(t, r.rows, 2*len(o.clients)*(1+len(o.open)))
			require.Equal(t, len(r.rows), 2*beside)
			var table bytes.Buffer
			require.NoError(t, r.writeTable(&table))
			require.Contains(t, table.String(), "| closed |")
		})
	}
}

func TestOpenLoopCountsWhatIsNotSent(t *testing.T) {
	slow := func(int) string { time.Sleep(30 * time.Millisecond); return "" }
	got := openLoop(t.Context(), []sendFunc{slow}, 2000, 50*time.Millisecond, rand.New(rand.NewPCG(1, 1)))
	require.Positive(t, got.faults[unsent])
	require.NotEmpty(t, got.durations)
}

func TestArguments(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"", "want the name of a study"},
		{"other", "want the name of a study"},
		{"load", "load: want VECTORS"},
		{"load x y", "load: want VECTORS"},
		{"load -clients 0 x", "want numbers of at least 1"},
		{"load -clients a x", "want numbers of at least 1"},
		{"growth -tokens 1, x", "want numbers of at least 0.001"},
		{"load -open -1 x", "want numbers of at least 0"},
		{"load -slice 0s x", "above zero"},
		{"load -open 0 no-such-folder", "no such file"},
	} {
		require.ErrorContains(t, run(t.Context(), strings.Fields(c.args), io.Discard, io.Discard), c.says, c.args)
	}
}
