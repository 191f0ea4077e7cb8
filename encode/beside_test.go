//go:build unix

package encode

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/engine"
)

// BenchmarkBesideONNXRuntime: ids of lotte-500 through Int8 and through the graph of bytes in the
// folder $PLAID_ONNX_INT8 (eval/peers/int8.py makes it), in turn, each on one thread. On a busy
// machine the clock says little: figures are ids a second of processor time, the medians of all
// turns, and of their ratios.
func BenchmarkBesideONNXRuntime(b *testing.B) {
	needLibrary(b)
	graph := os.Getenv("PLAID_ONNX_INT8")
	if graph == "" {
		b.Skip("PLAID_ONNX_INT8 does not name a folder with model_int8.onnx")
	}
	ours := open(b, mini(b), &Options{Precision: Int8})
	theirs := open(b, graph, &Options{Backend: ONNXRuntime, Precision: Int8})
	b.Run("documents", func(b *testing.B) {
		beside(b, idsOf(b, ours, Document, load(b, "lotte-500").docs[:24]), ours, theirs)
	})
	b.Run("query", func(b *testing.B) {
		beside(b, idsOf(b, ours, Query, []Text{{Text: "what makes a bird sing in the morning?"}}), ours, theirs)
	})
}

// idsOf are the ids of texts.
func idsOf(b *testing.B, e *Encoder, r Role, texts []Text) engine.Batch {
	batch := engine.Batch{Offsets: []int{0}}
	for _, t := range texts {
		tokens, err := e.Tokenize(r, t.Full())
		require.NoError(b, err)
		for _, k := range tokens {
			batch.IDs = append(batch.IDs, k.ID)
		}
		batch.Offsets = append(batch.Offsets, len(batch.IDs))
	}
	return batch
}

// beside reports the ids a second of processor time that two engines do of a batch, in turn.
func beside(b *testing.B, batch engine.Batch, ours, theirs *Encoder) {
	dst := make([]float32, len(batch.IDs)*ours.Dim())
	ids := float64(len(batch.IDs))
	processor := func(e *Encoder) float64 {
		begin := processorTime()
		require.NoError(b, localOf(e).engine.Encode(b.Context(), dst, batch))
		return (processorTime() - begin).Seconds()
	}
	processor(ours)
	processor(theirs)
	var x, y, ratios []float64
	for b.Loop() {
		x, y = append(x, ids/processor(ours)), append(y, ids/processor(theirs))
		ratios = append(ratios, x[len(x)-1]/y[len(y)-1])
	}
	median := func(x []float64) float64 {
		slices.Sort(x)
		return x[len(x)/2]
	}
	b.ReportMetric(ids, "ids")
	b.ReportMetric(median(x), "plaid-ids/cpu-s")
	b.ReportMetric(median(y), "onnxruntime-ids/cpu-s")
	b.ReportMetric(median(ratios), "ratio")
}

// processorTime is what this process has had of the processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
