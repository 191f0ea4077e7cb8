package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
)

// selfcheckStudy compares what an index says of its recall with that of real queries.
func selfcheckStudy(f *flag.FlagSet) measuring {
	efforts := numbers(f, "efforts", search.LeastEffort, "efforts of searches", 0.5, 1, 2)
	queries := f.Int("queries", 100, "how many, 0: all")
	threads := f.Int("threads", 2, "how many `threads` search")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		snap, done, err := openedIndex(ctx, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
		e, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: *threads})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		q, err := readQueries(ctx, args[1], *queries)
		if err != nil {
			return err
		}
		reference, err := quality.Reference(ctx, e, q.queries(), 100, nil)
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, "| k | effort | recall | not probed | cut | pruned | approximate | exact |\n|--:|--:|--:|--:|--:|--:|--:|--:|")
		for _, k := range []int{10, 100} {
			for _, effort := range *efforts {
				r, err := quality.MeasureRecall(ctx, e, snap, q.queries(), quality.Setting{Effort: effort}.Options(k), reference, nil)
				if err != nil {
					return err
				}
				lost, n := r.Lost(), int64(len(q.ids))
				fmt.Fprintf(stdout, "| %d | %.3g | %.4f | %d | %d | %d | %d | %d |\n", k, effort, r.Mean(), lost[search.StageProbe], lost[search.StageCut],
					lost[search.StagePruned], r.Stats.ApproxDocs/n, r.Stats.ExactDocs/n)
			}
		}
		d, err := quality.SelfCheck(ctx, e, snap, quality.SelfCheckOptions{})
		if err != nil || d == nil {
			return err
		}
		for _, c := range d.Classes {
			fmt.Fprintf(stdout, "\nself-check, k = %d: effort %.3g, recall %.4f of %d questions made from passages, %.4f expected\n", c.K, c.Effort, c.Recall, c.Queries, c.HeldOut)
		}
		return nil
	}
}
