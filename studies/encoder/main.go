// Encoder measures the native encoder beside onnxruntime, on the same ids, in
// rounds in which each has its turn. It prints tables in Markdown;
// docs/lab/benchmarks.md shows them.
//
//	go run ./studies/encoder [flags] MODEL CORPUS
//
// MODEL is a folder with model.onnx and model_int8.onnx (int8.py makes the
// latter) of a model whose queries attend to all their tokens; CORPUS a
// corpus.jsonl. PLAID_ONNXRUNTIME names the library.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/encode/onnxruntime"
	"github.com/plaid-ir/plaid/encode/weights"
	"github.com/plaid-ir/plaid/studies/program"
)

func main() { program.Main("encoder", run) }

type options struct {
	model, corpus            string
	texts, rounds, queryRuns int
	avx2                     bool
}

// batches are the sizes that onnxruntime is tried with, in ids.
var batches = []int{256, 512, 1024, 6000}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	f := flag.NewFlagSet("encoder", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.texts, "texts", 100, "how many texts of the corpus")
	f.IntVar(&o.rounds, "rounds", 5, "how many rounds; figures are medians")
	f.IntVar(&o.queryRuns, "queries", 20, "how often a query is encoded in a round")
	f.BoolVar(&o.avx2, "avx2", false, "hold both to AVX2; onnxruntime by hide/mask.c, which see")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return errors.New("want a MODEL and a CORPUS")
	}
	o.model, o.corpus = f.Arg(0), f.Arg(1)
	docs, query, err := ids(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s/%s, %d processors; %d texts of %d ids; onnxruntime %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		docs.Texts(), len(docs.IDs), os.Getenv(onnxruntime.EnvLibrary))
	list, err := contenders(o)
	if err != nil {
		return err
	}
	for _, c := range list {
		defer c.Close()
	}
	if list, err = best(ctx, stdout, list, docs); err != nil {
		return err
	}
	if err := differences(ctx, stdout, list, docs); err != nil {
		return err
	}
	return rounds(ctx, stdout, list, docs, query, o)
}

// ids are those of the texts, and of a query.
func ids(ctx context.Context, o options) (docs, query engine.Batch, err error) {
	e, err := encode.Open(o.model, nil)
	if err != nil {
		return docs, query, err
	}
	defer e.Close()
	docs.Offsets = []int{0}
	for t, err := range encode.JSONL(ctx, o.corpus) {
		if err != nil {
			return docs, query, err
		}
		tokens, err := e.Tokenize(encode.Document, t.Full())
		if err != nil {
			return docs, query, err
		}
		for _, k := range tokens {
			docs.IDs = append(docs.IDs, k.ID)
		}
		if docs.Offsets = append(docs.Offsets, len(docs.IDs)); docs.Texts() == o.texts {
			break
		}
	}
	tokens, err := e.Tokenize(encode.Query, "what makes a bird sing in the morning?")
	for _, k := range tokens {
		query.IDs = append(query.IDs, k.ID)
	}
	query.Offsets = []int{0, len(query.IDs)}
	return docs, query, err
}

// contender computes with so many workers at once.
type contender struct {
	name, of string // of: what it is a size of
	threads  int
	workers  int
	engine.Engine
}

// contenders are opened one after the other: onnxruntime in float32 and bytes, in
// all sizes of batches, by one thread and by two, which work on one batch or on
// two; and the native encoder.
func contenders(o options) (list []*contender, err error) {
	graphs := func() error {
		for _, graph := range []struct{ name, file string }{{"onnxruntime F32", "model.onnx"}, {"onnxruntime Int8", "model_int8.onnx"}} {
			for _, size := range batches {
				for _, t := range []struct{ threads, inside int }{{1, 1}, {2, 1}, {2, 2}} {
					m, err := onnxruntime.Open(filepath.Join(o.model, graph.file), onnxruntime.Options{BatchTokens: size, Threads: t.inside})
					if err != nil {
						return err
					}
					list = append(list, &contender{
						name: fmt.Sprintf("%s, batches of %d, %d × %d threads", graph.name, size, t.threads/t.inside, t.inside), of: graph.name,
						threads: t.threads, workers: t.threads / t.inside, Engine: m,
					})
				}
			}
		}
		return nil
	}
	if o.avx2 {
		err = hidden(graphs)
	} else {
		err = graphs()
	}
	if err != nil {
		return nil, err
	}
	c, err := modeldir.Read(o.model, nil)
	if err != nil {
		return nil, err
	}
	nc, w, err := weights.Load(c)
	if err != nil {
		return nil, err
	}
	for _, p := range []native.Precision{native.F32, native.Int8} {
		no := native.Options{Precision: p}
		if o.avx2 {
			no.Tier = "avx2"
		}
		m, err := native.New(nc, w, no)
		if err != nil {
			return nil, err
		}
		name := map[native.Precision]string{native.F32: "plaid F32", native.Int8: "plaid Int8"}[p] + ", " + m.Tier()
		for threads := range 2 {
			list = append(list, &contender{name: name, of: name, threads: threads + 1, workers: threads + 1, Engine: m})
		}
	}
	return list, nil
}

