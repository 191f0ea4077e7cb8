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
)

// encoderStudy measures the native encoder beside onnxruntime, on the same ids, in rounds
// in which each has its turn. MODEL is a folder with model.onnx and model_int8.onnx
// (int8.py makes the latter) of a model whose queries attend to all their tokens; CORPUS a
// corpus.jsonl. PLAID_ONNXRUNTIME names the library.
func encoderStudy(f *flag.FlagSet) measuring {
	texts := f.Int("texts", 100, "how many texts of the corpus")
	turns := f.Int("rounds", 5, "how many rounds; figures are medians")
	queryRuns := f.Int("queries", 20, "how often a query is encoded in a round")
	return func(ctx context.Context, args []string, stdout, _ io.Writer) error {
		docs, query, err := encoderInput(ctx, args[0], args[1], *texts)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s/%s, %d processors; %d texts of %d ids; onnxruntime %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
			docs.Texts(), len(docs.IDs), os.Getenv(onnxruntime.EnvLibrary))
		list, err := contenders(args[0])
		if err != nil {
			return err
		}
		for _, c := range list {
			defer c.Close()
		}
		if list, err = fastest(ctx, stdout, list, docs); err != nil {
			return err
		}
		if err := differences(ctx, stdout, list, docs); err != nil {
			return err
		}
		return rounds(ctx, stdout, list, docs, query, *turns, *queryRuns)
	}
}

// batches are the sizes that onnxruntime is tried with, in ids.
var batches = []int{256, 512, 1024, 6000}

// encoderInput has the ids of the texts, and of a query.
func encoderInput(ctx context.Context, model, corpus string, texts int) (docs, query engine.Batch, err error) {
	e, err := encode.Open(model, nil)
	if err != nil {
		return docs, query, err
	}
	defer e.Close()
	docs.Offsets = []int{0}
	for t, err := range encode.JSONL(ctx, corpus) {
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
		if docs.Offsets = append(docs.Offsets, len(docs.IDs)); docs.Texts() == texts {
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
	name, base string // base: what it is a size of
	threads    int
	workers    int
	engine.Engine
}

// contenders are opened one after the other: onnxruntime in float32 and bytes, in
// all sizes of batches, by one thread and by two, which work on one batch or on
// two; and the native encoder.
func contenders(model string) (list []*contender, err error) {
	for _, graph := range []struct{ name, file string }{{"onnxruntime F32", "model.onnx"}, {"onnxruntime Int8", "model_int8.onnx"}} {
		for _, size := range batches {
			for _, t := range []struct{ threads, inside int }{{1, 1}, {2, 1}, {2, 2}} {
				m, err := onnxruntime.Open(filepath.Join(model, graph.file), onnxruntime.Options{BatchTokens: size, Threads: t.inside})
				if err != nil {
					return nil, err
				}
				list = append(list, &contender{
					name: fmt.Sprintf("%s, batches of %d, %d × %d threads", graph.name, size, t.threads/t.inside, t.inside), base: graph.name,
					threads: t.threads, workers: t.threads / t.inside, Engine: m,
				})
			}
		}
	}
	c, err := modeldir.Read(model, nil)
	if err != nil {
		return nil, err
	}
	config, w, err := weights.Load(c)
	if err != nil {
		return nil, err
	}
	for _, p := range []native.Precision{native.F32, native.Int8} {
		m, err := native.New(config, w, native.Options{Precision: p})
		if err != nil {
			return nil, err
		}
		name := map[native.Precision]string{native.F32: "plaid F32", native.Int8: "plaid Int8"}[p] + ", " + m.Tier()
		for threads := range 2 {
			list = append(list, &contender{name: name, base: name, threads: threads + 1, workers: threads + 1, Engine: m})
		}
	}
	return list, nil
}

// encodeAll computes the texts, in chunks that workers take.
func (c *contender) encodeAll(ctx context.Context, b engine.Batch, dst []float32) error {
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
	cpu, begin := processorTime(), time.Now()
	err := c.encodeAll(ctx, b, dst)
	return timed{time.Since(begin).Seconds(), (processorTime() - cpu).Seconds()}, err
}

// fastest drops all but the fastest batches of onnxruntime, for each number of threads.
func fastest(ctx context.Context, w io.Writer, list []*contender, b engine.Batch) ([]*contender, error) {
	type key struct {
		base    string
		threads int
	}
	chosen, took := map[key]*contender{}, map[key]float64{}
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
		k := key{c.base, c.threads}
		if chosen[k] == nil || times[i] < took[k] {
			chosen[k], took[k] = c, times[i]
		}
		fmt.Fprintf(w, "%s, %d threads: %.0f ids/s\n", c.name, c.threads, float64(len(b.IDs))/times[i])
	}
	fmt.Fprintln(w)
	return slices.DeleteFunc(list, func(c *contender) bool { return chosen[key{c.base, c.threads}] != c }), nil
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
		if err := c.encodeAll(ctx, b, got); err != nil {
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
func rounds(ctx context.Context, w io.Writer, list []*contender, docs, query engine.Batch, turns, queryRuns int) error {
	type result struct{ wall, cpu, query, queryCPU []float64 }
	results := make([]result, len(list))
	dst := make([]float32, len(docs.IDs)*list[0].Dim())
	for range turns {
		for i, c := range list {
			r := &results[i]
			t, err := c.timed(ctx, docs, dst)
			if err != nil {
				return err
			}
			r.wall, r.cpu = append(r.wall, float64(len(docs.IDs))/t.wall), append(r.cpu, float64(len(docs.IDs))/t.cpu)
			var walls, cpus []float64
			for range queryRuns {
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
		for j, other := range list {
			if other.threads == c.threads && slices.Contains([]string{"onnxruntime F32", "onnxruntime Int8"}, other.base) {
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
