package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// documentIn is the vectors of a document.
type documentIn struct{ vectorsJSON }

// updateIn adds documents.
type updateIn struct {
	Documents []documentIn      `json:"documents"`
	Metadata  []json.RawMessage `json:"metadata,omitempty"`
	Model     *modelIn          `json:"model,omitempty"`
	poolIn
	keepIn
}

// modelIn names what made vectors.
type modelIn struct {
	Name        string `json:"name,omitempty" doc:"of the model"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// toModel is nil if none is named.
func (in *modelIn) toModel() (*storage.Model, error) {
	if in == nil {
		return nil, nil
	}
	m := &storage.Model{Name: in.Name, Fingerprint: in.Fingerprint}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return m, nil
}

// keepIn says what becomes of the metadata of a document that is replaced.
type keepIn struct {
	Keep bool `json:"keep_metadata,omitempty"`
}

// updateTextIn adds texts.
type updateTextIn struct {
	Documents  []string          `json:"documents"`
	Metadata   []json.RawMessage `json:"metadata,omitempty"`
	PoolFactor *int              `json:"pool_factor,omitempty" doc:"one vector for so many similar ones"`
	TextField  string            `json:"text_field,omitempty"`
	windowIn
	keepIn
}

// updatedOut says what an update did, for those who prefer return=representation.
type updatedOut struct {
	DocumentIDs []uint64 `json:"document_ids" doc:"in the order of the request; with a window of passages, too"`
	IDs         []string `json:"ids" doc:"the _id of each document of the request"`
	Documents   int      `json:"documents" doc:"how many were stored; all passages of one count as one"`
	Passages    int      `json:"passages" doc:"how many passages some of them are stored in"`
	Replaced    int      `json:"replaced"`
	Generation  uint64   `json:"generation" doc:"how often the index has been trained anew"`
	Evicted     int      `json:"evicted"`
	Empty       int      `json:"empty"`
	cutOut
	Message string `json:"message"`
}

type deleteIn struct {
	Condition   string         `json:"condition,omitempty"`
	Parameters  parametersJSON `json:"parameters,omitempty" doc:"a value for each ?"`
	DocumentIDs []int64        `json:"document_ids,omitempty" doc:"instead of a condition"`
	IDs         []string       `json:"ids,omitempty" doc:"instead of a condition: by _id"`
}

type removedOut struct {
	Deleted  int    `json:"deleted" doc:"documents that are gone entirely"`
	Passages int    `json:"passages" doc:"passages of these documents and of others"`
	Message  string `json:"message"`
}

var (
	waitParam   = param{"wait", "query", "is always true here: the answer comes when the documents are on disk and can be searched", object{"type": "boolean"}}
	preferParam = param{headerPrefer, "header", "return=representation: answer 200 with an object; handling=lenient: fields of the body that are not known are no errors; " + preferNullDoc, object{"type": "string"}}
)

func documentRoutes() []route {
	const tag = "documents"
	const written = "The answer comes when the documents are on disk and can be searched. A document that is refused takes no other request with it, and nothing of its own request is stored."
	fails := []Code{CodeIndexNotDeclared, CodeDimension, CodeOutcomeUnknown}
	changing := func(r route) route {
		r.tag, r.permission, r.group, r.status = tag, Write, groupWrite, http.StatusAccepted
		if r.representation == nil {
			r.representation = updatedOut{}
		}
		if r.method == "POST" {
			encodes := r.codes != nil // by a model
			r.checkEarly = func(q *request) error { return q.checkCanAdd(encodes) }
		}
		r.params = append(r.params, waitParam, preferParam)
		r.codes = append(r.codes, fails...)
		return r
	}
	return []route{
		typedRoute(changing(route{
			method:      "POST",
			pattern:     "/indices/{name}/update",
			operationID: "update_index",
			summary:     "Add documents, given as vectors",
			doc:         written,
			example:     `{"documents": [{"embeddings": [[1, 0], [0.6, 0.8]]}], "metadata": [{"_id": "cat", "title": "About cats"}]}`,
		}), updateVectors),
		typedRoute(changing(route{
			method:      "POST",
			pattern:     "/indices/{name}/update_with_encoding",
			operationID: "update_index_with_encoding",
			summary:     "Add documents, given as texts",
			doc:         written + " A text that is longer than the model reads is cut, and the answer says so; with window long texts are stored as passages, which share the metadata of their text.",
			codes:       append([]Code{CodeNotSupported}, modelCodes...),
			example:     `{"documents": ["Cats sleep for most of the day."], "metadata": [{"_id": "cat"}], "text_field": "text"}`,
		}), updateTexts),
		typedRoute(changing(route{
			method:      "POST",
			pattern:     "/indices/{name}/documents",
			operationID: "add_documents",
			summary:     "The same as update_index; older clients call it",
			example:     `{"documents": [{"embeddings": [[1, 0]]}]}`,
		}), updateVectors),
		typedRoute(changing(route{
			method:         "DELETE",
			pattern:        "/indices/{name}/documents",
			operationID:    "delete_documents",
			summary:        "Delete documents by a condition, or by id",
			representation: removedOut{},
			doc:            "The answer comes when they are gone. A condition over a field that no document has deletes nothing.",
			example:        `{"condition": "year < ?", "parameters": [2020]}`,
		}), deleteDocuments),
	}
}

// changeAnswer is what a change did: answered with 202 and a sentence, or with 200 and an
// object where that is preferred.
type changeAnswer struct {
	message        string
	representation any
}

// schema implements schemer.
func (changeAnswer) schema() object { return object{"type": "string"} }

// writeAnswer implements answerer.
func (c changeAnswer) writeAnswer(q *request) error {
	if q.prefers(preferRepresentation) {
		q.w.Header().Set("Preference-Applied", preferRepresentation)
		return q.answerJSON(http.StatusOK, c.representation)
	}
	return q.answerJSON(http.StatusAccepted, c.message)
}

func updateVectors(q *request, in *updateIn) (changeAnswer, error) {
	matrices := make([]Matrix, len(in.Documents))
	for i := range in.Documents {
		var err error
		if matrices[i], err = in.Documents[i].toDocument(); err != nil {
			return changeAnswer{}, documentProblem(i, err)
		}
	}
	by, err := in.Model.toModel()
	if err != nil {
		return changeAnswer{}, badRequest("%w", err)
	}
	metadata, err := q.poolDocuments(matrices, in)
	if err != nil {
		return changeAnswer{}, err
	}
	return q.storeDocuments(matrices, metadata, by, nil, in.Keep)
}

func documentProblem(i int, err error) *Problem {
	w := Where{Document: &i}
	var m *matrixError
	if errors.As(err, &m) && m.token >= 0 {
		w.Token = &m.token
	}
	return badRequest("document %d: %w", i, err).withPlace(w)
}

// storeDocuments stores documents of these vectors with their metadata; by is the model that made the
// vectors, nil if that is not known. p says which of them are passages of one document of the
// request; nil means that each is a document.
func (q *request) storeDocuments(matrices []Matrix, metadata []json.RawMessage, by *storage.Model, p *splitDocuments, keep bool) (changeAnswer, error) {
	docs := make([]collection.DocumentInput, len(matrices))
	for i, m := range matrices {
		docs[i].Vectors, docs[i].Dim, docs[i].KeepMetadata = m.Data, m.Dim, keep
	}
	c, err := q.declaredCollection()
	if err != nil {
		return changeAnswer{}, err
	}
	if err := addMetadata(docs, metadata); err != nil {
		return changeAnswer{}, err
	}
	ctx, end := q.startStage("write")
	receipt, err := c.Update(ctx, docs, collection.UpdateOptions{Replace: true, Model: by})
	end(err)
	if err != nil {
		return changeAnswer{}, err
	}
	q.server.metrics.written.WithLabelValues(c.Name(), "added").Add(float64(receipt.Stored.Documents))
	text := fmt.Sprintf("%s stored in index %s", receipt.Stored, c.Name())
	if receipt.Replaced > 0 {
		text += fmt.Sprintf(", %d replaced", receipt.Replaced)
	}
	text += evictedText(receipt.Evicted)
	if receipt.Empty > 0 {
		text += fmt.Sprintf(", %d without vectors", receipt.Empty)
		q.server.log.LogAttrs(q.ctx, slog.LevelInfo, "documents have no vectors: searches for vectors do not find them",
			slog.String("request_id", q.w.Header().Get(headerRequestID)), slog.String("path", q.URL.Path), slog.Int("documents", receipt.Empty))
	}
	if q.truncation.Truncated > 0 {
		text += fmt.Sprintf(", %s cut: %s not found", plural(q.truncation.Truncated, "text"), plural(int(q.truncation.Dropped), "token"))
	}
	out := updatedOut{
		receipt.Numbers, p.documentIDs(receipt.IDs), receipt.Stored.Documents, receipt.Stored.Passages,
		receipt.Replaced, receipt.Generation, receipt.Evicted, receipt.Empty, q.truncation, text,
	}
	return changeAnswer{text, out}, nil
}

// evictedText is the end of a sentence about an update.
func evictedText(documents int) string {
	switch documents {
	case 0:
		return ""
	case 1:
		return "; the oldest document was deleted"
	}
	return fmt.Sprintf("; the %d oldest documents were deleted", documents)
}

// declaredCollection is the collection of the path; that it is not declared has a code of its
// own where documents are added.
func (q *request) declaredCollection() (collection.Collection, error) {
	c, err := q.collection()
	if errors.Is(err, collection.ErrUnknown) {
		return nil, problem(CodeIndexNotDeclared, "index not found: declare it first (POST /indices)")
	}
	return c, err
}

// addMetadata puts metadata beside documents, and takes the _id of each from it.
func addMetadata(docs []collection.DocumentInput, metadata []json.RawMessage) error {
	switch {
	case len(docs) == 0:
		return badRequest("documents is empty")
	case len(metadata) == 0:
		return nil
	}
	if err := checkMetadataCount(len(docs), metadata); err != nil {
		return err
	}
	for i, m := range metadata {
		docs[i].Metadata = m
		id, there := collection.IDOf(m)
		if !there {
			continue // what is wrong with it the store says
		}
		var err error
		if docs[i].ID, err = vectors.ParseID(id); err != nil {
			return badRequest("document %d: _id is %.100s: %w", i, id, err).withPlace(Where{Document: &i})
		}
	}
	return nil
}

// checkCanAdd refuses what no documents can be added to, before they are received.
func (q *request) checkCanAdd(encodes bool) error {
	if _, err := q.declaredCollection(); err != nil {
		return err
	}
	if encodes {
		if _, none := q.server.encoder(); none != nil {
			return none
		}
	}
	return nil
}

func updateTexts(q *request, in *updateTextIn) (changeAnswer, error) {
	if err := in.validate(); err != nil {
		return changeAnswer{}, err
	}
	if err := in.checkDocuments(); err != nil {
		return changeAnswer{}, err
	}
	if in.Window > 0 {
		p, err := q.splitTexts(in)
		if err != nil {
			return changeAnswer{}, err
		}
		done, err := q.storeTexts(in, p.texts, p.metadata, p)
		return done, p.relocateError(err)
	}
	metadata, err := metadataWithTexts(in)
	if err != nil {
		return changeAnswer{}, err
	}
	return q.storeTexts(in, in.Documents, metadata, nil)
}

// checkDocuments refuses documents that cannot be stored, before any is encoded.
func (in *updateTextIn) checkDocuments() error {
	if in.Keep && (in.TextField != "" || in.Window > 0) {
		return badRequest("keep_metadata is for documents that have no metadata: text_field and window give them some")
	}
	docs := make([]collection.DocumentInput, len(in.Documents))
	if err := addMetadata(docs, in.Metadata); err != nil {
		return err
	}
	for i, text := range in.Documents {
		if err := vectors.CheckDocument(vectors.Draft{ID: docs[i].ID, Text: text, Split: in.Window > 0}); err != nil {
			return &collection.DocumentError{
				Document: i,
				ID:       docs[i].ID,
				Token:    -1,
				Err:      err,
			}
		}
	}
	_, err := collection.CheckDocuments(docs, 0)
	return err
}

func (q *request) storeTexts(in *updateTextIn, texts []string, metadata []json.RawMessage, p *splitDocuments) (changeAnswer, error) {
	matrices, err := q.encode(encode.Document, inList("documents"), texts, in.PoolFactor)
	if err != nil {
		return changeAnswer{}, err
	}
	return q.storeDocuments(matrices, metadata, q.server.documentModel(), p, in.Keep)
}

// metadataWithTexts puts texts into the metadata where that is asked for.
func metadataWithTexts(in *updateTextIn) ([]json.RawMessage, error) {
	if in.TextField == "" {
		return in.Metadata, nil
	}
	if err := checkMetadataCount(len(in.Documents), in.Metadata); err != nil {
		return nil, err
	}
	metadata := make([]json.RawMessage, len(in.Documents))
	for i, text := range in.Documents {
		fields, err := textMetadata(in, i)
		if err != nil {
			return nil, err
		}
		if _, there := fields[in.TextField]; !there {
			value, err := jsontext.Plain(text)
			if err != nil {
				return nil, err
			}
			fields[in.TextField] = value
		}
		if metadata[i], err = jsontext.Plain(fields); err != nil {
			return nil, err
		}
	}
	return metadata, nil
}

func checkMetadataCount(documents int, metadata []json.RawMessage) error {
	if len(metadata) != 0 && len(metadata) != documents {
		return badRequest("there are %s and %d metadata: want one for each", plural(documents, "document"), len(metadata))
	}
	return nil
}

// textMetadata is the metadata of a text; none are no fields.
func textMetadata(in *updateTextIn, i int) (fields map[string]json.RawMessage, err error) {
	if len(in.Metadata) > 0 && json.Unmarshal(in.Metadata[i], &fields) != nil {
		return nil, badRequest("document %d: the metadata is no object", i).withPlace(Where{Document: &i})
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	return fields, nil
}

func deleteDocuments(q *request, in *deleteIn) (changeAnswer, error) {
	if in.IDs == nil && in.DocumentIDs == nil && in.Condition == "" {
		return changeAnswer{}, badRequest("a condition is needed, or document_ids, or ids")
	}
	c, err := q.collection()
	if err != nil {
		return changeAnswer{}, err
	}
	chosen, err := q.selectionFromCondition(in.Condition, in.Parameters)
	if err != nil {
		return changeAnswer{}, err
	}
	chosen.IDs = in.IDs
	if in.DocumentIDs != nil {
		chosen.Numbers = validNumbers(in.DocumentIDs)
	}
	ctx, end := q.startStage("write")
	n, err := c.Delete(ctx, chosen)
	if errors.Is(err, condition.ErrUnknownField) {
		// Clients delete what they are about to add. Where all documents are gone, in all
		// shards of a cluster, no field is known.
		if st, lost := c.Stats(ctx); lost == nil && st.Documents == 0 {
			err = nil
		}
	}
	end(err)
	if err != nil {
		return changeAnswer{}, err
	}
	text := fmt.Sprintf("%s deleted from index %s", n, c.Name())
	q.server.metrics.written.WithLabelValues(c.Name(), "deleted").Add(float64(n.Documents))
	return changeAnswer{text, removedOut{n.Documents, n.Passages, text}}, nil
}

// plural is a number and what there is of it.
func plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
