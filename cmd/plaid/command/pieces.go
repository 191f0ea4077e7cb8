package command

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
)

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
	t := out.Table{Left: 5}
	t.Line("QUERY", "", "DOCUMENT", "", "BYTES", "SCORE")
	for _, p := range pieces {
		where := ""
		if p.Field != "" {
			where = fmt.Sprintf("%s %d-%d", p.Field, p.Start, p.End)
		}
		t.Line(fmt.Sprint(p.QueryToken), out.Printable(p.QueryPiece, 20), fmt.Sprint(p.DocToken), out.Printable(p.DocPiece, 20), where, fmt.Sprintf("%.4f", p.Score))
		if p.context != "" {
			t.Remark(strings.Join(c.Wrapped(p.context, 80, 1), ""))
		}
	}
	var all bytes.Buffer
	t.Print(&all)
	head, rest, _ := strings.Cut(all.String(), "\n")
	b.WriteString(c.Dim(head) + "\n" + rest)
}
