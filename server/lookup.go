package server

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/vectors"
)

// storedOut is a document as it is stored.
type storedOut struct {
	DocumentID uint64          `json:"document_id"`
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
		doc: "Documents come in the order of the request, first those of document_id. For the _id of a document that is stored as passages these come, by their numbers.",
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
	var numbers []uint64
	for _, text := range query["document_id"] {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return out, bad("document_id %q is no whole number from 0", text)
		}
		numbers = append(numbers, n)
	}
	err := q.view(func(_ collection.Collection, v collection.View) error {
		found := make([][]storedOut, len(numbers)+len(query["id"]))
		byNumber, byID := map[uint64][]int{}, map[string][]int{} // places in the request
		for i, n := range numbers {
			byNumber[n] = append(byNumber[n], i)
		}
		for i, id := range query["id"] {
			byID[id] = append(byID[id], len(numbers)+i)
		}
		read := func(chosen collection.Selection, places func(d *collection.Stored) []int) error {
			o := collection.ReadOptions{Metadata: true, Vectors: form == "json" || form == "base64"}
			for d, err := range v.Documents(q.ctx, chosen, o) {
				if err != nil {
					return err
				}
				for _, i := range places(&d) {
					if slices.ContainsFunc(found[i], func(o storedOut) bool { return o.DocumentID == d.Number }) {
						continue // the id is there twice
					}
					o, err := q.storedDocument(&d, v.Dim(), form)
					if err != nil {
						return err
					}
					found[i] = append(found[i], o)
				}
			}
			return nil
		}
		if len(numbers) > 0 {
			if err := read(collection.Selection{Numbers: numbers}, func(d *collection.Stored) []int { return byNumber[d.Number] }); err != nil {
				return err
			}
		}
		if ids := query["id"]; len(ids) > 0 {
			places := func(d *collection.Stored) []int {
				if at, named := byID[d.ID]; named && len(found[at[0]]) == 0 {
					return at
				}
				of, _ := vectors.SplitPassageID(d.ID)
				return byID[of] // it came for that
			}
			each := slices.Compact(slices.Sorted(slices.Values(ids))) // what comes twice then comes as a passage, too
			if err := read(collection.Selection{IDs: each}, places); err != nil {
				return err
			}
		}
		for i := range found {
			slices.SortStableFunc(found[i], func(a, b storedOut) int {
				_, m := vectors.SplitPassageID(a.ID)
				_, n := vectors.SplitPassageID(b.ID)
				return m - n
			})
			switch {
			case len(found[i]) > 0:
				out.Documents = append(out.Documents, found[i]...)
			case i < len(numbers):
				return problem(CodeDocumentNotFound, "there is no document %d", numbers[i])
			default:
				id := query["id"][i-len(numbers)]
				return problem(CodeDocumentNotFound, "there is no document with _id %q", id).at(Where{ID: id})
			}
		}
		return nil
	})
	out.Count = len(out.Documents)
	return out, err
}

func (q *request) storedDocument(d *collection.Stored, dim int, form string) (storedOut, error) {
	out := storedOut{DocumentID: d.Number, ID: d.ID}
	var err error
	if out.Metadata, err = q.metadataOf(d); err != nil || form == "" || form == "none" {
		return out, err
	}
	const each = 16 // bytes for a component: 4 of the vector, and its digits
	if err := q.spend(each * len(d.Vectors)); err != nil {
		return out, err
	}
	m := Matrix{Tokens: len(d.Vectors) / dim, Dim: dim, Data: d.Vectors}
	if form == "json" {
		out.Embeddings = rowsJSON{given: true, m: m}
	} else {
		out.Base64, out.Shape = base64Of(m), []int{m.Tokens, m.Dim}
	}
	return out, nil
}
