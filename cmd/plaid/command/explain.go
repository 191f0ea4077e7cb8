package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
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

Where the document is a page of a picture (docs/page-images.md), --json has a score for
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
		err = a.withSearcher(ctx, y, s.Threads, nil, func(e searcher) (err error) {
			r.Explanation, err = e.Explain(ctx, set.qs[0], doc, s.ForQuery(o, set.ids[0]))
			return err
		})
		if err != nil {
			return err
		}
		part := y.parts[r.Shard]
		if y.several() {
			r.File = part.Path()
		}
		question := ""
		if queries.texts != nil {
			question = queries.texts[row]
		}
		if question != "" && len(r.Matches) > 0 {
			r.Pieces, err = findPieces(queries.encoder, question, part, r.Explanation)
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
	fmt.Fprintf(b, "document: %s (ordinal %d%s, %s)\n", c.Name(out.TableID(x.ID)), x.Ordinal, where, out.Plural(x.Tokens, "token"))
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
		fmt.Fprintf(b, ": %.4f in this stage, %.4f was needed; both are approximate", *x.StageScore, *x.StageLimit)
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

// piece is what one query token found, as text.
type piece struct {
	QueryToken int    `json:"query_token"`
	QueryPiece string `json:"query_piece"`
	// QueryStart and QueryEnd bound the bytes of the query that the token was made
	// of; both are 0 for tokens that the model puts around it.
	QueryStart int    `json:"query_start"`
	QueryEnd   int    `json:"query_end"`
	DocToken   int    `json:"doc_token"`
	DocPiece   string `json:"doc_piece"`
	// Field of the payload that the document token is in, "" for those that the model
	// puts around a text; Start and End bound its bytes there, Text has them.
	Field string  `json:"field"`
	Start int     `json:"start"`
	End   int     `json:"end"`
	Text  string  `json:"text"`
	Score float64 `json:"score"`

	context string // the text with some of what is around it
}

// findPieces tells which pieces of a document's text the tokens of a query found.
func findPieces(e *encode.Encoder, query string, snap *index.Snapshot, x *search.Explanation) ([]piece, error) {
	payload, err := snap.Payload(x.Ordinal)
	if err != nil {
		return nil, err
	}
	asked, err := highlight.Kept(e, encode.Query, query)
	if err != nil {
		return nil, err
	}
	found, err := highlight.Find(e, payload, nil, x.Tokens, snap.Header().Build.Pool)
	if err != nil {
		return nil, err
	}
	var pieces []piece
	for _, m := range x.Matches {
		if m.QueryToken >= len(asked) || m.DocToken < 0 || m.DocToken >= len(found.Tokens) {
			continue
		}
		q, d := asked[m.QueryToken], found.Tokens[m.DocToken]
		p := piece{
			QueryToken: m.QueryToken, QueryPiece: q.Piece, QueryStart: q.Start, QueryEnd: q.End,
			DocToken: m.DocToken, DocPiece: d.Piece, Score: m.Score,
		}
		var text string
		if p.Field, text, p.Start, p.End = found.Place(d); p.Field != "" {
			p.Text, p.context = text[p.Start:p.End], around(text, p.Start, p.End)
		}
		pieces = append(pieces, p)
	}
	return pieces, nil
}

// contextRunes is how much of a text is shown on each side of a match.
const contextRunes = 25

// around marks a part of a text, with some of what is beside it.
func around(text string, start, end int) string {
	lo, hi := start, end
	for range contextRunes {
		_, n := utf8.DecodeLastRuneInString(text[:lo])
		lo -= n
		_, n = utf8.DecodeRuneInString(text[hi:])
		hi += n
	}
	s := out.Clean(text[lo:start]) + out.MarkBegin + out.Clean(text[start:end]) + out.MarkEnd + out.Clean(text[end:hi])
	if lo > 0 {
		s = "…" + s
	}
	if hi < len(text) {
		s += "…"
	}
	return s
}

func piecesTable(b *bytes.Buffer, pieces []piece, c out.Colours) {
	t := out.Table{LeftColumns: 5}
	t.Line("QUERY", "", "DOCUMENT", "", "BYTES", "SCORE")
	for _, p := range pieces {
		where := ""
		if p.Field != "" {
			where = fmt.Sprintf("%s %d-%d", p.Field, p.Start, p.End)
		}
		t.Line(fmt.Sprint(p.QueryToken), out.Printable(p.QueryPiece, 20), fmt.Sprint(p.DocToken), out.Printable(p.DocPiece, 20), where, fmt.Sprintf("%.4f", p.Score))
		if p.context != "" {
			t.Remark(strings.Join(c.Wrap(p.context, 80, 1), ""))
		}
	}
	var all bytes.Buffer
	t.Print(&all)
	head, rest, _ := strings.Cut(all.String(), "\n")
	b.WriteString(c.Dim(head) + "\n" + rest)
}
