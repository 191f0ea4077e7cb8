//go:build unix

package command

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkQuestion takes questions from text to hits, one at a time on one core,
// in an index that plaid index --text made: PLAID_QUESTION_INDEX, with the questions
// of PLAID_QUESTIONS (.jsonl, the first 50). They are encoded in the precision of
// the index, and in the other one, for the time that this takes. On a machine that
// others use too, ms-best tells most: the mean over the questions of the best time
// of each.
func BenchmarkQuestion(b *testing.B) {
	path, file := os.Getenv("PLAID_QUESTION_INDEX"), os.Getenv("PLAID_QUESTIONS")
	if path == "" || file == "" {
		b.Skip("PLAID_QUESTION_INDEX and PLAID_QUESTIONS are not set")
	}
	f, err := os.Open(file)
	require.NoError(b, err)
	defer f.Close()
	var questions []string
	for lines := bufio.NewScanner(f); lines.Scan() && len(questions) < 50; {
		var q struct{ Text string }
		require.NoError(b, json.Unmarshal(lines.Bytes(), &q))
		questions = append(questions, q.Text)
	}
	ix, err := index.Open(b.Context(), path, nil)
	require.NoError(b, err)
	defer ix.Close()
	snap, err := ix.Snapshot()
	require.NoError(b, err)
	defer snap.Close()
	engine, err := search.New(b.Context(), ix, &search.EngineOptions{Threads: 1})
	require.NoError(b, err)
	defer engine.Close()
	for _, c := range []struct {
		precision encode.Precision
		k         int
	}{{encode.F32, 10}, {encode.F32, 100}, {encode.Int8, 10}, {encode.Int8, 100}} {
		b.Run(fmt.Sprintf("%v/k=%d", c.precision, c.k), func(b *testing.B) {
			e, err := encode.Open(snap.Header().Model.Name, &encode.Options{Threads: 1, Precision: c.precision})
			require.NoError(b, err)
			defer e.Close()
			var encoding time.Duration
			best, cpu := make([]time.Duration, len(questions)), cpuTime(b)
			for i := 0; b.Loop(); i++ {
				begin := time.Now()
				q, err := e.Query(b.Context(), questions[i%len(questions)])
				middle := time.Now()
				if err != nil {
					b.Fatal(err)
				}
				_, err = engine.Search(b.Context(), search.Query{Vectors: q.Vectors, Dim: e.Dim()}, search.Options{K: c.k, Payload: true})
				if err != nil {
					b.Fatal(err)
				}
				encoding += middle.Sub(begin)
				t := &best[i%len(questions)]
				if took := time.Since(begin); *t == 0 || took < *t {
					*t = took
				}
			}
			b.ReportMetric(float64(cpuTime(b)-cpu)/1e6/float64(b.N), "cpu-ms/question")
			b.ReportMetric(float64(b.Elapsed())/1e6/float64(b.N), "ms/question")
			b.ReportMetric(float64(encoding)/1e6/float64(b.N), "ms-encoding")
			sum, n := time.Duration(0), min(b.N, len(questions))
			for _, t := range best[:n] {
				sum += t
			}
			b.ReportMetric(float64(sum)/1e6/float64(n), "ms-best")
			b.ReportMetric(0, "ns/op")
		})
	}
}
