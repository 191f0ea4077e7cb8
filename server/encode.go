package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// encodeIn asks for the vectors of texts.
type encodeIn struct {
	Texts      []string `json:"texts"`
	InputType  string   `json:"input_type" enum:"query,document"`
	PoolFactor *int     `json:"pool_factor,omitempty" doc:"of documents: one vector for so many similar ones"`
}

// encodeOut has one of the two forms of vectors, as X-Embeddings-Format asks.
type encodeOut struct {
	Embeddings []rowsJSON `json:"embeddings,omitzero" doc:"[texts][tokens][dimension]"`
	Base64     []string   `json:"embeddings_b64,omitzero" doc:"of little-endian float32, row after row, for each text"`
	Shapes     [][2]int   `json:"shapes,omitzero" doc:"tokens and dimension of each text"`
	Texts      int        `json:"num_texts"`
}

// embeddingsIn is the request of PyLate's server.
type embeddingsIn struct {
	Input   textsJSON `json:"input" doc:"a text, or a list of texts"`
	IsQuery *bool     `json:"is_query,omitempty" doc:"default true"`
	Model   string    `json:"model,omitempty" doc:"is not looked at: the service has one model"`
}

// textsJSON is a string or a list of strings.
type textsJSON []string

// UnmarshalJSON reads either.
func (t *textsJSON) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*t = make(textsJSON, 1)
		return json.Unmarshal(b, &(*t)[0])
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// schema implements schemer.
func (textsJSON) schema() object {
	return object{"anyOf": []object{{"type": "string"}, {"type": "array", "items": object{"type": "string"}}}}
}

type embeddingsOut struct {
	Object string         `json:"object"`
	Data   []embeddingOut `json:"data"`
	Model  string         `json:"model"`
}

type embeddingOut struct {
	Object    string   `json:"object"`
	Index     int      `json:"index"`
	Embedding rowsJSON `json:"embedding"`
}

// modelCodes are those of routes that take texts.
var modelCodes = []Code{CodeModelNotLoaded, CodeModelLoading, CodeModel}

const (
	headerFormat = "X-Embeddings-Format"
	formatBase64 = "base64"
)

func encodeRoutes() []route {
	const tag = "encode"
	fails := modelCodes
	return []route{
		typed(route{method: "POST", pattern: "/encode", id: "encode", tag: tag, need: Read, group: searching, fails: fails,
			summary: "Turn texts into token vectors", example: `{"texts": ["how long do cats sleep?"], "input_type": "query"}`,
			params: []param{{headerFormat, "header", "base64: answer with embeddings_b64 and shapes", object{"type": "string"}}}}, encodeTexts),
		typed(route{method: "POST", pattern: "/v1/embeddings", id: "embeddings", tag: tag, need: Read, group: searching, fails: fails,
			summary: "The same, with the request and answer of PyLate's server", example: `{"input": ["how long do cats sleep?"], "is_query": true}`}, embeddings),
	}
}

// encode turns texts into matrices, none of them empty.
func (q *request) encode(role encode.Role, texts []string, factor *int) ([]Matrix, error) {
	e, none := q.s.encoder()
	if none != nil {
		return nil, none
	}
	if len(texts) == 0 {
		return nil, bad("there are no texts")
	}
	if factor != nil && *factor < 1 {
		return nil, bad("pool_factor is %d; want 1 or more", *factor)
	}
	for i, text := range texts {
		switch {
		case text == "":
			return nil, bad("text %d is empty", i).at(whereOf(role, i))
		case !utf8.ValidString(text):
			return nil, bad("text %d is not UTF-8", i).at(whereOf(role, i))
		}
	}
	ctx, end := q.span("encode")
	began := time.Now()
	matrices, err := encodeAll(ctx, e, role, texts, factor)
	end(err)
	var p *Problem
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &p):
		return nil, p
	default:
		p := problem(CodeModel, "the model failed: the log of the service has it under this request id")
		p.err = err
		return nil, p
	}
	q.s.metrics.encoded.WithLabelValues(role.String()).Observe(time.Since(began).Seconds())
	for i, m := range matrices {
		if m.Tokens == 0 {
			return nil, bad("text %d has no token that is kept", i).at(whereOf(role, i))
		}
	}
	return matrices, nil
}