// all computes the texts, in chunks that workers take.
func (c *contender) all(ctx context.Context, b engine.Batch, dst []float32) error {
	var chunks [][2]int
	for i := 0; i < b.Texts(); {
		j := i + 1
		for j < b.Texts() && b.Offsets[j+1]-b.Offsets[i] <= c.Chunk() {
			j++
		}
		chunks = append(chunks, [2]int{i, j})
		i = j
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, c.workers)
	for w := range c.workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := int(next.Add(1)) - 1; n < len(chunks) && errs[w] == nil; n = int(next.Add(1)) - 1 {
				i, j := chunks[n][0], chunks[n][1]
				part := engine.Batch{IDs: b.IDs[b.Offsets[i]:b.Offsets[j]]}
				for _, at := range b.Offsets[i : j+1] {
					part.Offsets = append(part.Offsets, at-b.Offsets[i])
				}
				errs[w] = c.Encode(ctx, dst[b.Offsets[i]*c.Dim():b.Offsets[j]*c.Dim()], part)
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// timed is what a run took, by the clock and of processors, in seconds.
type timed struct{ wall, cpu float64 }

func (c *contender) timed(ctx context.Context, b engine.Batch, dst []float32) (timed, error) {
	cpu, begin := used(), time.Now()
	err := c.all(ctx, b, dst)
	return timed{time.Since(begin).Seconds(), used() - cpu}, err
}

// best drops all but the fastest batches of onnxruntime, for each number of threads.
func best(ctx context.Context, w io.Writer, list []*contender, b engine.Batch) ([]*contender, error) {
	type key struct {
		of      string
		threads int
	}
	fastest, at := map[key]*contender{}, map[key]float64{}
	dst := make([]float32, len(b.IDs)*list[0].Dim())
	times := make([]float64, len(list))
	for range 2 {
		for i, c := range list {
			t, err := c.timed(ctx, b, dst)
			if err != nil {
				return nil, err
			}
			// One thread by the time of the processor, as others may be at work here.
			x := t.wall
			if c.threads == 1 {
				x = t.cpu
			}
			times[i] = cmp.Or(min(cmp.Or(times[i], x), x), x)
		}
	}
	for i, c := range list {
		k := key{c.of, c.threads}
		if fastest[k] == nil || times[i] < at[k] {
			fastest[k], at[k] = c, times[i]
		}
		fmt.Fprintf(w, "%s, %d threads: %.0f ids/s\n", c.name, c.threads, float64(len(b.IDs))/times[i])
	}
	fmt.Fprintln(w)
	return slices.DeleteFunc(list, func(c *contender) bool { return fastest[key{c.of, c.threads}] != c }), nil
}

// differences prints how far vectors are from those of the first contender.
func differences(ctx context.Context, w io.Writer, list []*contender, b engine.Batch) error {
	d := list[0].Dim()
	var want []float32
	fmt.Fprint(w, "| | largest difference | mean 1 − cosine | least cosine |\n| --- | --- | --- | --- |\n")
	for _, c := range list {
		if c.threads != 1 {
			continue
		}
		got := make([]float32, len(b.IDs)*d)
		if err := c.all(ctx, b, got); err != nil {
			return err
		}
		if want == nil {
			want = got
		}
		far, mean, least := 0.0, 0.0, 1.0
		for i := 0; i < len(got); i += d {
			dot := 0.0
			for j, x := range got[i : i+d] {
				y := want[i+j]
				far = max(far, math.Abs(float64(x-y)))
				dot += float64(x) * float64(y)
			}
			mean, least = mean+(1-dot)*float64(d)/float64(len(got)), min(least, dot)
		}
		fmt.Fprintf(w, "| %s | %.2g | %.2g | %.4f |\n", c.name, far, mean, least)
	}
	fmt.Fprintln(w)
	return nil
}

// rounds prints medians of rounds in which all have a turn, and of their ratios.
func rounds(ctx context.Context, w io.Writer, list []*contender, docs, query engine.Batch, o options) error {
	type result struct{ wall, cpu, query, queryCPU []float64 }
	results := make([]result, len(list))
	dst := make([]float32, len(docs.IDs)*list[0].Dim())
	for range o.rounds {
		for i, c := range list {
			r := &results[i]
			t, err := c.timed(ctx, docs, dst)
			if err != nil {
				return err
			}
			r.wall, r.cpu = append(r.wall, float64(len(docs.IDs))/t.wall), append(r.cpu, float64(len(docs.IDs))/t.cpu)
			var walls, cpus []float64
			for range o.queryRuns {
				t, err := c.timed(ctx, query, dst[:len(query.IDs)*c.Dim()])
				if err != nil {
					return err
				}
				walls, cpus = append(walls, 1000*t.wall), append(cpus, 1000*t.cpu)
			}
			r.query, r.queryCPU = append(r.query, median(walls)), append(r.queryCPU, median(cpus))
		}
	}
	fmt.Fprintf(w, "| threads | | ids/s | ids/s of CPU | of onnxruntime F32, of its Int8 (ids/s) | the same of CPU | query, ms | of CPU |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for i, c := range list {
		r := results[i]
		var wall, cpu []string
		for j, base := range list {
			if base.threads == c.threads && slices.Contains([]string{"onnxruntime F32", "onnxruntime Int8"}, base.of) {
				wall = append(wall, fmt.Sprintf("%.2f", median(ratios(r.wall, results[j].wall))))
				cpu = append(cpu, fmt.Sprintf("%.2f", median(ratios(r.cpu, results[j].cpu))))
			}
		}
		fmt.Fprintf(w, "| %d | %s | %.0f | %.0f | %v | %v | %.2f | %.2f |\n", c.threads, c.name, median(r.wall), median(r.cpu), wall, cpu,
			median(r.query), median(r.queryCPU))
	}
	return nil
}

func ratios(x, y []float64) []float64 {
	z := make([]float64, len(x))
	for i := range x {
		z[i] = x[i] / y[i]
	}
	return z
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
