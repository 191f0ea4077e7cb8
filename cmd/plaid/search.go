package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// batchQueries is how many queries are searched, and their results printed, at
// once.
const batchQueries = 32

func (a *app) searchCommand() *cobra.Command {
	var s searchFlags
	var format, stats, tag string
	var payload, asJSON bool
	cmd := &cobra.Command{
		Use:   "search INDEX --queries FILE",
		Short: "Find the best documents for queries",
		Long: withExitStatus(`
Find the documents of highest MaxSim score for each query. Results come in the
order of the queries, best document first; documents of the same score in the
order in which they were added. Fewer than k documents are returned only where
fewer match.

Mode pruned, the default, scores only documents that share a probed centroid
with the query, and of these exactly only the most promising; its budgets follow
from k. Mode exhaustive scores every document, mode candidates those that a TREC
run lists for the query.

Formats: table is for reading; jsonl is one object a query, {"query": …, "hits":
[{"id": …, "score": …}, …]}; trec has the columns query, Q0, document, rank,
score and tag. The scores of the last two give back the exact float32.`),
		Example: `  plaid search docs.plaid --queries queries.npy
  plaid search docs.plaid --queries queries.npy --query-ids qids.txt -k 100 --format trec > run.trec
  plaid search docs.plaid --queries queries.jsonl --candidates bm25.trec --allow-missing --format jsonl`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	s.register(f)
	f.Var(newChoice(&format, "table", "table", "jsonl", "trec"), "format", "how to print results")
	f.BoolVar(&asJSON, "json", false, "the same as --format jsonl, and errors as JSON")
	f.BoolVar(&payload, "payload", false, "print payloads (format jsonl)")
	f.StringVar(&tag, "tag", "plaid", "`WORD` in the last column of format trec")
	f.Var(newChoice(&stats, "", "table", "json"), "stats", "print to stderr what the searches did")
	f.Lookup("stats").NoOptDefVal = "table"
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if asJSON {
			format = "jsonl"
		}
		out, err := a.newHitWriter(format, tag, payload)
		if err != nil {
			return err
		}
		o, err := s.options()
		if err != nil {
			return err
		}
		o.Payload = payload || format == "table"
		return a.search(ctx, args[0], &s, o, out, stats)
	})
	return cmd
}

func (a *app) search(ctx context.Context, path string, s *searchFlags, o search.Options, out hitWriter, stats string) (err error) {
	queries, err := s.queries.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queries.Close()) }()
	return a.openSnapshot(ctx, path, func(_ *index.Index, snap *index.Snapshot) error {
		if err := checkQueries(s.queries.vectors, queries, snap); err != nil {
			return err
		}
		s.warnAbsent(a, queries)
		engine := search.NewAt(snap, s.threads)
		var total search.Stats
		err := s.device.with(ctx, a, engine, func() error {
			for lo := 0; lo < queries.Len(); lo += batchQueries {
				qs, ids, err := readQueries(ctx, queries, lo, min(lo+batchQueries, queries.Len()))
				if err != nil {
					return err
				}
				results, err := s.answer(ctx, engine, qs, ids, o)
				if err != nil {
					return err
				}
				for _, r := range results {
					total.Add(r.Stats)
				}
				if err := out(ids, results); err != nil {
					return fmt.Errorf("writing results: %w", err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return a.printStats(stats, total)
	})
}

// answer searches a batch. Candidates differ from query to query, so that these
// are searched one by one.
func (s *searchFlags) answer(ctx context.Context, e *search.Engine, qs []search.Query, ids []string, o search.Options) ([]search.Result, error) {
	if s.run == nil {
		results, err := e.SearchBatch(ctx, qs, o)
		if failed := (*search.QueryError)(nil); errors.As(err, &failed) {
			return nil, fmt.Errorf("query %q: %w", ids[failed.Index], failed.Err)
		}
		return results, err
	}
	results := make([]search.Result, len(qs))
	for i, q := range qs {
		r, err := e.Search(ctx, q, s.forQuery(o, ids[i]))
		if err != nil {
			return nil, fmt.Errorf("query %q: %w", ids[i], err)
		}
		results[i] = *r
	}
	return results, nil
}
