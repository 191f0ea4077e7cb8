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
	var names indexNames
	cmd := &cobra.Command{
		Use:   "explain INDEX DOC {QUESTION | --query ID {--questions FILE | --queries FILE}}",
		Short: "Show how a document scores for a query, and where it left the search",
		Long: `
Answer one query and explain the result for one document: whether it was returned, or
which stage of the search dropped it and by how much, and for each query token the
document token that it matches best. If the query is a text and the index has the text
of the document, the tokens are shown as text, with their bytes in the title or the
text. If a document is stored as passages, the best one is explained.

If the document is a page image (docs/page-images.md), --json has a score for each cell
of its grid.

Use the same search parameters as with plaid search.

` + severalHelp,
		Example: `  plaid explain docs.plaid doc17 'what makes cells divide?'
  plaid explain docs.plaid doc17 --questions queries.jsonl --query q3 --json
  plaid explain docs.plaid doc17 --queries queries.npy --query 3 -k 100 --probes 2`,
		Args: namedArgs("INDEX", "DOC", "QUESTION…"),
	}
	f := cmd.Flags()
	s.RegisterExplained(f)
	names.register(f)
	f.StringVar(&query, "query", "", "`ID` of the query in the file of --questions or --queries")
	f.Bool("json", false, "print the explanation as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		var questions []string
		switch questionArgs := args[2:]; {
		case len(questionArgs) == 0 && query == "":
			return flags.Usagef("QUESTION is missing, or --query of a file")
		case len(questionArgs) > 0 && query != "":
			return flags.Usagef("--query does not go with a question as argument")
		case len(questionArgs) > 1:
			return flags.Usagef("unexpected argument %q", questionArgs[1])
		case len(questionArgs) == 1:
			questions = questionArgs
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
	// File is the index file of the document, if several are searched.
	File string `json:"file,omitempty"`
	*search.Explanation
	// Pieces has the texts of the matches; NoPieces says why they are missing for a query that is a
	// text.
	Pieces   []matchedPiece `json:"pieces,omitempty"`
	NoPieces string         `json:"no_pieces,omitempty"`
}

// explain answers the query, explains the document and prints the explanation.
func (a *app) explain(ctx context.Context, names *indexNames, path string, questions []string, s *flags.Search,
	o search.Options, query, doc string) error {
	return a.openSearched(ctx, names, path, func(target *searchTarget) (err error) {
		queries, err := a.openQueries(ctx, &s.Queries, questions, target.snap, s.Threads, &s.Device)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, queries.Close()) }()
		row := 0
		if questions == nil {
			if row = findQuery(queries, query); row < 0 {
				return fmt.Errorf("%s: %w: query %s", queries.sourceName, errNotFound, out.Quoted(query))
			}
		}
		set, err := queries.read(ctx, row, row+1)
		if err != nil {
			return err
		}
		r := explainReport{Query: set.displayName(0)}
		err = a.withSearcher(ctx, target, s.Threads, nil, func(e searcher) (err error) {
			r.Explanation, err = e.Explain(ctx, set.queries[0], doc, s.ForQuery(o, set.ids[0]))
			return err
		})
		if err != nil {
			return err
		}
		shard := target.shards[r.Shard]
		if target.hasSeveralFiles() {
			r.File = shard.Path()
		}
		question := ""
		if queries.texts != nil {
			question = queries.texts[row]
		}
		if question != "" && len(r.Matches) > 0 {
			r.Pieces, err = findPieces(queries.encoder, question, shard, r.Explanation)
			switch {
			case highlight.IsUnknown(err):
				r.NoPieces = err.Error()
			case err != nil:
				return err
			}
		}
		return a.reportColoured(r, func(b *bytes.Buffer) { explainTable(b, &r, a.colours()) })
	})
}

// findQuery returns the number of the query with an id, or -1.
func findQuery(queries vectors.Source, id string) int {
	for i := range queries.Len() {
		if queries.ID(i) == id {
			return i
		}
	}
	return -1
}

