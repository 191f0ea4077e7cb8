package server

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
)

// explainIn asks how a search scores a document, or at which stage the document leaves it.
type explainIn struct {
	Query      *queryIn `json:"query,omitempty" doc:"as vectors; or text"`
	Text       string   `json:"text,omitempty" doc:"the query as a text; or query"`
	DocumentID *int64   `json:"document_id,omitempty" doc:"the document; or id"`
	ID         string   `json:"id,omitempty" doc:"the _id of the document; or document_id"`
	Params     paramsIn `json:"params,omitzero"`
	restriction
	TextFields   []string `json:"text_fields,omitempty"`
	Similarities bool     `json:"similarities,omitempty"`
}

// explainOut explains a score, and the stage at which the document left the search.
type explainOut struct {
	DocumentID uint64 `json:"document_id"`
	ID         string `json:"id"`
	Tokens     int    `json:"tokens" doc:"of the document"`
	// Score and the fields below it are those of search.Explanation.
	Score          float64         `json:"score" doc:"MaxSim, whatever became of the document"`
	Stage          search.Stage    `json:"stage" enum:"empty,filtered,not probed,cut,pruned,outranked,returned"`
	Rank           int             `json:"rank,omitempty" doc:"from 1, if it was returned"`
	Plan           string          `json:"plan,omitempty"`
	StageScore     *float64        `json:"stage_score,omitempty" doc:"its score in that stage"`
	StageLimit     *float64        `json:"stage_limit,omitempty" doc:"the lowest score that stayed"`
	Matches        []search.Match  `json:"matches" doc:"for each query token the document token that it matches best"`
	QueryTokens    []tokenOut      `json:"query_tokens,omitempty" doc:"pieces of the query, where it is a text"`
	DocumentText   string          `json:"document_text,omitempty" doc:"the text that document_tokens are of"`
	DocumentTokens []tokenOut      `json:"document_tokens,omitempty"`
	Similarities   [][]float32     `json:"similarities,omitempty" doc:"[query tokens][document tokens]"`
	Metadata       json.RawMessage `json:"metadata"`
	// Image, Grid and NoGrid are those of search.Explanation.
	Image  string             `json:"image,omitempty"`
	Grid   *search.GridScores `json:"grid,omitempty"`
	NoGrid string             `json:"no_grid,omitempty" doc:"why there is no grid of a page that has one"`
	Notes  []string           `json:"notes,omitempty"`
}

// tokenOut is a piece of a text.
type tokenOut struct {
	Piece string `json:"piece"`
	Start int    `json:"start" doc:"first byte in the text"`
	End   int    `json:"end" doc:"byte after the last; equal to start where the piece is none of the text"`
}

func explainRoutes() []route {
	return []route{typedRoute(route{
		method:      "POST",
		pattern:     "/indices/{name}/explain",
		operationID: "explain",
		tag:         "search",
		permission:  Read,
		group:       groupSearch,
		summary:     "Which token matched which, or the stage that dropped the document",
		codes:       append([]Code{CodeDocumentNotFound, CodeDimension, CodeNotSupported}, modelCodes...),
		params:      []param{conditionParam},
		example:     `{"query": {"embeddings": [[1, 0], [0, 1]]}, "document_id": 0}`,
	}, explainDocument)}
}

// explainDocument answers POST /indices/{name}/explain.
func explainDocument(q *request, in *explainIn) (out explainOut, err error) {
	// The query, and its tokens if it is a text.
	switch {
	case (in.Query == nil) == (in.Text == ""):
		return out, badRequest("a query is needed, as query or as text, and one of them only")
	case (in.DocumentID == nil) == (in.ID == ""):
		return out, badRequest("a document is needed, as document_id or as id, and one of them only")
	}
	if _, err := q.collection(); err != nil {
		return out, err
	}
	var query search.Query
	var tokens []encode.Token
	if in.Query != nil {
		if query, err = in.Query.toQuery(0); err != nil {
			return out, err
		}
	} else {
		texts := []string{in.Text}
		err := q.encodeEach(encode.Query, inField("text"), texts, nil,
			func(m Matrix, queryTokens []encode.Token) error {
				query = search.Query{Vectors: slices.Clone(m.Data), Dim: m.Dim, Model: q.server.queryModel()}
				tokens = queryTokens
				return nil
			})
		if err != nil {
			return out, err
		}
	}

	err = q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		// The document.
		explainer, ok := v.(collection.Explainer)
		if !ok {
			return collection.Unsupported("explain")
		}
		id := in.ID
		if in.DocumentID != nil {
			selection := collection.Selection{Numbers: validNumbers([]int64{*in.DocumentID})}
			d, err := q.firstDocument(v, selection, collection.ReadOptions{})
			if err != nil {
				return err
			}
			if d == nil {
				return problem(CodeDocumentNotFound, "there is no document %d", *in.DocumentID)
			}
			id = d.ID
		}
		if dim := query.Dim; v.Dim() != 0 && dim != v.Dim() {
			return problem(CodeDimension, "the query has dimension %d, the index %d", dim, v.Dim())
		}

		// The search.
		allowed, err := in.allowedDocuments(q, v)
		if err != nil {
			return err
		}
		page := in.Params.searchPage(v.MaxHits())
		page.K = max(1, page.K)
		o, err := in.Params.searchOptions(page)
		if err != nil {
			return err
		}
		o.Filter = allowed
		x, err := explainer.Explain(q.ctx, query, id, o)
		if err != nil {
			return err
		}
		out = explainOut{
			DocumentID: collection.HitNumber(&search.Hit{Shard: x.Shard, Ordinal: x.Ordinal}),
			ID:         x.ID,
			Tokens:     x.Tokens,
			Score:      x.Score,
			Stage:      x.Stage,
			Rank:       x.Rank,
			Plan:       x.Plan,
			StageScore: x.StageScore,
			StageLimit: x.StageLimit,
			Matches:    x.Matches,
			Image:      x.Image,
			Grid:       x.Grid,
			NoGrid:     x.NoGrid,
		}
		out.Notes = q.appendTruncationNote(0, out.Notes)
		if x.Grid != nil {
			cells := x.Grid.Rows*x.Grid.Columns + x.Grid.Special
			if err := q.reserveAnswer(innerProductBytes * len(x.Matches) * cells); err != nil {
				return err
			}
		}
		if out.Matches == nil {
			out.Matches = []search.Match{}
		}
		return q.explainTexts(v, explainer, in, query, tokens, &out)
	})
	return out, err
}