// madeBy is the model of the service, as indexes know it: those that were made by
// another one refuse its vectors.
func (s *Server) madeBy() *storage.Model {
	e, _ := s.encoder()
	if e == nil {
		return nil
	}
	if m, ok := e.(Maker); ok {
		return m.Model()
	}
	c := e.Config()
	return &storage.Model{Name: c.Dir, Fingerprint: c.Fingerprint, Precision: c.Precision}
}

func whereOf(role encode.Role, i int) Where {
	if role == encode.Query {
		return Where{Query: &i}
	}
	return Where{Document: &i}
}

func encodeAll(ctx context.Context, e Encoder, role encode.Role, texts []string, factor *int) ([]Matrix, error) {
	matrices := make([]Matrix, 0, len(texts))
	add := func(v []float32, keep bool) {
		m := Matrix{Tokens: len(v) / e.Dim(), Dim: e.Dim(), Data: v}
		if keep {
			m.Data = append([]float32(nil), v...)
		}
		matrices = append(matrices, m)
	}
	if role == encode.Query {
		all, err := e.Queries(ctx, texts)
		for _, x := range all {
			add(x.Vectors, false)
		}
		return matrices, err
	}
	var source iter.Seq2[encode.Text, error] = func(yield func(encode.Text, error) bool) {
		for _, text := range texts {
			if !yield(encode.Text{Text: text}, nil) {
				return
			}
		}
	}
	for d, err := range e.Documents(ctx, source) {
		if err != nil {
			return nil, err
		}
		add(d.Tokens, true)
	}
	if len(matrices) != len(texts) {
		return nil, fmt.Errorf("the encoder gave %d matrices for %d texts", len(matrices), len(texts))
	}
	return matrices, poolAll(ctx, matrices, factor)
}

// poolAll replaces the vectors of each document by one in so many (nil: none).
func poolAll(ctx context.Context, matrices []Matrix, factor *int) error {
	if factor == nil || *factor < 2 {
		return nil
	}
	var p pool.Pooler
	for i, m := range matrices {
		if err := ctx.Err(); err != nil {
			return err
		}
		data := p.Pool(nil, m.Data, m.Dim, *factor)
		matrices[i] = Matrix{Tokens: len(data) / m.Dim, Dim: m.Dim, Data: data}
	}
	return nil
}

func encodeTexts(q *request, in *encodeIn) (encodeOut, error) {
	role, err := parseRole(in.InputType)
	if err != nil {
		return encodeOut{}, err
	}
	factor := in.PoolFactor
	if role == encode.Query {
		factor = nil // clients may send it: it is for documents only
	}
	matrices, err := q.encode(role, in.Texts, factor)
	if err != nil {
		return encodeOut{}, err
	}
	out := encodeOut{Texts: len(matrices)}
	if q.Header.Get(headerFormat) == formatBase64 {
		for _, m := range matrices {
			out.Base64 = append(out.Base64, base64Of(m))
			out.Shapes = append(out.Shapes, [2]int{m.Tokens, m.Dim})
		}
		return out, nil
	}
	for _, m := range matrices {
		out.Embeddings = append(out.Embeddings, rowsJSON{given: true, m: m})
	}
	return out, nil
}

func parseRole(s string) (encode.Role, error) {
	for _, r := range []encode.Role{encode.Query, encode.Document} {
		if s == r.String() {
			return r, nil
		}
	}
	return 0, bad("input_type is %q; there is query and document", s)
}

func embeddings(q *request, in *embeddingsIn) (embeddingsOut, error) {
	role := encode.Query
	if in.IsQuery != nil && !*in.IsQuery {
		role = encode.Document
	}
	matrices, err := q.encode(role, in.Input, nil)
	if err != nil {
		return embeddingsOut{}, err
	}
	e, none := q.s.encoder()
	if none != nil {
		return embeddingsOut{}, none
	}
	out := embeddingsOut{Object: "list", Model: filepath.Base(e.Config().Dir)}
	for i, m := range matrices {
		out.Data = append(out.Data, embeddingOut{"embedding", i, rowsJSON{given: true, m: m}})
	}
	return out, nil
}
