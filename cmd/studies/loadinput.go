package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

// spareDocuments is the number of documents that are kept in memory and added again and again.
const spareDocuments = 500

// loadInput is the collection in the folder VECTORS.
type loadInput struct {
	src     vectors.Source
	queries *matrix
	// docs are the first documents.
	docs *matrix
}

// openLoad opens the collection in a folder.
func openLoad(ctx context.Context, dir string) (*loadInput, error) {
	queries, err := readQueries(ctx, dir, 0)
	if err != nil {
		return nil, err
	}
	src, err := openDocs(ctx, dir)
	if err != nil {
		return nil, err
	}
	docs, err := readMatrix(ctx, src, spareDocuments)
	if err == nil && (len(queries.tokens) == 0 || len(docs.tokens) == 0 || queries.dim != docs.dim) {
		err = fmt.Errorf("%s: want documents and queries of one dimension", dir)
	}
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	queries.dropEmpty() // a service refuses them
	docs.dropEmpty()
	return &loadInput{src, queries, docs}, nil
}

// dropEmpty removes rows without tokens, which a service does not accept.
func (m *matrix) dropEmpty() {
	kept := 0
	for i, id := range m.ids {
		if end := m.offsets[i+1]; end > m.offsets[kept] {
			m.ids[kept], m.offsets[kept+1] = id, end
			kept++
		}
	}
	m.ids, m.offsets = m.ids[:kept], m.offsets[:kept+1]
}

// loadName is the name of the index that is searched.
const loadName = "load"

// fillCollection adds all documents to the collection in one update. An existing collection is
// used, after documents that an interrupted run has added are deleted.
func (in *loadInput) fillCollection(ctx context.Context, s *store.Store) (*store.Collection, error) {
	wantDocuments := uint64(0)
	for i := range in.src.Len() {
		if in.src.Rows(i) > 0 {
			wantDocuments++
		}
	}
	if c, err := s.Get(loadName); err == nil {
		if err := deleteAdded(ctx, c); err != nil {
			return nil, err
		}
		st, err := c.Stats(ctx)
		if err == nil && (st.Documents != wantDocuments || st.Dim != in.src.Dim()) {
			err = fmt.Errorf("%s has %d documents of dimension %d; want %d of %d: it is of other vectors", s.Dir(),
				st.Documents, st.Dim, wantDocuments, in.src.Dim())
		}
		return c, err
	}
	c, err := s.Create(ctx, loadName, collection.Config{})
	if err != nil {
		return nil, err
	}
	docs, err := readDocuments(ctx, in.src)
	if err != nil {
		return nil, err
	}
	if _, err := c.Update(ctx, docs, collection.UpdateOptions{}); err != nil {
		return nil, err
	}
	return c, awaitTraining(ctx, c)
}

// deleteAdded deletes the documents that a writer has added, and waits for the end of a training.
func deleteAdded(ctx context.Context, c *store.Collection) error {
	added, err := condition.Parse("added = true")
	if err != nil {
		return err
	}
	where, err := added.Bind()
	if err != nil {
		return err
	}
	_, err = c.Delete(ctx, collection.Selection{Where: where})
	if err != nil && !errors.Is(err, condition.ErrUnknownField) {
		return err
	}
	return awaitTraining(ctx, c)
}

// matrixJSON is a matrix in a request.
type matrixJSON struct {
	Base64 string `json:"embeddings_b64"`
	Shape  [2]int `json:"shape"`
}

// encodedRow returns a row for a request; i wraps around at the number of rows.
func (m *matrix) encodedRow(i int) matrixJSON {
	row := m.row(i % len(m.ids))
	b := make([]byte, 0, 4*len(row))
	for _, x := range row {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return matrixJSON{base64.StdEncoding.EncodeToString(b), [2]int{len(row) / m.dim, m.dim}}
}

// searchJSON returns the body of a search for n queries from number i on.
func (in *loadInput) searchJSON(i, n, k int) ([]byte, error) {
	var body struct {
		Queries []matrixJSON   `json:"queries"`
		Params  map[string]int `json:"params"`
	}
	for j := range n {
		body.Queries = append(body.Queries, in.queries.encodedRow(i+j))
	}
	body.Params = map[string]int{"top_k": k}
	return json.Marshal(body)
}

// updateJSON returns the body of an update with n documents from number i on.
func (in *loadInput) updateJSON(i, n int) ([]byte, error) {
	var body struct {
		Documents []matrixJSON      `json:"documents"`
		Metadata  []map[string]bool `json:"metadata"`
	}
	for j := range n {
		body.Documents = append(body.Documents, in.docs.encodedRow(i+j))
		body.Metadata = append(body.Metadata, map[string]bool{"added": true})
	}
	return json.Marshal(body)
}

// awaitTraining waits until no training runs.
func awaitTraining(ctx context.Context, c *store.Collection) error {
	for {
		st, err := c.Stats(ctx)
		if err != nil || !st.Growth.Training {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readDocuments reads the documents for a collection, which accepts no empty ones.
func readDocuments(ctx context.Context, src vectors.Source) (docs []collection.DocumentInput, err error) {
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return nil, err
		}
		if len(d.Tokens) > 0 {
			docs = append(docs, collection.DocumentInput{ID: d.ID, Dim: src.Dim(), Vectors: slices.Clone(d.Tokens)})
		}
	}
	return docs, nil
}