// firstDocument returns the first document of a selection, or nil if the selection is empty.
func (q *request) firstDocument(
	v collection.Snapshot, s collection.Selection, o collection.ReadOptions,
) (*collection.StoredDocument, error) {
	for d, err := range v.Documents(q.ctx, s, o) {
		return &d, err
	}
	return nil, nil
}

// explainTexts adds the metadata, the tokens of both texts, and the inner products to the answer. tokens are
// those of the query, if the encoder has returned them.
func (q *request) explainTexts(
	v collection.Snapshot, explainer collection.Explainer, in *explainIn, query search.Query,
	tokens []encode.Token, out *explainOut,
) error {
	// Metadata and inner products.
	selection := collection.Selection{IDs: []string{out.ID}}
	d, err := q.firstDocument(v, selection, collection.ReadOptions{Metadata: true, Vectors: in.Similarities})
	if err != nil {
		return err
	}
	if d == nil { // deleted meanwhile
		return problem(CodeDocumentNotFound, "there is no document with _id %.80q", out.ID).withPlace(Where{ID: out.ID})
	}
	if out.Metadata, err = q.documentMetadata(d); err != nil {
		return err
	}
	if in.Similarities {
		queryVectors, err := explainer.QueryTokens(q.ctx, &query)
		if err != nil {
			return err
		}
		if out.Similarities, err = q.similarities(queryVectors, d.Vectors, max(v.Dim(), 1)); err != nil {
			return err
		}
	}

	// Tokens of the query.
	e, _ := q.server.encoder()
	if e == nil {
		return nil
	}
	done, err := q.reserveTokenMemory(q.memory, max(len(in.Text), len(out.Metadata)))
	if err != nil {
		return err
	}
	defer done()
	if in.Text != "" {
		if tokens == nil {
			if tokens, err = e.Tokenize(encode.Query, in.Text); err != nil {
				return err
			}
		}
		out.QueryTokens = keptTokens(tokens)
		if n := query.Dim; len(out.QueryTokens) != len(query.Vectors)/n {
			out.QueryTokens = nil
			out.Notes = append(out.Notes, "the tokens of the query are not those of its vectors")
		}
	}

	// Tokens of the document.
	described, err := v.Describe(q.ctx)
	if err != nil {
		return err
	}
	text, err := highlight.FindSourceText(e, out.Metadata, in.TextFields, out.Tokens, described.Pool)
	switch {
	case err == nil:
		out.DocumentText, out.DocumentTokens = text.Text, keptTokens(text.Tokens)
	case errors.Is(err, highlight.ErrPooled), errors.Is(err, highlight.ErrNoPieces):
		out.Notes = append(out.Notes, err.Error())
	case highlight.IsUnknown(err):
		out.Notes = append(out.Notes, err.Error()+", or it was pooled (see text_fields)")
	default:
		return err
	}
	return nil
}

// keptTokens returns the tokens that have vectors.
func keptTokens(tokens []encode.Token) []tokenOut {
	var kept []tokenOut
	for _, t := range tokens {
		if t.Kept {
			kept = append(kept, tokenOut{t.Piece, t.Start, t.End})
		}
	}
	return kept
}

// innerProductBytes is about how many bytes an inner product takes in an answer.
const innerProductBytes = 8

// similarities returns the inner products of the tokens of a query with those of a document:
// [query tokens][document tokens].
func (q *request) similarities(query, doc []float32, dim int) ([][]float32, error) {
	if err := q.reserveAnswer(innerProductBytes * (len(query) / dim) * (len(doc) / dim)); err != nil {
		return nil, err
	}
	rows := make([][]float32, len(query)/dim)
	for i := range rows {
		if err := q.ctx.Err(); err != nil {
			return nil, err
		}
		token := query[i*dim : (i+1)*dim]
		rows[i] = make([]float32, len(doc)/dim)
		for j := range rows[i] {
			rows[i][j] = float32(kernels.MaxSimFloat(token, nil, doc[j*dim:(j+1)*dim], dim))
		}
	}
	return rows, nil
}
