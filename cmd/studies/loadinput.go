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

// spareDocuments is how many documents are kept in memory, to be added again and again.
const spareDocuments = 500

// loadInput is the collection in VECTORS.
type loadInput struct {
	src     vectors.Source
	queries *matrix
	docs    *matrix // the first ones
}

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
	queries.dropEmpty() // a service takes none
	docs.dropEmpty()
	return &loadInput{src, queries, docs}, nil
}

// dropEmpty leaves rows without tokens out.
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

// loadName is the name of what is searched.
const loadName = "load"

// fillCollection makes the collection at once. One that is there is used, without what a run that
// was interrupted has added to it.
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
	c, err := s.Declare(ctx, loadName, collection.Config{})
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

// deleteAdded takes away what a writer has added, and waits for a training.
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

// matrixJSON is vectors on the wire.
type matrixJSON struct {
	Base64 string `json:"embeddings_b64"`
	Shape  [2]int `json:"shape"`
}

// encodedRow is row number i, counted round and round.
func (m *matrix) encodedRow(i int) matrixJSON {
	row := m.row(i % len(m.ids))
	b := make([]byte, 0, 4*len(row))
	for _, x := range row {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return matrixJSON{base64.StdEncoding.EncodeToString(b), [2]int{len(row) / m.dim, m.dim}}
}

// searchJSON is the body of a search for some queries from number i on.
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

// updateJSON is the body of an update by some documents from number i on.
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

// readDocuments reads what is for a collection, which takes no empty documents.
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
