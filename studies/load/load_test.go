package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the soak run the test's program as the service.
func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := serveIfAsked(ctx)
	stop()
	switch {
	case errors.Is(err, errNotAsked):
		os.Exit(m.Run())
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

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

func TestMeasure(t *testing.T) {
	dir := small(t)
	for name, args := range map[string][]string{
		"one query":   {"-clients", "2,5", "-open", "0.3"},
		"two queries": {"-clients", "3", "-open", "", "-batch", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			args := append(args, "-rounds", "2", "-slice", "50ms", "-documents", "400", "-json", dir)
			require.NoError(t, run(t.Context(), args, &out, io.Discard))
			var r loadReport
			require.NoError(t, json.Unmarshal(out.Bytes(), &r))
			require.EqualValues(t, 200, r.Documents)
			var closed, open, beside int
			for _, row := range r.Rows {
				delete(row.Service.Errors, unsent) // the machine may have been busy
				delete(row.Engine.Errors, unsent)
				require.Empty(t, row.Service.Errors)
				require.Empty(t, row.Engine.Errors)
				require.True(t, row.Service.Requests > 0 || row.Loop != "closed")
				require.LessOrEqual(t, row.Service.P50, row.Service.Max)
				if row.Loop == "closed" {
					closed++
				} else {
					open++
				}
				if row.Writing {
					beside++
					require.NotNil(t, row.Writer)
					require.Empty(t, row.Writer.Errors)
				}
			}
			require.Equal(t, len(r.Rows), closed+open)
			require.Equal(t, len(r.Rows), 2*beside)
			var table bytes.Buffer
			require.NoError(t, r.table(&table))
			require.Contains(t, table.String(), "| closed |")
		})
	}
}

func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	var out, log bytes.Buffer
	err := run(t.Context(), []string{"-soak", "2s", "-documents", "300", "-json", small(t)}, &out, &log)
	require.NoError(t, err, out.String()+log.String())
	var r soakReport
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.Empty(t, r.Wrong)
	require.Positive(t, r.Searches.Requests)
	require.Positive(t, r.Added.Requests)
	require.Greater(t, r.Checked, 200)
	require.NotEmpty(t, r.Samples)
}

func TestReferenceFinds(t *testing.T) {
	in, err := open(t.Context(), small(t))
	require.NoError(t, err)
	defer in.close()
	ref, err := newReference(t.Context(), in, 1)
	require.NoError(t, err)
	exact := ref.scores[0]
	best, second := 0, -1
	for i := range exact {
		if exact[i] > exact[best] {
			best = i
		}
	}
	for i := range exact {
		if i != best && (second < 0 || exact[i] > exact[second]) {
			second = i
		}
	}
	first := hit{baseID(best), 0, exact[best]}
	check := func(hits ...hit) (string, int) { return ref.check(0, time.Now(), hits, len(hits)) }

	wrong, missed := check(first, hit{baseID(second), 0, exact[second]})
	require.Empty(t, wrong)
	require.Zero(t, missed)
	_, missed = check(hit{baseID(second), 0, exact[second]})
	require.Equal(t, 1, missed)
	for name, hits := range map[string][]hit{
		"never added": {{"other", 0, 1}},
		"twice":       {first, first},
		"order":       {{baseID(second), 0, exact[second]}, first},
		"version":     {{baseID(best), 1, exact[best]}},
		"scores":      {{baseID(best), 0, exact[best] / 2}},
	} {
		wrong, _ := check(hits...)
		require.Contains(t, wrong, name)
	}
	ref.changed(baseID(best), func(e *entry) { e.gone = true })
	wrong, _ = ref.check(0, time.Now().Add(time.Second), []hit{first}, 1)
	require.Contains(t, wrong, "deleted")
	wrong, _ = ref.check(0, time.Now().Add(-time.Hour), []hit{first}, 1) // it was deleted meanwhile
	require.Empty(t, wrong)
}

func TestOpenLoopCountsWhatIsNotSent(t *testing.T) {
	slow := func(int) string { time.Sleep(30 * time.Millisecond); return "" }
	got := openLoop(t.Context(), []ask{slow}, 2000, 50*time.Millisecond, rand.New(rand.NewPCG(1, 1)))
	require.Positive(t, got.wrong[unsent])
	require.NotEmpty(t, got.took)
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"-clients", "0", "x"}, {"-clients", "a", "x"}, {"-open", "-1", "x"}, {"-slice", "0s", "x"}, {"-rate", "0", "x"}} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, args)
	}
	require.Error(t, run(t.Context(), []string{t.TempDir()}, io.Discard, io.Discard))
}
