package server

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/plaid-ir/plaid/encode"
)

// embeddingsIn is the request of OpenAI's service, and of PyLate's.
type embeddingsIn struct {
	Input   textsJSON `json:"input" doc:"a text, or a list of texts"`
	IsQuery *bool     `json:"is_query,omitempty" doc:"true: the texts are queries; default: documents"`
	Format  string    `json:"encoding_format,omitempty" enum:"float,base64"`
	Dim     *int      `json:"dimensions,omitempty" doc:"that of the model; others are refused"`
	Model   string    `json:"model,omitempty" doc:"is not looked at: the service has one model, which the answer names"`
}

// fieldsOfOthers marks a body with unknown fields: clients send settings that this service does not have.
func (*embeddingsIn) fieldsOfOthers() {}

// textsJSON is a string or a list of strings.
type textsJSON []string

// UnmarshalJSON reads a string or a list of strings.
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

// embeddingsOut is the answer of OpenAI's service. It encodes the texts when it is written.
type embeddingsOut struct {
	Object string          `json:"object" enum:"list"`
	Data   []embeddingOut  `json:"data"`
	Model  string          `json:"model"`
	Usage  embeddingsUsage `json:"usage"`

	in *embeddingsIn
}

type embeddingOut struct {
	Object    string        `json:"object" enum:"embedding"`
	Index     int           `json:"index"`
	Embedding embeddingJSON `json:"embedding"`
	Shape     []int         `json:"shape,omitempty" doc:"of base64: tokens and dimension"`
}

// embeddingJSON is a matrix in one of two forms.
type embeddingJSON struct{}

// schema implements schemer.
func (embeddingJSON) schema() object {
	return object{"anyOf": []object{
		{"type": "array", "items": object{"type": "array", "items": object{"type": "number"}}},
		{"type": "string", "contentEncoding": formatBase64},
	}}
}

type embeddingsUsage struct {
	Prompt int `json:"prompt_tokens" doc:"vectors of the answer"`
	Total  int `json:"total_tokens"`
	cutOut
}

// encodeEmbeddings answers POST /v1/embeddings: embeddingsOut encodes when it is written.
func encodeEmbeddings(_ *request, in *embeddingsIn) (embeddingsOut, error) {
	if in.Format != "" && in.Format != "float" && in.Format != formatBase64 {
		return embeddingsOut{}, badRequest("encoding_format is %q; want float or base64", in.Format)
	}
	return embeddingsOut{in: in}, nil
}

// modelID returns the name of the service's model.
func modelID(e Encoder) string { return filepath.Base(e.Config().Dir) }

// writeAnswer implements customAnswer.
func (out embeddingsOut) writeAnswer(q *request) error {
	// Check the request.
	in, role := out.in, encode.Document
	if in.IsQuery != nil && *in.IsQuery {
		role = encode.Query
	}
	e, missing := q.server.encoder()
	if missing != nil {
		return missing
	}
	if in.Dim != nil && *in.Dim != e.Dim() {
		return badRequest("dimensions is %d; the model has %d", *in.Dim, e.Dim())
	}

	// Answer with tensors, or with JSON.
	if q.acceptsTensors() {
		matrices, tokens, err := q.encodeMatrices(role, inList("input"), in.Input, nil)
		if err != nil {
			return err
		}
		usage := embeddingsUsage{tokens, tokens, q.truncation}
		return q.sendTensors(object{"object": "list", "model": modelID(e), "usage": usage}, matrices, e.Dim())
	}
	model, err := json.Marshal(modelID(e))
	if err != nil {
		return err
	}
	tokens := 0
	return q.streamVectors(role, inList("input"), in.Input, nil, `{"object":"list","data":[`,
		func(w *answerStream, n int, m Matrix) error {
			tokens += m.Tokens
			w.pending = fmt.Appendf(w.pending, `{"object":"embedding","index":%d,`, n)
			write := appendRows
			if in.Format == formatBase64 {
				write = appendBase64
				w.pending = fmt.Appendf(w.pending, `"shape":[%d,%d],`, m.Tokens, m.Dim)
			}
			w.pending = append(w.pending, `"embedding":`...)
			err := w.appendVectors(m, write)
			w.pending = append(w.pending, '}')
			return err
		}, func(w *answerStream, _ int) {
			w.pending = fmt.Appendf(w.pending,
				`],"model":%s,"usage":{"prompt_tokens":%d,"total_tokens":%d,"truncated":%d,"dropped_tokens":%d}}`,
				model, tokens, tokens, q.truncation.Truncated, q.truncation.Dropped)
		})
}

// modelsOut lists the models of the service: one, or none.
type modelsOut struct {
	Object string      `json:"object" enum:"list"`
	Data   []modelItem `json:"data"`
}

type modelItem struct {
	ID      string `json:"id"`
	Object  string `json:"object" enum:"model"`
	Created int64  `json:"created" doc:"is not known: 0"`
	OwnedBy string `json:"owned_by"`
}

// listModels answers GET /v1/models.
func listModels(q *request, _ *noBody) (modelsOut, error) {
	out := modelsOut{Object: "list", Data: []modelItem{}}
	if e, _ := q.server.encoder(); e != nil {
		out.Data = append(out.Data, modelItem{ID: modelID(e), Object: "model", OwnedBy: "plaid"})
	}
	return out, nil
}
