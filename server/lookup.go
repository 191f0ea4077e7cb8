package server

import (
	"encoding/json"
	"strconv"

	"github.com/plaid-ir/plaid/server/store"
)

// storedOut is a document as it is stored.
type storedOut struct {
	DocumentID uint32          `json:"document_id"`
	ID         string          `json:"id"`
	Metadata   json.RawMessage `json:"metadata"`
	Embeddings rowsJSON        `json:"embeddings,omitzero" doc:"decoded, of unit length"`
	Base64     string          `json:"embeddings_b64,omitempty" doc:"the same as base64 of little-endian float32, row after row"`
	Shape      []int           `json:"shape,omitempty" doc:"of embeddings_b64: tokens and dimension"`
}

type documentsOut struct {
	Documents []storedOut `json:"documents"`
	Count     int         `json:"count"`
}

func lookupRoutes() []route {
	text := object{"type": "string"}
	return []route{typed(route{method: "GET", pattern: "/indices/{name}/documents", id: "get_documents", tag: "documents", need: Read, group: looking,
		summary: "Documents by id, with their vectors if wanted", fails: []Code{CodeDocumentNotFound},
		doc: "Documents come in the order of the request, first those of document_id.",
		params: []param{
			{"document_id", "query", "document id; may be there several times", object{"type": "array", "items": object{"type": "integer", "minimum": 0}}},
			{"id", "query", "_id; may be there several times", object{"type": "array", "items": text}},
			{"vectors", "query", "json or base64: with the vectors", object{"type": "string", "enum": []string{"json", "base64", "none"}}},
		}}, lookUp)}
}

func lookUp(q *request, _ *nothing) (documentsOut, error) {
	out := documentsOut{Documents: []storedOut{}}
	query := q.URL.Query()
	form := query.Get("vectors")
	if form != "" && form != "none" && form != "json" && form != "base64" {
		return out, bad("vectors is %q; there is json, base64 and none", form)
	}
	if len(query["document_id"])+len(query["id"]) == 0 {
		return out, bad("a document_id or an id is needed")
	}
	err := q.view(func(_ *store.Collection, v *store.View) error {
		var ordinals []uint32
		for _, text := range query["document_id"] {
			o, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return bad("document_id %q is no whole number from 0", text)
			}
			if !v.Live(o) {
				return problem(CodeDocumentNotFound, "there is no document %d", o)
			}
			ordinals = append(ordinals, uint32(o))
		}
		for _, id := range query["id"] {
			o, ok, err := v.Ordinal(id)
			if err != nil {
				return err
			}
			if !ok {
				return problem(CodeDocumentNotFound, "there is no document with _id %q", id).at(Where{ID: id})
			}
			ordinals = append(ordinals, o)
		}
		for _, o := range ordinals {
			if err := q.ctx.Err(); err != nil {
				return err
			}
			d, err := q.storedDocument(v, o, form)
			if err != nil {
				return err
			}
			out.Documents = append(out.Documents, d)
		}
		return nil
	})
	out.Count = len(out.Documents)
	return out, err
}

func (q *request) storedDocument(v *store.View, ordinal uint32, form string) (storedOut, error) {
	out := storedOut{DocumentID: ordinal, ID: v.ID(uint64(ordinal))}
	var err error
	if out.Metadata, err = q.metadataOf(v, ordinal); err != nil || form == "" || form == "none" {
		return out, err
	}
	const each = 16 // bytes for a component: 4 of the vector, and its digits
	if err := q.spend(each * v.Tokens(uint64(ordinal)) * v.Dim()); err != nil {
		return out, err
	}
	data, err := v.Vectors(uint64(ordinal))
	if err != nil {
		return out, err
	}
	m := Matrix{Tokens: len(data) / v.Dim(), Dim: v.Dim(), Data: data}
	if form == "json" {
		out.Embeddings = rowsJSON{given: true, m: m}
	} else {
		out.Base64, out.Shape = base64Of(m), []int{m.Tokens, m.Dim}
	}
	return out, nil
}
