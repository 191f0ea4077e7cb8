package server

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/plaid-ir/plaid/collection"
)

// storedOut is a document as it is stored.
type storedOut struct {
	DocumentID uint64          `json:"document_id"`
	ID         string          `json:"id"`
	Passage    *partOut        `json:"passage,omitempty" doc:"of a passage: its document, and its number there"`
	Metadata   json.RawMessage `json:"metadata,omitempty" doc:"left out where metadata_bytes has no room for it"`
	Embeddings rowsJSON        `json:"embeddings,omitzero" doc:"decoded, of unit length"`
	Base64     string          `json:"embeddings_b64,omitempty"`
	Shape      []int           `json:"shape,omitempty" doc:"of embeddings_b64: tokens and dimension"`

	vectors Matrix // where the answer has tensors
}

// partOut has the document of a passage, and the number of the passage in it.
type partOut struct {
	Of     string `json:"of" doc:"the _id of the document"`
	Number int    `json:"n" doc:"the number of the passage"`
}

type documentsOut struct {
	Documents []storedOut `json:"documents" doc:"documents and passages"`
	Count     int         `json:"count" doc:"how many documents and passages this answer has"`
	Total     int         `json:"total" doc:"how many there are without limit and offset"`
	Next      int         `json:"next,omitempty" doc:"the offset to go on with, where limit leaves some out"`

	tensors bool
	dim     int
}

// writeAnswer implements customAnswer.
func (out documentsOut) writeAnswer(q *request) error {
	if !out.tensors {
		return q.answerJSON(http.StatusOK, out)
	}
	matrices := make([]Matrix, len(out.Documents))
	for i := range matrices {
		matrices[i] = out.Documents[i].vectors
	}
	return q.sendTensors(out, matrices, out.dim)
}

// formTensors is the form of vectors in an answer of tensors.
const formTensors = "tensors"

const (
	defaultDocuments = 1000   // that a request without limit reads
	maxDocuments     = 10_000 // the largest limit
)

func lookupRoutes() []route {
	text, integerSchema := object{"type": "string"}, object{"type": "integer", "minimum": 0}
	return []route{typedRoute(route{
		method:         "GET",
		pattern:        "/indices/{name}/documents",
		operationID:    "get_documents",
		tag:            "documents",
		permission:     Read,
		group:          groupLookup,
		answersTensors: true,
		summary:        "Documents by id, with their vectors if wanted",
		codes:          []Code{CodeDocumentNotFound},
		doc: "Documents come in the order of the request, first those of document_id. The _id of a " +
			"document that is stored as passages stands for these, in their order; the _id of a passage, and a " +
			"document_id, for that passage.",
		params: []param{
			{"document_id", "query", "document id; may be there several times",
				object{"type": "array", "items": integerSchema}},
			{"id", "query", "_id; may be there several times", object{"type": "array", "items": text}},
			{"vectors", "query", "json or base64: with the vectors",
				object{"type": "string", "enum": []string{"json", "base64", "none"}}},
			{"offset", "query", "how many documents, or passages, are passed over", integerSchema},
			{"limit", "query", "how many come at most",
				object{"type": "integer", "minimum": 0, "maximum": maxDocuments, "default": defaultDocuments}},
			{"metadata_bytes", "query", "at most this many bytes of metadata, of the first documents; the first one " +
				"has its metadata in any case; 0: none has; default: all have", integerSchema},
		},
	}, getDocuments)}
}

// lookup has the parameters of a request for documents.
type lookup struct {
	numbers       []uint64
	ids           []string
	form          string // of vectors: "json", "base64", formTensors, or "" for none
	offset, limit int
	metadataBytes int // the largest sum of the metadata of all documents
}

