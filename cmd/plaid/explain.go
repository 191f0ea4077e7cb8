package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func (a *app) explainCommand() *cobra.Command {
	var s flags.Search
	var query, doc string
	cmd := &cobra.Command{
		Use:   "explain INDEX --queries FILE --query ID --doc ID",
		Short: "Show how a document scores for a query, and where it left the search",
		Long: withExitStatus(`
Answer one query and tell what became of one document: whether it was returned,
or which stage of the search dropped it and by how much, and for each query
token the document token that it matches best.

Give the same search parameters as to plaid search.`),
		Example: `  plaid explain docs.plaid --queries queries.npy --query 3 --doc doc17
  plaid explain docs.plaid --queries queries.npy --query 3 --doc doc17 -k 100 --probes 2 --json`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	s.Register(f)
	f.StringVar(&query, "query", "", "`ID` of the query")
	f.StringVar(&doc, "doc", "", "`ID` of the document")
	f.Bool("json", false, "print the explanation as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if query == "" || doc == "" {
			return flags.Usagef("--query and --doc are needed")
		}
		o, err := s.Options(ctx)
		if err != nil {
			return err
		}
		return a.explain(ctx, args[0], &s, o, query, doc)
	})
	return cmd
}

func (a *app) explain(ctx context.Context, path string, s *flags.Search, o search.Options, query, doc string) (err error) {
	queries, err := s.Queries.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queries.Close()) }()
	row := findQuery(queries, query)
	if row < 0 {
		return fmt.Errorf("%s: %w: query %s", s.Queries.Vectors, errNotFound, out.Quoted(query))
	}
	return a.openSnapshot(ctx, path, func(_ *index.Index, snap *index.Snapshot) error {
		if err := checkQueries(s.Queries.Vectors, queries, snap); err != nil {
			return err
		}
		set, err := readQueries(ctx, queries, row, row+1)
		if err != nil {
			return err
		}
		var x *search.Explanation
		err = a.withEngine(ctx, snap, s.Threads, nil, func(e *search.Engine) (err error) {
			x, err = e.Explain(ctx, set.qs[0], doc, s.ForQuery(o, query))
			return err
		})
		if err != nil {
			return err
		}
		return a.report(struct {
			Query string `json:"query"`
			*search.Explanation
		}{query, x}, func(b *bytes.Buffer) { explainTable(b, query, x) })
	})
}

func findQuery(queries vectors.Source, id string) int {
	for i := range queries.Len() {
		if queries.ID(i) == id {
			return i
		}
	}
	return -1
}

func explainTable(b *bytes.Buffer, query string, x *search.Explanation) {
	fmt.Fprintf(b, "query:    %s\n", out.ID(query))
	fmt.Fprintf(b, "document: %s (ordinal %d, %s)\n", out.ID(x.ID), x.Ordinal, out.Plural(x.Tokens, "token"))
	fmt.Fprintf(b, "score:    %.6f\n", x.Score)
	fmt.Fprintf(b, "stage:    %s", x.Stage)
	if x.Rank > 0 {
		fmt.Fprintf(b, ", rank %d", x.Rank)
	}
	if x.Rank == 0 && x.StageScore != nil && x.StageLimit != nil {
		fmt.Fprintf(b, ": %.6f in this stage, %.6f was needed", *x.StageScore, *x.StageLimit)
	}
	if x.Plan != "" {
		fmt.Fprintf(b, "\nplan:     %s", x.Plan)
	}
	b.WriteString("\n\n")
	fmt.Fprintf(b, "%11s  %9s  %8s  %10s  %11s  %8s\n", "QUERY TOKEN", "DOC TOKEN", "WEIGHT", "SCORE", "BY CENTROID", "CENTROID")
	for _, m := range x.Matches {
		fmt.Fprintf(b, "%11d  %9d  %8.3g  %10.6f  %11.6f  %8d\n", m.QueryToken, m.DocToken, m.Weight, m.Score, m.Centroid, m.Code)
	}
}
