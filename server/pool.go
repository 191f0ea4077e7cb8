package server

import (
	"encoding/json"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// poolIn says how the vectors of documents are pooled before they are stored.
type poolIn struct {
	Factor *int        `json:"pool_factor,omitempty" doc:"one vector for so many similar ones"`
	By     pool.Method `json:"pool_by,omitempty" enum:"similar,tiles,neighbours"`
}

// maxPoolFactor is the largest pool_factor. Even then a document keeps one vector.
const maxPoolFactor = 1 << 20

// checkPoolFactor returns an error if a pool_factor is out of range.
func checkPoolFactor(n int) error {
	if n < 1 || n > maxPoolFactor {
		return badRequest("pool_factor is %d; want 1 to %d", n, maxPoolFactor)
	}
	return nil
}

// poolDocuments pools the vectors of documents in place, and returns their metadata, with the grids of the
// pooled pages.
func (q *request) poolDocuments(matrices []Matrix, in *updateIn) ([]json.RawMessage, error) {
	// How to pool.
	factor := 1
	if in.Factor != nil {
		factor = *in.Factor
	}
	if err := checkPoolFactor(factor); err != nil {
		return nil, err
	}
	if err := in.By.Check(factor); err != nil {
		return nil, badRequest("pool_by: %w", err)
	}
	if factor == 1 {
		return in.Metadata, nil
	}

	// Check the vectors as they were sent: a mean would hide a wrong one.
	docs := make([]collection.DocumentInput, len(matrices))
	for i, m := range matrices {
		docs[i].Vectors, docs[i].Dim = m.Data, m.Dim
	}
	if err := addMetadata(docs, in.Metadata); err != nil {
		return nil, err
	}
	if _, err := collection.CheckDocuments(docs, 0); err != nil {
		return nil, err
	}

	// Reserve the memory of the pooled vectors: at most half as many, of 4 bytes each.
	var pooledBytes int64
	for _, m := range matrices {
		pooledBytes += int64(len(m.Data)) * 4 / 2
	}
	if err := q.memory.reserve(q.ctx, pooledBytes); err != nil {
		return nil, err
	}

	// Pool.
	metadata := slices.Clone(in.Metadata)
	var p pool.Pooler
	for i := range matrices {
		m := &matrices[i]
		if err := q.ctx.Err(); err != nil {
			return nil, err
		}
		if m.Tokens == 0 {
			continue
		}
		page, err := vectors.PageFromPayload(docs[i].Metadata)
		if err == nil && in.By.NeedsPage() {
			err = in.By.CheckPage(page, m.Tokens)
		}
		if err != nil {
			return nil, documentProblem(i, err)
		}
		codec.Normalize(m.Data, m.Dim)
		if in.By.NeedsPage() {
			m.Data = p.Page(nil, m.Data, m.Dim, factor, in.By, page.Grid)
		} else {
			m.Data = p.Pool(nil, m.Data, m.Dim, factor)
		}
		m.Tokens = len(m.Data) / m.Dim
		if page != nil && page.Grid != nil {
			pooled, _ := in.By.Grid(page.Grid, factor)
			if metadata[i], err = replaceGrid(metadata[i], pooled); err != nil {
				return nil, documentProblem(i, err)
			}
		}
	}
	return metadata, nil
}

// replaceGrid returns metadata with another grid. A nil grid is removed.
func replaceGrid(metadata json.RawMessage, grid *vectors.Grid) (json.RawMessage, error) {
	out := []byte{'{'}
	err := jsontext.Members(metadata, func(key string, value json.RawMessage) (err error) {
		if key == vectors.GridField {
			if grid == nil {
				return nil
			}
			if value, err = json.Marshal(grid); err != nil {
				return err
			}
		}
		out = jsontext.AppendMember(out, key, value)
		return nil
	})
	return append(out, '}'), err
}