// parseLookup parses the parameters of a query string.
func parseLookup(query url.Values) (l lookup, err error) {
	l = lookup{ids: query["id"], form: query.Get("vectors")}
	switch l.form {
	case "", "none":
		l.form = ""
	case "json", "base64":
	default:
		return l, badRequest("vectors is %q; want json, base64 or none", l.form)
	}
	for _, text := range query["document_id"] {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return l, badRequest("document_id %q is no whole number from 0", text)
		}
		l.numbers = append(l.numbers, n)
	}
	if len(l.numbers)+len(l.ids) == 0 {
		return l, badRequest("a document_id or an id is needed")
	}
	for _, p := range []struct {
		name      string
		value     *int
		byDefault int
		limit     int
	}{
		{"offset", &l.offset, 0, math.MaxInt},
		{"limit", &l.limit, defaultDocuments, maxDocuments},
		{"metadata_bytes", &l.metadataBytes, math.MaxInt, math.MaxInt},
	} {
		*p.value = p.byDefault
		if text := query.Get(p.name); text != "" {
			if *p.value, err = strconv.Atoi(text); err != nil || *p.value < 0 {
				return l, badRequest("%s %q is no whole number from 0", p.name, text)
			}
			if *p.value > p.limit {
				return l, badRequest("%s is %d; the limit is %d", p.name, *p.value, p.limit)
			}
		}
	}
	return l, nil
}

// getDocuments answers GET /indices/{name}/documents.
func getDocuments(q *request, _ *noBody) (documentsOut, error) {
	out := documentsOut{Documents: []storedOut{}}
	l, err := parseLookup(q.URL.Query())
	if err != nil {
		return out, err
	}
	if out.tensors = q.acceptsTensors(); out.tensors {
		if q.URL.Query().Has("vectors") {
			return out, badRequest("vectors is for JSON, and Accept asks for %s: leave out one of them", mediaTensors)
		}
		l.form = formTensors
	}
	err = q.withSnapshot(func(_ collection.Collection, v collection.Snapshot) error {
		documents, err := q.findDocuments(v, &l)
		if err != nil {
			return err
		}
		out.Total, out.dim = len(documents), v.Dim()
		documents = documents[min(l.offset, len(documents)):]
		if len(documents) > l.limit {
			documents = documents[:l.limit]
			out.Next = l.offset + l.limit
		}
		out.Documents, err = q.readDocuments(v, &l, documents)
		return err
	})
	out.Count = len(out.Documents)
	return out, err
}

// findDocuments returns the documents and passages of a lookup, in its order, without metadata and vectors.
func (q *request) findDocuments(v collection.Snapshot, l *lookup) ([]storedOut, error) {
	// Positions in the request: first the numbers, then the ids. One document may have several.
	byPosition := make([][]storedOut, len(l.numbers)+len(l.ids))
	byNumber, byID := map[uint64][]int{}, map[string][]int{}
	for i, n := range l.numbers {
		byNumber[n] = append(byNumber[n], i)
	}
	for i, id := range l.ids {
		byID[id] = append(byID[id], len(l.numbers)+i)
	}

	// find adds the documents of a selection at their positions.
	find := func(selection collection.Selection, positions func(d *collection.StoredDocument) []int) error {
		for d, err := range v.Documents(q.ctx, selection, collection.ReadOptions{}) {
			if err != nil {
				return err
			}
			mayRepeat := len(byNumber[d.Number])+len(byID[d.ID]) > 0
			for _, i := range positions(&d) {
				isSame := func(o storedOut) bool { return o.DocumentID == d.Number }
				if mayRepeat && slices.ContainsFunc(byPosition[i], isSame) {
					continue
				}
				const outBytes = 200 // of a storedOut
				if err := q.reserveAnswer(len(d.ID) + outBytes); err != nil {
					return err
				}
				byPosition[i] = append(byPosition[i], newStoredOut(&d))
			}
		}
		return nil
	}
	if len(l.numbers) > 0 {
		if err := find(collection.Selection{Numbers: l.numbers},
			func(d *collection.StoredDocument) []int { return byNumber[d.Number] }); err != nil {
			return nil, err
		}
	}
	if len(l.ids) > 0 {
		positions := func(d *collection.StoredDocument) []int {
			if d.Of == "" {
				return byID[d.ID]
			}
			return append(slices.Clone(byID[d.Of]), byID[d.ID]...) // the ids of the document and of the passage
		}
		ids := slices.Compact(slices.Sorted(slices.Values(l.ids)))
		if err := find(collection.Selection{IDs: ids}, positions); err != nil {
			return nil, err
		}
	}

	// Join the positions. One without a document is an error.
	var documents []storedOut
	for i := range byPosition {
		switch {
		case len(byPosition[i]) > 0:
			documents = append(documents, byPosition[i]...)
		case i < len(l.numbers):
			return nil, problem(CodeDocumentNotFound, "there is no document %d", l.numbers[i])
		default:
			id := l.ids[i-len(l.numbers)]
			return nil, problem(CodeDocumentNotFound, "there is no document with _id %.80q", id).
				withPlace(Where{ID: id})
		}
	}
	return documents, nil
}

