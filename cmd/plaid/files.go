package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/vectors"
)

// documentFiles are the flags that name the files of documents. Each may be
// given several times, one collection after another.
type documentFiles struct {
	vectors, lengths, masks, ids, payloads []string
}

func (d *documentFiles) register(f *pflag.FlagSet) {
	f.StringArrayVar(&d.vectors, "vectors", nil, "`FILE` of token vectors: .npy [tokens, dim] or [docs, rows, dim], .npz, .safetensors, .jsonl; may be repeated")
	f.StringArrayVar(&d.lengths, "lengths", nil, "`FILE` with the number of tokens of each document: .npy, .json or text")
	f.StringArrayVar(&d.masks, "mask", nil, "`FILE` [docs, rows] of booleans or integers, for padded vectors: 0 is padding")
	f.StringArrayVar(&d.ids, "ids", nil, "`FILE` with one id a line (default: row numbers from 0)")
	f.StringArrayVar(&d.payloads, "payload", nil, "JSON-lines `FILE` with what to store beside the documents, matched by _id or id")
}

// open opens the collections, one after another.
func (d *documentFiles) open() (_ vectors.Source, err error) {
	n := len(d.vectors)
	if n == 0 {
		return nil, usagef("--vectors is missing")
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
			return nil, usagef("%d --%s for %d --vectors: give one for each, '' for one that has none", len(*part.files), part.flag, n)
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
		s, err := vectors.Open(vectors.Files{
			Vectors: d.vectors[i], Lengths: d.lengths[i], Mask: d.masks[i], IDs: d.ids[i], Payload: d.payloads[i],
		})
		if err != nil {
			return nil, withTextHint(d.vectors[i], err)
		}
		sources = append(sources, s)
	}
	if n == 1 {
		return sources[0], nil
	}
	return vectors.Concat(sources...)
}

// queryFiles are the flags that name the files of queries.
type queryFiles struct{ vectors, lengths, mask, ids string }

func (q *queryFiles) register(f *pflag.FlagSet) {
	f.StringVar(&q.vectors, "queries", "", "`FILE` of query token vectors: .npy [tokens, dim] or [queries, rows, dim], .npz, .safetensors, .jsonl")
	f.StringVar(&q.lengths, "query-lengths", "", "`FILE` with the number of tokens of each query: .npy, .json or text")
	f.StringVar(&q.mask, "query-mask", "", "`FILE` [queries, rows] of booleans or integers, for padded vectors: 0 is padding")
	f.StringVar(&q.ids, "query-ids", "", "`FILE` with one query id a line (default: row numbers from 0)")
}

func (q *queryFiles) open() (vectors.Source, error) {
	if q.vectors == "" {
		return nil, usagef("--queries is missing")
	}
	s, err := vectors.Open(vectors.Files{Vectors: q.vectors, Lengths: q.lengths, Mask: q.mask, IDs: q.ids})
	return s, withTextHint(q.vectors, err)
}

// withTextHint tells those who hand in texts what is wanted.
func withTextHint(path string, err error) error {
	ext := strings.ToLower(filepath.Ext(path))
	if errors.Is(err, vectors.ErrFormat) && (ext == ".jsonl" || ext == ".ndjson") {
		return fmt.Errorf(`%w; each line needs its token vectors, as in {"_id": "a", "vectors": [[0.1, …], …]}: text is not encoded here`, err)
	}
	return err
}

// readIDs reads ids, one a line. Blank lines are left out. An empty file is an
// empty list, which is not nil.
func readIDs(path string) (ids []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, vectors.MaxIDBytes+16)
	ids = []string{}
	for n := 1; lines.Scan(); n++ {
		id := strings.TrimSuffix(lines.Text(), "\r")
		if n == 1 {
			id = strings.TrimPrefix(id, "\ufeff")
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s: line %d: an id has at most %d bytes", path, len(ids)+1, vectors.MaxIDBytes)
	} else if err != nil {
		return nil, err
	}
	return ids, nil
}
