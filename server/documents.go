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

// documentIn has the vectors of a document.
type documentIn struct{ vectorsJSON }

// updateIn adds documents.
type updateIn struct {
	Documents []documentIn      `json:"documents"`
	Metadata  []json.RawMessage `json:"metadata,omitempty"`
	Model     *modelIn          `json:"model,omitempty"`
	poolIn
	keepIn
}

// modelIn names the model that computed vectors.
type modelIn struct {
	Name        string `json:"name,omitempty" doc:"of the model"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// toModel returns the model, or nil if the request names none.
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

// keepIn has the choice to keep the metadata of a document that is replaced.
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

// updatedOut is the answer to an update if the client prefers return=representation.
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
	waitParam = param{"wait", "query", "is always true here: the answer comes when the documents are on disk and " +
		"can be searched", object{"type": "boolean"}}
	preferParam = param{headerPrefer, "header", "return=representation: answer 200 with an object; " +
		"handling=lenient: fields of the body that are not known are no errors; " + preferNullDoc,
		object{"type": "string"}}
)

func documentRoutes() []route {
	const tag = "documents"
	const written = "The answer comes when the documents are on disk and can be searched. A document that is " +
		"refused takes no other request with it, and nothing of its own request is stored."
	commonCodes := []Code{CodeIndexNotDeclared, CodeDimension, CodeOutcomeUnknown}
	changeRoute := func(r route) route {
		r.tag, r.permission, r.group, r.status = tag, Write, groupWrite, http.StatusAccepted
		if r.representation == nil {
			r.representation = updatedOut{}
		}
		if r.method == "POST" {
			needsModel := r.codes != nil // only the route for texts has codes of its own
			r.checkEarly = func(q *request) error { return q.checkCanAdd(needsModel) }
		}
		r.params = append(r.params, waitParam, preferParam)
		r.codes = append(r.codes, commonCodes...)
		return r
	}
	return []route{
		typedRoute(changeRoute(route{
			method:      "POST",
			pattern:     "/indices/{name}/update",
			operationID: "update_index",
			summary:     "Add documents, given as vectors",
			doc:         written,
			example: `{"documents": [{"embeddings": [[1, 0], [0.6, 0.8]]}], "metadata": [{"_id": "cat", ` +
				`"title": "About cats"}]}`,
		}), updateVectors),
		typedRoute(changeRoute(route{
			method:      "POST",
			pattern:     "/indices/{name}/update_with_encoding",
			operationID: "update_index_with_encoding",
			summary:     "Add documents, given as texts",
			doc: written + " A text that is longer than the model reads is cut, and the answer says so; " +
				"with window long texts are stored as passages, which share the metadata of their text.",
			codes: append([]Code{CodeNotSupported}, modelCodes...),
			example: `{"documents": ["Cats sleep for most of the day."], "metadata": [{"_id": "cat"}], ` +
				`"text_field": "text"}`,
		}), updateTexts),
		typedRoute(changeRoute(route{
			method:      "POST",
			pattern:     "/indices/{name}/documents",
			operationID: "add_documents",
			summary:     "The same as update_index; older clients call it",
			example:     `{"documents": [{"embeddings": [[1, 0]]}]}`,
		}), updateVectors),
		typedRoute(changeRoute(route{
			method:         "DELETE",
			pattern:        "/indices/{name}/documents",
			operationID:    "delete_documents",
			summary:        "Delete documents by a condition, or by id",
			representation: removedOut{},
			doc: "The answer comes when they are gone. A condition over a field that no document has " +
				"deletes nothing.",
			example: `{"condition": "year < ?", "parameters": [2020]}`,
		}), deleteDocuments),
	}
}

// changeAnswer is the answer to a change: 202 with a sentence or, if the client prefers
// return=representation, 200 with an object.
type changeAnswer struct {
	message        string
	representation any
}

// schema implements schemer.
func (changeAnswer) schema() object { return object{"type": "string"} }

// writeAnswer implements customAnswer.
func (c changeAnswer) writeAnswer(q *request) error {
	if q.prefers(preferRepresentation) {
		q.w.Header().Set("Preference-Applied", preferRepresentation)
		return q.answerJSON(http.StatusOK, c.representation)
	}
	return q.answerJSON(http.StatusAccepted, c.message)
}

// updateVectors answers POST /indices/{name}/update.
func updateVectors(q *request, in *updateIn) (changeAnswer, error) {
	matrices := make([]Matrix, len(in.Documents))
	for i := range in.Documents {
		var err error
		if matrices[i], err = in.Documents[i].toDocument(); err != nil {
			return changeAnswer{}, documentProblem(i, err)
		}
	}
	model, err := in.Model.toModel()
	if err != nil {
		return changeAnswer{}, badRequest("%w", err)
	}
	metadata, err := q.poolDocuments(matrices, in)
	if err != nil {
		return changeAnswer{}, err
	}
	return q.storeDocuments(newDocuments{matrices: matrices, metadata: metadata, model: model, keepMetadata: in.Keep})
}

// documentProblem is the answer to a request whose document i is wrong.
func documentProblem(i int, err error) *Problem {
	w := Where{Document: &i}
	var m *matrixError
	if errors.As(err, &m) && m.token >= 0 {
		w.Token = &m.token
	}
	return badRequest("document %d: %w", i, err).withPlace(w)
}

// newDocuments are documents to store, each with one matrix.
type newDocuments struct {
	matrices     []Matrix
	metadata     []json.RawMessage // of each; empty if no document has metadata
	model        *storage.Model    // that computed the vectors, or nil if it is not known
	split        *splitDocuments   // says which of them are passages, or nil if all are whole documents
	keepMetadata bool
}

// storeDocuments adds documents to the index of the path, and replaces those with the same _id.
func (q *request) storeDocuments(in newDocuments) (changeAnswer, error) {
	docs := make([]collection.DocumentInput, len(in.matrices))
	for i, m := range in.matrices {
		docs[i].Vectors, docs[i].Dim, docs[i].KeepMetadata = m.Data, m.Dim, in.keepMetadata
	}
	c, err := q.declaredCollection()
	if err != nil {
		return changeAnswer{}, err
	}
	if err := addMetadata(docs, in.metadata); err != nil {
		return changeAnswer{}, err
	}
	ctx, end := q.startStage("write")
	receipt, err := c.Update(ctx, docs, collection.UpdateOptions{Replace: true, Model: in.model})
	end(err)
	if err != nil {
		return changeAnswer{}, err
	}

	// Describe the outcome.
	q.server.metrics.written.WithLabelValues(c.Name(), "added").Add(float64(receipt.Stored.Documents))
	text := fmt.Sprintf("%s stored in index %s", receipt.Stored, c.Name())
	if receipt.Replaced > 0 {
		text += fmt.Sprintf(", %d replaced", receipt.Replaced)
	}
	text += evictedText(receipt.Evicted)
	if receipt.Empty > 0 {
		text += fmt.Sprintf(", %d without vectors", receipt.Empty)
		q.server.log.LogAttrs(q.ctx, slog.LevelInfo, "documents have no vectors: searches for vectors do not find them",
			slog.String("request_id", q.w.Header().Get(headerRequestID)), slog.String("path", q.URL.Path),
			slog.Int("documents", receipt.Empty))
	}
	if q.truncation.Truncated > 0 {
		text += fmt.Sprintf(", %s cut: %s not found", plural(q.truncation.Truncated, "text"),
			plural(int(q.truncation.Dropped), "token"))
	}
	out := updatedOut{
		DocumentIDs: receipt.Numbers,
		IDs:         in.split.documentIDs(receipt.IDs),
		Documents:   receipt.Stored.Documents,
		Passages:    receipt.Stored.Passages,
		Replaced:    receipt.Replaced,
		Generation:  receipt.Generation,
		Evicted:     receipt.Evicted,
		Empty:       receipt.Empty,
		cutOut:      q.truncation,
		Message:     text,
	}
	return changeAnswer{text, out}, nil
}

// evictedText returns the end of a sentence about an update that has evicted documents.
func evictedText(documents int) string {
	switch documents {
	case 0:
		return ""
	case 1:
		return "; the oldest document was deleted"
	}
	return fmt.Sprintf("; the %d oldest documents were deleted", documents)
}

// declaredCollection returns the collection of the path. If it is not declared, the error has the code
// for adding documents, which is not the one of other routes.
func (q *request) declaredCollection() (collection.Collection, error) {
	c, err := q.collection()
	if errors.Is(err, collection.ErrUnknown) {
		return nil, problem(CodeIndexNotDeclared, "index not found: declare it first (POST /indices)")
	}
	return c, err
}

// addMetadata sets the metadata of documents, and their ids from the field _id in it.
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
		id, found := collection.MetadataID(m)
		if !found {
			continue // the collection checks metadata itself
		}
		var err error
		if docs[i].ID, err = vectors.ParseID(id); err != nil {
			return badRequest("document %d: _id is %.100s: %w", i, id, err).withPlace(Where{Document: &i})
		}
	}
	return nil
}

// checkCanAdd returns an error if documents cannot be added at all, before they are received: the index is
// not declared, or the model that they need is missing.
func (q *request) checkCanAdd(needsModel bool) error {
	if _, err := q.declaredCollection(); err != nil {
		return err
	}
	if needsModel {
		if _, missing := q.server.encoder(); missing != nil {
			return missing
		}
	}
	return nil
}

// updateTexts answers POST /indices/{name}/update_with_encoding.
func updateTexts(q *request, in *updateTextIn) (changeAnswer, error) {
	if err := in.validate(); err != nil {
		return changeAnswer{}, err
	}
	if err := in.checkDocuments(); err != nil {
		return changeAnswer{}, err
	}
	if in.Window > 0 {
		split, err := q.splitTexts(in)
		if err != nil {
			return changeAnswer{}, err
		}
		answer, err := q.storeTexts(in, split.texts, split.metadata, split)
		return answer, split.relocateError(err)
	}
	metadata, err := metadataWithTexts(in)
	if err != nil {
		return changeAnswer{}, err
	}
	return q.storeTexts(in, in.Documents, metadata, nil)
}

// checkDocuments returns an error if a document cannot be stored, before any is encoded.
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

// storeTexts encodes texts and stores them. split says which of them are passages; it is nil if all are whole
// documents.
func (q *request) storeTexts(
	in *updateTextIn, texts []string, metadata []json.RawMessage, split *splitDocuments,
) (changeAnswer, error) {
	matrices, err := q.encode(encode.Document, inList("documents"), texts, in.PoolFactor)
	if err != nil {
		return changeAnswer{}, err
	}
	return q.storeDocuments(newDocuments{
		matrices:     matrices,
		metadata:     metadata,
		model:        q.server.documentModel(),
		split:        split,
		keepMetadata: in.Keep,
	})
}

// metadataWithTexts returns the metadata of the request, with each text in the field text_field if the
// request names one and the metadata does not have it yet.
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
		if _, found := fields[in.TextField]; !found {
			value, err := jsontext.MarshalUnescaped(text)
			if err != nil {
				return nil, err
			}
			fields[in.TextField] = value
		}
		if metadata[i], err = jsontext.MarshalUnescaped(fields); err != nil {
			return nil, err
		}
	}
	return metadata, nil
}

// checkMetadataCount returns an error unless metadata is empty, or has an element for each document.
func checkMetadataCount(documents int, metadata []json.RawMessage) error {
	if len(metadata) != 0 && len(metadata) != documents {
		return badRequest("there are %s and %d metadata: want one for each", plural(documents, "document"),
			len(metadata))
	}
	return nil
}

// textMetadata returns the fields of the metadata of text i; the map is empty if it has none.
func textMetadata(in *updateTextIn, i int) (fields map[string]json.RawMessage, err error) {
	if len(in.Metadata) > 0 && json.Unmarshal(in.Metadata[i], &fields) != nil {
		return nil, badRequest("document %d: the metadata is no object", i).withPlace(Where{Document: &i})
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	return fields, nil
}

// deleteDocuments answers DELETE /indices/{name}/documents.
func deleteDocuments(q *request, in *deleteIn) (changeAnswer, error) {
	if in.IDs == nil && in.DocumentIDs == nil && in.Condition == "" {
		return changeAnswer{}, badRequest("a condition is needed, or document_ids, or ids")
	}
	c, err := q.collection()
	if err != nil {
		return changeAnswer{}, err
	}
	selection, err := q.selectionFromCondition(in.Condition, in.Parameters)
	if err != nil {
		return changeAnswer{}, err
	}
	selection.IDs = in.IDs
	if in.DocumentIDs != nil {
		selection.Numbers = validNumbers(in.DocumentIDs)
	}
	ctx, end := q.startStage("write")
	deleted, err := c.Delete(ctx, selection)
	if errors.Is(err, condition.ErrUnknownField) {
		// Clients delete documents before they add them again. An index that is empty, in all shards of a
		// cluster, has no fields: then an unknown field is not an error.
		if st, statsErr := c.Stats(ctx); statsErr == nil && st.Documents == 0 {
			err = nil
		}
	}
	end(err)
	if err != nil {
		return changeAnswer{}, err
	}
	text := fmt.Sprintf("%s deleted from index %s", deleted, c.Name())
	q.server.metrics.written.WithLabelValues(c.Name(), "deleted").Add(float64(deleted.Documents))
	return changeAnswer{text, removedOut{deleted.Documents, deleted.Passages, text}}, nil
}

// plural returns a number with a noun, which gets an s if the number is not 1.
func plural(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