// readDocuments adds vectors, if they are wanted, and metadata to documents. Only the first ones get their
// metadata, up to metadataBytes in all, but always the first one.
func (q *request) readDocuments(v collection.Snapshot, l *lookup, documents []storedOut) ([]storedOut, error) {
	numbers := make([]uint64, len(documents))
	for i := range documents {
		numbers[i] = documents[i].DocumentID
	}
	next, remaining := 0, l.metadataBytes
	// read reads the documents from next on. With metadata it stops where no more fits.
	read := func(o collection.ReadOptions) error {
		if next == len(documents) {
			return nil
		}
		for d, err := range v.Documents(q.ctx, collection.Selection{Numbers: numbers[next:]}, o) {
			if err != nil {
				return err
			}
			if o.Metadata && next > 0 && len(d.Metadata) > remaining {
				break
			}
			remaining -= min(len(d.Metadata), remaining)
			if documents[next], err = q.toStoredOut(&d, v.Dim(), l.form, o.Metadata); err != nil {
				return err
			}
			if next++; o.Metadata && remaining == 0 {
				break
			}
		}
		return nil
	}
	withVectors := l.form != ""
	if l.metadataBytes > 0 {
		if err := read(collection.ReadOptions{Metadata: true, Vectors: withVectors}); err != nil {
			return nil, err
		}
	}
	if withVectors {
		return documents, read(collection.ReadOptions{Vectors: true})
	}
	return documents, nil
}

// newStoredOut returns a document, or a passage, without its metadata and vectors.
func newStoredOut(d *collection.StoredDocument) storedOut {
	out := storedOut{DocumentID: d.Number, ID: d.ID}
	if d.Of != "" {
		out.Passage = &partOut{d.Of, d.Passage}
	}
	return out
}

// toStoredOut returns a document, or a passage, with its vectors in a form and, if it was read, its metadata.
func (q *request) toStoredOut(
	d *collection.StoredDocument, dim int, form string, withMetadata bool,
) (out storedOut, err error) {
	out = newStoredOut(d)
	if withMetadata {
		if out.Metadata, err = q.documentMetadata(d); err != nil {
			return out, err
		}
	}
	if form == "" {
		return out, nil
	}
	perComponent := 16 // bytes: 4 of the vector, and 12 for its digits
	if form == formTensors {
		perComponent = 4
	}
	if err := q.reserveAnswer(perComponent * len(d.Vectors)); err != nil {
		return out, err
	}
	m := Matrix{Tokens: len(d.Vectors) / max(dim, 1), Dim: dim, Data: d.Vectors}
	switch form {
	case formTensors:
		out.vectors = m
	case "json":
		out.Embeddings = rowsJSON{present: true, matrix: m}
	default:
		out.Base64, out.Shape = base64FromMatrix(m), []int{m.Tokens, m.Dim}
	}
	return out, nil
}
