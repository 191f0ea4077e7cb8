package flags

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

// Documents are the flags that name the files of documents. Each may be given
// several times, one collection after another.
type Documents struct {
	Vectors                       []string
	lengths, masks, ids, payloads []string
}

// Register adds the flags of documents to be indexed.
func (d *Documents) Register(f *pflag.FlagSet) {
	f.StringArrayVar(&d.Vectors, "vectors", nil, "`FILE` of token vectors: .npy [tokens, dim] or [docs, rows, dim], .npz, .safetensors, .jsonl; may be repeated")
	f.StringArrayVar(&d.lengths, "lengths", nil, "`FILE` with the number of tokens of each document: .npy, .json or text")
	f.StringArrayVar(&d.masks, "mask", nil, "`FILE` [docs, rows] of booleans or integers, for padded vectors: 0 is padding")
	f.StringArrayVar(&d.ids, "ids", nil, "`FILE` with one id a line (default: row numbers from 0)")
	f.StringArrayVar(&d.payloads, "payload", nil, "JSON-lines `FILE` with what to store beside the documents, matched by _id or id")
}

// RegisterOriginals adds the flags of the documents that an index was made from.
func (d *Documents) RegisterOriginals(f *pflag.FlagSet) {
	f.StringArrayVar(&d.Vectors, "vectors", nil, "`FILE` of the vectors that the index was made from: measures compression too; may be repeated")
	f.StringArrayVar(&d.lengths, "lengths", nil, "`FILE` with the number of tokens of each document")
	f.StringArrayVar(&d.masks, "mask", nil, "`FILE` [docs, rows] of booleans or integers, for padded vectors: 0 is padding")
	f.StringArrayVar(&d.ids, "ids", nil, "`FILE` with one document id a line (default: row numbers from 0)")
}

// Open opens the collections, one after another.
func (d *Documents) Open(ctx context.Context) (_ vectors.Source, err error) {
	n := len(d.Vectors)
	if n == 0 {
		return nil, Usagef("--vectors is missing")
	}
	for _, part := range []struct {
		flag  string
		files *[]string
	}{{"lengths", &d.lengths}, {"mask", &d.masks}, {"ids", &d.ids}, {"payload", &d.payloads}} {
		switch len(*part.files) {
		case n:
		case 0:
			*part.files = make([]string, n)
		default:
			return nil, Usagef("%d --%s for %d --vectors: give one for each, '' for one that has none", len(*part.files), part.flag, n)
		}
	}
	var sources []vectors.Source
	defer func() {
		if err != nil {
			for _, s := range sources {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	for i := range n {
		s, err := vectors.Open(ctx, vectors.Files{
			Vectors: d.Vectors[i], Lengths: d.lengths[i], Mask: d.masks[i], IDs: d.ids[i], Payload: d.payloads[i],
		})
		if err != nil {
			return nil, withTextHint(d.Vectors[i], err)
		}
		sources = append(sources, s)
	}
	if n == 1 {
		return sources[0], nil
	}
	return vectors.Concat(sources...)
}

// Named puts the files before an error that is about all of them.
func (d *Documents) Named(err error) error {
	if errors.Is(err, index.ErrNoDocuments) || errors.Is(err, index.ErrNoTokens) {
		return fmt.Errorf("%s: %w", strings.Join(d.Vectors, ", "), err)
	}
	return err
}

// Queries are the flags that name the files of queries.
type Queries struct {
	Vectors            string
	lengths, mask, ids string
}

// Register adds the flags.
func (q *Queries) Register(f *pflag.FlagSet) {
	f.StringVar(&q.Vectors, "queries", "", "`FILE` of query token vectors: .npy [tokens, dim] or [queries, rows, dim], .npz, .safetensors, .jsonl")
	f.StringVar(&q.lengths, "query-lengths", "", "`FILE` with the number of tokens of each query: .npy, .json or text")
	f.StringVar(&q.mask, "query-mask", "", "`FILE` [queries, rows] of booleans or integers, for padded vectors: 0 is padding")
	f.StringVar(&q.ids, "query-ids", "", "`FILE` with one query id a line (default: row numbers from 0)")
}

// Open opens the queries.
func (q *Queries) Open(ctx context.Context) (vectors.Source, error) {
	if q.Vectors == "" {
		return nil, Usagef("--queries is missing")
	}
	s, err := vectors.Open(ctx, vectors.Files{Vectors: q.Vectors, Lengths: q.lengths, Mask: q.mask, IDs: q.ids})
	return s, withTextHint(q.Vectors, err)
}

// withTextHint tells those who hand in texts what is wanted.
func withTextHint(path string, err error) error {
	ext := strings.ToLower(filepath.Ext(path))
	if errors.Is(err, vectors.ErrFormat) && (ext == ".jsonl" || ext == ".ndjson") {
		return fmt.Errorf(`%w; each line needs its token vectors, as in {"_id": "a", "vectors": [[0.1, …], …]}: text is not encoded here`, err)
	}
	return err
}
