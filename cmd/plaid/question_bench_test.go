package main

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// BenchmarkQuestion takes questions from text to hits, one at a time on one core,
// in an index that plaid index --text made: PLAID_QUESTION_INDEX, with the questions
// of PLAID_QUESTIONS (.jsonl, the first 300).
func BenchmarkQuestion(b *testing.B) {
	path, file := os.Getenv("PLAID_QUESTION_INDEX"), os.Getenv("PLAID_QUESTIONS")
	if path == "" || file == "" {
		b.Skip("PLAID_QUESTION_INDEX and PLAID_QUESTIONS are not set")
	}
	f, err := os.Open(file)
	require.NoError(b, err)
	defer f.Close()
	var questions []string
	for lines := bufio.NewScanner(f); lines.Scan() && len(questions) < 300; {
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
	made := snap.Header().Model
	o := &encode.Options{Threads: 1}
	if made.Precision == encode.Int8.String() {
		o.Precision = encode.Int8
	}
	dir := made.Name
	if moved := os.Getenv("PLAID_QUESTION_MODEL"); moved != "" {
		dir = moved
	}
	e, err := encode.Open(dir, o)
	require.NoError(b, err)
	defer e.Close()
	engine, err := search.New(b.Context(), ix, &search.EngineOptions{Threads: 1})
	require.NoError(b, err)
	defer engine.Close()
	for _, k := range []int{10, 100} {
		b.Run(map[int]string{10: "k=10", 100: "k=100"}[k], func(b *testing.B) {
			var encoding time.Duration
			least := time.Hour
			for i := 0; b.Loop(); i++ {
				begin := time.Now()
				q, err := e.Query(b.Context(), questions[i%len(questions)])
				middle := time.Now()
				if err != nil {
					b.Fatal(err)
				}
				_, err = engine.Search(b.Context(), search.Query{Vectors: q.Vectors, Dim: e.Dim()}, search.Options{K: k, Payload: true})
				if err != nil {
					b.Fatal(err)
				}
				encoding += middle.Sub(begin)
				least = min(least, time.Since(begin))
			}
			b.ReportMetric(float64(b.Elapsed())/1e6/float64(b.N), "ms/question")
			b.ReportMetric(float64(encoding)/1e6/float64(b.N), "ms-encoding")
			b.ReportMetric(float64(least)/1e6, "ms-least")
			b.ReportMetric(0, "ns/op")
		})
	}
}