// explainTable formats an explanation for reading.
func explainTable(b *bytes.Buffer, r *explainReport, c out.Colours) {
	explanation := r.Explanation
	fmt.Fprintf(b, "query:    %s\n", c.Bold(out.Printable(r.Query, 200)))
	location := ""
	if r.File != "" {
		location = " of " + out.Escaped(r.File)
	}
	fmt.Fprintf(b, "document: %s (ordinal %d%s, %s)\n", c.Name(out.TableID(explanation.ID)), explanation.Ordinal,
		location, out.Plural(explanation.Tokens, "token"))
	fmt.Fprintf(b, "score:    %.4f\n", explanation.Score)
	stage := c.Bad(fmt.Sprint(explanation.Stage))
	if explanation.Rank > 0 {
		stage = c.Good(fmt.Sprint(explanation.Stage))
	}
	fmt.Fprintf(b, "stage:    %s", stage)
	if explanation.Rank > 0 {
		fmt.Fprintf(b, ", rank %d", explanation.Rank)
	}
	if explanation.Rank == 0 && explanation.StageScore != nil && explanation.StageLimit != nil {
		fmt.Fprintf(b, ": %.4f in this stage, %.4f was needed; both are approximate", *explanation.StageScore,
			*explanation.StageLimit)
	}
	if explanation.Plan != "" {
		fmt.Fprintf(b, "\nplan:     %s", explanation.Plan)
	}
	if explanation.Image != "" {
		fmt.Fprintf(b, "\nimage:    %s", out.Printable(explanation.Image, 200))
	}
	if g := explanation.Grid; g != nil {
		fmt.Fprintf(b, "\ngrid:     %d rows, %d columns, and %s (--json has the score of each cell)", g.Rows, g.Columns,
			out.Plural(g.Special, "other token"))
	}
	if explanation.NoGrid != "" {
		fmt.Fprintf(b, "\nno grid:  %s", out.Escaped(explanation.NoGrid))
	}
	b.WriteString("\n\n")
	if r.Pieces != nil {
		piecesTable(b, r.Pieces, c)
		return
	}
	if r.NoPieces != "" {
		fmt.Fprintf(b, "no pieces of text: %s\n\n", out.Escaped(r.NoPieces))
	}
	fmt.Fprintln(b, c.Dim(fmt.Sprintf("%11s  %9s  %8s  %10s  %11s  %8s", "QUERY TOKEN", "DOC TOKEN", "WEIGHT",
		"SCORE", "BY CENTROID", "CENTROID")))
	for _, m := range explanation.Matches {
		fmt.Fprintf(b, "%11d  %9d  %8.3g  %10.4f  %11.4f  %8d\n", m.QueryToken, m.DocToken, m.Weight, m.Score,
			m.Centroid, m.Code)
	}
}

// matchedPiece is a query token and the document token that it matched best, as text.
type matchedPiece struct {
	QueryToken int    `json:"query_token"`
	QueryPiece string `json:"query_piece"`
	// QueryStart and QueryEnd bound the bytes of the query that the token was made from; both are 0
	// for tokens that the model adds.
	QueryStart int    `json:"query_start"`
	QueryEnd   int    `json:"query_end"`
	DocToken   int    `json:"doc_token"`
	DocPiece   string `json:"doc_piece"`
	// Field is the field of the metadata that contains the document token, or "" for tokens that the
	// model adds. Start and End bound its bytes there, and Text has them.
	Field string  `json:"field"`
	Start int     `json:"start"`
	End   int     `json:"end"`
	Text  string  `json:"text"`
	Score float64 `json:"score"`

	// context is the text with a few characters around it.
	context string
}

// findPieces returns the texts of the tokens that matched, of the query and of the document.
func findPieces(e *encode.Encoder, query string, snap *index.Snapshot, x *search.Explanation) ([]matchedPiece, error) {
	payload, err := snap.Payload(x.Ordinal)
	if err != nil {
		return nil, err
	}
	queryTokens, err := highlight.KeptTokens(e, encode.Query, query)
	if err != nil {
		return nil, err
	}
	source, err := highlight.FindSourceText(e, payload, nil, x.Tokens, snap.Header().Build.Pool)
	if err != nil {
		return nil, err
	}
	var pieces []matchedPiece
	for _, m := range x.Matches {
		if m.QueryToken >= len(queryTokens) || m.DocToken < 0 || m.DocToken >= len(source.Tokens) {
			continue
		}
		q, d := queryTokens[m.QueryToken], source.Tokens[m.DocToken]
		p := matchedPiece{
			QueryToken: m.QueryToken,
			QueryPiece: q.Piece,
			QueryStart: q.Start,
			QueryEnd:   q.End,
			DocToken:   m.DocToken,
			DocPiece:   d.Piece,
			Score:      m.Score,
		}
		var text string
		if p.Field, text, p.Start, p.End = source.Locate(d); p.Field != "" {
			p.Text, p.context = text[p.Start:p.End], markInContext(text, p.Start, p.End)
		}
		pieces = append(pieces, p)
	}
	return pieces, nil
}

// contextRunes is the number of characters that are shown on each side of a match.
const contextRunes = 25

// markInContext marks a part of a text and cuts away all but contextRunes characters on each side.
func markInContext(text string, start, end int) string {
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

// piecesTable writes a table of the matches as text.
func piecesTable(b *bytes.Buffer, pieces []matchedPiece, c out.Colours) {
	t := out.Table{LeftColumns: 5}
	t.Line("QUERY", "", "DOCUMENT", "", "BYTES", "SCORE")
	for _, p := range pieces {
		location := ""
		if p.Field != "" {
			location = fmt.Sprintf("%s %d-%d", p.Field, p.Start, p.End)
		}
		t.Line(fmt.Sprint(p.QueryToken), out.Printable(p.QueryPiece, 20), fmt.Sprint(p.DocToken),
			out.Printable(p.DocPiece, 20), location, fmt.Sprintf("%.4f", p.Score))
		if p.context != "" {
			t.Remark(strings.Join(c.Wrap(p.context, 80, 1), ""))
		}
	}
	var table bytes.Buffer
	t.Print(&table)
	head, body, _ := strings.Cut(table.String(), "\n")
	b.WriteString(c.Dim(head) + "\n" + body)
}
