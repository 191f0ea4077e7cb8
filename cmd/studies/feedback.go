package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// feedbackOptions are those of the study of searches with feedback beside those without:
// what they find, with tests of significance, and what they cost.
type feedbackOptions struct {
	indexes, data, model string
	k                    int
	docs                 []int
	self, splits         map[string]string
}

// feedbackMeasures are what is compared.
var feedbackMeasures = []string{"nDCG@10", "AP", "R@100"}

func feedbackStudy(f *flag.FlagSet) measuring {
	o := feedbackOptions{self: map[string]string{}, splits: map[string]string{}}
	docs := numbers(f, "documents", 1, "how many documents are taken for good", 1, 3, 5, 10)
	f.IntVar(&o.k, "k", 100, "documents of a ranking")
	f.Func("exclude-self", "name of a collection whose rankings leave out the document with the id of the query", func(name string) error {
		o.self[name] = name
		return nil
	})
	f.Func("split", "NAME=SPLIT: judgements of a collection; test without", func(text string) error {
		name, split, ok := strings.Cut(text, "=")
		if o.splits[name] = split; !ok {
			return errors.New("want NAME=SPLIT")
		}
		return nil
	})
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		o.indexes, o.data, o.model, o.docs = args[0], args[1], args[2], *docs
		paths, err := filepath.Glob(filepath.Join(o.indexes, "*.plaid"))
		if err != nil || len(paths) == 0 {
			return fmt.Errorf("%s: there are no indexes NAME.plaid", o.indexes)
		}
		e, err := encode.OpenContext(ctx, o.model, nil)
		if err != nil {
			return err
		}
		defer e.Close()
		fmt.Fprintln(stdout, "| collection | queries | N | nDCG@10 | p | AP | p | R@100 | p | cost |")
		fmt.Fprintln(stdout, "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
		for _, path := range paths {
			if err := o.measure(ctx, e, path, stdout); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	}
}

// measure searches one collection, and writes its lines of the table.
func (o *feedbackOptions) measure(ctx context.Context, e *encode.Encoder, path string, w io.Writer) error {
	name := strings.TrimSuffix(filepath.Base(path), ".plaid")
	split := "test"
	if s, ok := o.splits[name]; ok {
		split = s
	}
	qrels, err := eval.LoadQrelsOf(filepath.Join(o.data, name), split)
	if err != nil {
		return err
	}
	var ids, texts []string
	for t, err := range new(encode.Reader).Texts(ctx, filepath.Join(o.data, name, "queries.jsonl")) {
		if err != nil {
			return err
		}
		if qrels.Judged(t.ID) {
			ids, texts = append(ids, t.ID), append(texts, t.Full())
		}
	}
	encoded, err := e.Queries(ctx, texts)
	if err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer ix.Close()
	engine, err := search.New(ctx, ix, nil)
	if err != nil {
		return err
	}
	defer engine.Close()
	queries := make([]search.Query, len(encoded))
	for i := range encoded {
		queries[i] = search.Query{Vectors: encoded[i].Vectors, Dim: e.Dim()}
	}
	measures, err := eval.ParseMeasures(feedbackMeasures...)
	if err != nil {
		return err
	}
	all := []int{0}
	results, times := make([]*eval.Result, len(o.docs)+1), make([]time.Duration, len(o.docs)+1)
	all = append(all, o.docs...)
	for i, docs := range all {
		so := search.Options{K: o.k}
		if o.self[name] != "" {
			so.K++
		}
		if docs > 0 {
			so.Feedback = &search.Feedback{Docs: docs}
		}
		run := &eval.Run{}
		for part := range slices.Chunk(numbersTo(len(queries)), 64) {
			batch := queries[part[0] : part[len(part)-1]+1]
			start := processorTime()
			found, err := engine.SearchBatch(ctx, batch, so)
			times[i] += processorTime() - start
			if err != nil {
				return err
			}
			for j, r := range found {
				if err := beir.AddHits(run, ids[part[j]], r.Hits); err != nil {
					return err
				}
			}
		}
		if results[i], err = eval.Evaluate(qrels, run, measures, eval.Options{ExcludeSelf: o.self[name] != ""}); err != nil {
			return err
		}
	}
	compared, err := eval.CompareAll(ctx, results[0], results[1:], eval.CompareOptions{AcrossMeasures: true, Differing: -1})
	if err != nil {
		return err
	}
	for i, docs := range all {
		fmt.Fprintf(w, "| %s | %d | %d |", name, len(queries), docs)
		for m := range measures {
			p := ""
			if i > 0 {
				p = fmt.Sprintf("%.3f", compared[m].Systems[i-1].HolmRandomisation)
			}
			fmt.Fprintf(w, " %.4f | %s |", results[i].Means[m], p)
		}
		fmt.Fprintf(w, " %.2f |\n", times[i].Seconds()/times[0].Seconds())
	}
	return nil
}

func numbersTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
