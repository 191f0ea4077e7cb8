package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/internal/infile"
)

// Query is one line of queries.jsonl.
type Query struct {
	ID   string
	Text string // may be empty
}

// Document is one line of corpus.jsonl.
type Document struct {
	ID    string
	Title string // may be empty
	Text  string // may be empty
}

// FullText returns what BEIR encodes: title, a blank, text, trimmed.
func (d Document) FullText() string { return strings.TrimSpace(d.Title + " " + d.Text) }

// Collection is a test collection in BEIR's layout (Thakur et al., NeurIPS 2021).
// Its documents stay on disk and are streamed by [Collection.Documents].
type Collection struct {
	Dir   string
	Split string // "test", "dev", "train"
	// Queries are all of queries.jsonl, in its order: those of other splits and
	// unjudged ones too. [Collection.JudgedQueries] leaves them out.
	Queries []Query
	Qrels   *Qrels

	corpus string // path
}

// LoadBEIR reads the queries of a folder and the judgements of one split:
//
//	corpus.jsonl       _id, title, text
//	queries.jsonl      _id, text
//	qrels/<split>.tsv  see [ReadQrels]
//
// Each file may be compressed with gzip, with or without .gz after its name. Ids
// are strings; other fields are ignored. Judged ids that are not in the corpus are
// allowed, as some published sets have them.
func LoadBEIR(dir, split string) (*Collection, error) {
	qrels, err := qrelsPath(dir, split)
	if err != nil {
		return nil, err
	}
	c := &Collection{Dir: dir, Split: split}
	if c.corpus, err = plainOrGzip(filepath.Join(dir, "corpus.jsonl")); err != nil {
		return nil, err
	}
	queries, err := plainOrGzip(filepath.Join(dir, "queries.jsonl"))
	if err != nil {
		return nil, err
	}
	if c.Qrels, err = LoadQrels(qrels); err != nil {
		return nil, err
	}
	if c.Queries, err = loadQueries(queries); err != nil {
		return nil, err
	}
	return c, nil
}

// plainOrGzip returns path, or path.gz if only that exists.
func plainOrGzip(path string) (string, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, gzErr := os.Stat(path + ".gz"); gzErr == nil {
			return path + ".gz", nil
		}
	}
	return path, err
}

// JudgedQueries returns the queries that have a judgement in the split, in the
// order of queries.jsonl.
func (c *Collection) JudgedQueries() []Query {
	var judged []Query
	for _, q := range c.Queries {
		if c.Qrels.Judged(q.ID) {
			judged = append(judged, q)
		}
	}
	return judged
}

// Documents streams the corpus in file order. The first error, ctx's included,
// comes with a zero Document and ends the iteration.
func (c *Collection) Documents(ctx context.Context) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		stopped := false // and then nothing may be yielded, not even that the file changed
		err := eachRecord(ctx, c.corpus, func(rec *record) error {
			if stopped = !yield(Document{ID: *rec.ID, Title: rec.Title, Text: rec.Text}, nil); stopped {
				return errStop
			}
			return nil
		})
		if err != nil && !stopped {
			yield(Document{}, err)
		}
	}
}

func loadQueries(path string) ([]Query, error) {
	var queries []Query
	seen := make(map[string]struct{})
	err := eachRecord(context.Background(), path, func(rec *record) error {
		if _, ok := seen[*rec.ID]; ok {
			return fmt.Errorf("%w: query id %q", ErrDuplicate, clip(*rec.ID))
		}
		seen[*rec.ID] = struct{}{}
		queries = append(queries, Query{ID: *rec.ID, Text: rec.Text})
		return nil
	})
	return queries, err
}

// record is one JSON line of a corpus or of queries.
type record struct {
	ID    *string `json:"_id"`
	Title string  `json:"title"`
	Text  string  `json:"text"`
}

// errStop ends eachRecord without it being a fault.
var errStop = errors.New("stop")

// eachRecord calls fn for every line of a file. An error of fn other than errStop
// comes back as a [LineError].
func eachRecord(ctx context.Context, path string, fn func(*record) error) error {
	return infile.ReadRegular(path, func(r io.Reader) error { return readRecords(ctx, r, path, fn) })
}

func readRecords(ctx context.Context, r io.Reader, name string, fn func(*record) error) error {
	lr, err := newLineReader(r, name, maxJSONLine)
	if err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		line, err := lr.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			return lr.fail(jsonFault(err))
		}
		if rec.ID == nil || *rec.ID == "" {
			return lr.fail(malformed("no _id"))
		}
		if err := fn(&rec); err == errStop {
			return err
		} else if err != nil {
			return lr.fail(err)
		}
	}
}

// jsonFault says in the terms of the format what encoding/json says of Go types.
func jsonFault(err error) error {
	var typeErr *json.UnmarshalTypeError
	if !errors.As(err, &typeErr) {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if typeErr.Field == "" {
		return malformed("the line is a JSON %s, not an object", typeErr.Value)
	}
	return malformed("field %q is a JSON %s, not a string", typeErr.Field, typeErr.Value)
}
