package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/vectors"
)

func (a *app) explainCommand() *cobra.Command {
	var s flags.Search
	var query string
	var names indexes
	cmd := &cobra.Command{
		Use:   "explain INDEX DOC {QUESTION | --query ID {--questions FILE | --queries FILE}}",
		Short: "Show how a document scores for a query, and where it left the search",
		Long: `
Answer one query and tell what became of one document: whether it was returned,
or which stage of the search dropped it and by how much, and for each query
token the document token that it matches best. Where the query is a text and the
index has that of the document, these are the pieces of both, with the bytes of the
title or the text that each was made of. Of a document that is stored as passages
the best one is explained.

Where the document is a page of a picture (docs/passages.md), --json has a score for
each cell of its grid.

Give the same search parameters as to plaid search.

` + severalHelp,
		Example: `  plaid explain docs.plaid doc17 'what makes cells divide?'
  plaid explain docs.plaid doc17 --questions queries.jsonl --query q3 --json
  plaid explain docs.plaid doc17 --queries queries.npy --query 3 -k 100 --probes 2`,
		Args: takes("INDEX", "DOC", "QUESTION…"),
	}
	f := cmd.Flags()
	s.RegisterExplained(f)
	names.register(f)
	f.StringVar(&query, "query", "", "`ID` of the query in the file of --questions or --queries")
	f.Bool("json", false, "print the explanation as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		var questions []string
		switch rest := args[2:]; {
		case len(rest) == 0 && query == "":
			return flags.Usagef("QUESTION is missing, or --query of a file")
		case len(rest) > 0 && query != "":
			return flags.Usagef("--query does not go with a question as argument")
		case len(rest) > 1:
			return flags.Usagef("unexpected argument %q", rest[1])
		case len(rest) == 1:
			questions = rest
		}
		if _, err := s.Queries.AreTexts(questions); err != nil {
			return err
		}
		o, err := s.Options(ctx)
		if err != nil {
			return err
		}
		return a.explain(ctx, &names, args[0], questions, &s, o, query, args[1])
	})
	return cmd
}

// explainReport is what `plaid explain --json` prints.
type explainReport struct {
	Query string `json:"query"`
	// File is where the document is, if several indexes are searched.
	File string `json:"file,omitempty"`
	*search.Explanation
	// Pieces has the texts of the matches; NoPieces is why there are none of a query
	// that is a text.
	Pieces   []piece `json:"pieces,omitempty"`
	NoPieces string  `json:"no_pieces,omitempty"`
}

func (a *app) explain(ctx context.Context, names *indexes, path string, questions []string, s *flags.Search, o search.Options, query, doc string) error {
	return a.openSearched(ctx, names, path, func(y *searched) (err error) {
		queries, err := a.openQueries(ctx, &s.Queries, questions, y.snap, s.Threads, &s.Device)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, queries.Close()) }()
		row := 0
		if questions == nil {
			if row = findQuery(queries, query); row < 0 {
				return fmt.Errorf("%s: %w: query %s", queries.name, errNotFound, out.Quoted(query))
			}
		}
		set, err := queries.read(ctx, row, row+1)
		if err != nil {
			return err
		}
		r := explainReport{Query: set.label(0)}
		err = a.withSearcher(ctx, y, search.EngineOptions{Threads: s.Threads}, nil, func(e searcher) (err error) {
			r.Explanation, err = e.Explain(ctx, set.qs[0], doc, s.ForQuery(o, set.ids[0]))
			return err
		})
		if err != nil {
			return err
		}
		if y.parts != nil {
			r.File = y.part(r.Part).Path()
		}
		question := ""
		if queries.texts != nil {
			question = queries.texts[row]
		}
		if question != "" && len(r.Matches) > 0 {
			r.Pieces, err = findPieces(queries.encoder, question, y.part(r.Part), r.Explanation)
			switch {
			case highlight.Unknown(err):
				r.NoPieces = err.Error()
			case err != nil:
				return err
			}
		}
		return a.reportColoured(r, func(b *bytes.Buffer) { explainTable(b, &r, a.colours()) })
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

func explainTable(b *bytes.Buffer, r *explainReport, c out.Colours) {
	x := r.Explanation
	fmt.Fprintf(b, "query:    %s\n", c.Bold(out.Printable(r.Query, 200)))
	where := ""
	if r.File != "" {
		where = " of " + out.Escaped(r.File)
	}
	fmt.Fprintf(b, "document: %s (ordinal %d%s, %s)\n", c.Name(out.ID(x.ID)), x.Ordinal, where, out.Plural(x.Tokens, "token"))
	fmt.Fprintf(b, "score:    %.4f\n", x.Score)
	stage := c.Bad(fmt.Sprint(x.Stage))
	if x.Rank > 0 {
		stage = c.Good(fmt.Sprint(x.Stage))
	}
	fmt.Fprintf(b, "stage:    %s", stage)
	if x.Rank > 0 {
		fmt.Fprintf(b, ", rank %d", x.Rank)
	}
	if x.Rank == 0 && x.StageScore != nil && x.StageLimit != nil {
		fmt.Fprintf(b, ": %.4f in this stage, %.4f was needed", *x.StageScore, *x.StageLimit)
	}
	if x.Plan != "" {
		fmt.Fprintf(b, "\nplan:     %s", x.Plan)
	}
	if x.Image != "" {
		fmt.Fprintf(b, "\nimage:    %s", out.Printable(x.Image, 200))
	}
	if g := x.Grid; g != nil {
		fmt.Fprintf(b, "\ngrid:     %d rows, %d columns, and %s (--json tells of cells)", g.Rows, g.Columns, out.Plural(g.Special, "other token"))
	}
	if x.NoGrid != "" {
		fmt.Fprintf(b, "\nno grid:  %s", out.Escaped(x.NoGrid))
	}
	b.WriteString("\n\n")
	if r.Pieces != nil {
		piecesTable(b, r.Pieces, c)
		return
	}
	if r.NoPieces != "" {
		fmt.Fprintf(b, "no pieces of text: %s\n\n", out.Escaped(r.NoPieces))
	}
	fmt.Fprintln(b, c.Dim(fmt.Sprintf("%11s  %9s  %8s  %10s  %11s  %8s", "QUERY TOKEN", "DOC TOKEN", "WEIGHT", "SCORE", "BY CENTROID", "CENTROID")))
	for _, m := range x.Matches {
		fmt.Fprintf(b, "%11d  %9d  %8.3g  %10.4f  %11.4f  %8d\n", m.QueryToken, m.DocToken, m.Weight, m.Score, m.Centroid, m.Code)
	}
}
