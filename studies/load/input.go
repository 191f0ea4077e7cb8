package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/server/store"
	"github.com/plaid-ir/plaid/vectors"
)

// spare is how many documents are kept in memory, to be added again and again.
const spare = 500

// input is the collection in VECTORS.
type input struct {
	src     vectors.Source
	dim     int
	queries [][]float32 // [tokens, dim], of unit length
	docs    [][]float32 // the first ones
}

func open(ctx context.Context, dir string) (in *input, err error) {
	docs, queries, err := beir.Files(dir)
	if err != nil {
		return nil, err
	}
	in = &input{}
	q, err := vectors.Open(ctx, queries)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	for d, err := range q.Docs(ctx, 0, q.Len()) {
		if err != nil {
			return nil, err
		}
		if len(d.Tokens) > 0 {
			in.queries = append(in.queries, unit(d.Tokens, q.Dim()))
		}
	}
	if in.src, err = vectors.Open(ctx, docs); err != nil {
		return nil, err
	}
	in.dim = in.src.Dim()
	for d, err := range in.src.Docs(ctx, 0, min(spare, in.src.Len())) {
		if err != nil {
			return nil, errors.Join(err, in.close())
		}
		if len(d.Tokens) > 0 { // a collection takes no empty ones
			in.docs = append(in.docs, slices.Clone(d.Tokens))
		}
	}
	if len(in.queries) == 0 || len(in.docs) == 0 || q.Dim() != in.dim {
		return nil, errors.Join(fmt.Errorf("%s: want documents and queries of one dimension", dir), in.close())
	}
	return in, nil
}

func (in *input) close() error { return in.src.Close() }

// unit are rows of unit length.
func unit(rows []float32, dim int) []float32 {
	out := slices.Clone(rows)
	for row := range slices.Chunk(out, dim) {
		sum := 0.0
		for _, x := range row {
			sum += float64(x) * float64(x)
		}
		if sum > 0 {
			for i := range row {
				row[i] = float32(float64(row[i]) / math.Sqrt(sum))
			}
		}
	}
	return out
}

// collection is the name of what is searched.
const collection = "load"

// baseID is the id of document number n of the collection, those without tokens not
// counted.
func baseID(n int) string { return fmt.Sprintf("doc-%d", n) }

// fill makes the collection at once. One that is there is used, without what a run that
// was interrupted has added to it.
func (in *input) fill(ctx context.Context, s *store.Store) (*store.Collection, error) {
	if c, err := s.Get(collection); err == nil {
		_, err := c.Delete(ctx, store.Selection{Condition: "added = ?", Params: []any{true}})
		if err != nil && !errors.Is(err, condition.ErrUnknownField) {
			return nil, err
		}
		st, err := c.Stats(ctx)
		if err != nil {
			return nil, err
		}
		want := uint64(0)
		for i := range in.src.Len() {
			want += uint64(min(in.src.Rows(i), 1))
		}
		if st.Documents != want || st.Dim != in.dim {
			return nil, fmt.Errorf("%s has %d documents of dimension %d; want %d of %d: it is of other vectors", s.Dir(), st.Documents, st.Dim, want, in.dim)
		}
		return c, nil
	}
	c, err := s.Declare(ctx, collection, store.Config{})
	if err != nil {
		return nil, err
	}
	var docs []store.Document
	for d, err := range in.src.Docs(ctx, 0, in.src.Len()) {
		if err != nil {
			return nil, err
		}
		if len(d.Tokens) > 0 {
			docs = append(docs, store.Document{
				ID: baseID(len(docs)), Dim: in.dim, Vectors: slices.Clone(d.Tokens), Metadata: json.RawMessage(`{"version": 0}`),
			})
		}
	}
	if _, err := c.Update(ctx, docs, store.UpdateOptions{}); err != nil {
		return nil, err
	}
	return c, settled(ctx, c)
}

// engineQueries are the queries as the engine takes them.
func (in *input) engineQueries() []search.Query {
	qs := make([]search.Query, len(in.queries))
	for i, q := range in.queries {
		qs[i] = search.Query{Vectors: q, Dim: in.dim}
	}
	return qs
}

// matrixJSON is vectors on the wire.
type matrixJSON struct {
	Base64 string `json:"embeddings_b64"`
	Shape  [2]int `json:"shape"`
}

func onWire(rows []float32, dim int) matrixJSON {
	return matrixJSON{base64.StdEncoding.EncodeToString(bytesOf(rows)), [2]int{len(rows) / dim, dim}}
}

func bytesOf(rows []float32) []byte {
	b := make([]byte, 0, 4*len(rows))
	for _, x := range rows {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// searchJSON is the body of a search for some queries from number i on.
func (in *input) searchJSON(i, n, k int) ([]byte, error) {
	var body struct {
		Queries []matrixJSON   `json:"queries"`
		Params  map[string]int `json:"params"`
	}
	for j := range n {
		body.Queries = append(body.Queries, onWire(in.queries[(i+j)%len(in.queries)], in.dim))
	}
	body.Params = map[string]int{"top_k": k}
	return json.Marshal(body)
}

// updateJSON is the body of an update.
func updateJSON(docs [][]float32, dim int, metadata []any) ([]byte, error) {
	var body struct {
		Documents []matrixJSON `json:"documents"`
		Metadata  []any        `json:"metadata"`
	}
	for _, d := range docs {
		body.Documents = append(body.Documents, onWire(d, dim))
	}
	body.Metadata = metadata
	return json.Marshal(body)
}

// floatsOf is the opposite of bytesOf.
func floatsOf(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// hitsOf reads the answer to a search for one query.
func hitsOf(body []byte) ([]hit, error) {
	var out struct {
		Results []struct {
			Scores   []float64
			Metadata []struct {
				ID      string `json:"_id"`
				Version int
			}
		}
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, err
	}
	if len(out.Results) != 1 || len(out.Results[0].Scores) != len(out.Results[0].Metadata) {
		return nil, errors.New("want the result of one query, with metadata")
	}
	var hits []hit
	for i, m := range out.Results[0].Metadata {
		hits = append(hits, hit{m.ID, m.Version, out.Results[0].Scores[i]})
	}
	return hits, nil
}

// gauge is a number without labels on the page of metrics: the first of some names that
// is there, or 0.
func gauge(page []byte, names ...string) int64 {
	for _, name := range names {
		for line := range bytes.Lines(page) {
			if rest, ok := strings.CutPrefix(string(line), name+" "); ok {
				x, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				return int64(x)
			}
		}
	}
	return 0
}
