package eval

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
)

// Qrels are relevance judgements: grades of some documents for each query. A grade of 1 or more is
// relevant, 0 is judged and not relevant, a negative one is pooled but unjudged, as in trec_eval.
// Queries and documents keep the order in which they were added. The zero value is empty and ready
// to use.
//
// Concurrent reads are safe as long as no goroutine calls [Qrels.Add].
type Qrels struct {
	queries []string
	judged  map[string]*judgements
}

// judgements are the judged documents of one query.
type judgements struct {
	docs   []string
	grades map[string]int
}

// Add records a judgement. If the document was judged before with another grade, the error wraps
// [ErrDuplicate]. An empty id or a grade beyond ±2³¹−1 wraps [ErrFormat].
func (q *Qrels) Add(query, doc string, grade int) error {
	switch {
	case query == "":
		return malformed("empty query id")
	case doc == "":
		return malformed("query %q: empty document id", shorten(query))
	case grade <= math.MinInt32 || grade > math.MaxInt32:
		return malformed("query %q, document %q: grade %d is out of range", shorten(query), shorten(doc), grade)
	}
	js := q.judged[query]
	if js == nil {
		if q.judged == nil {
			q.judged = make(map[string]*judgements)
		}
		js = &judgements{grades: make(map[string]int)}
		q.judged[query] = js
		q.queries = append(q.queries, query)
	}
	if old, ok := js.grades[doc]; ok {
		if old != grade {
			return fmt.Errorf("%w judgement: query %q, document %q has grade %d and now %d",
				ErrDuplicate, shorten(query), shorten(doc), old, grade)
		}
		return nil
	}
	js.grades[doc] = grade
	js.docs = append(js.docs, doc)
	return nil
}

// Queries returns the judged queries in the order they were added.
func (q *Qrels) Queries() []string { return slices.Clone(q.queries) }

// Len returns the number of judged queries.
func (q *Qrels) Len() int { return len(q.queries) }

// Judged reports whether a query has a judgement.
func (q *Qrels) Judged(query string) bool { return q.judged[query] != nil }

// Judgements iterates over the documents judged for a query, in the order they
// were added, with their grades.
func (q *Qrels) Judgements(query string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		js := q.judged[query]
		if js == nil {
			return
		}
		for _, doc := range js.docs {
			if !yield(doc, js.grades[doc]) {
				return
			}
		}
	}
}

var qrelsHeader = header{
	{"query-id", "query_id", "queryid", "qid", "query"},
	{"corpus-id", "corpus_id", "doc-id", "doc_id", "docid", "docno", "pid"},
	{"score", "grade", "rel", "relevance", "label"},
}

// LoadQrels reads a regular file with [ReadQrels].
func LoadQrels(path string) (*Qrels, error) { return load(path, ReadQrels) }

// LoadSplit reads the judgements of a split of a collection in BEIR's layout,
// <dir>/qrels/<split>.tsv, plain or compressed, with [ReadQrels]. It needs no other file of the
// folder. If the split does not exist, the error wraps [fs.ErrNotExist] and names the splits of the
// folder.
func LoadSplit(dir, split string) (*Qrels, error) {
	if split == "" || strings.ContainsAny(split, `/\`) || !filepath.IsLocal(split) {
		return nil, fmt.Errorf("split %q is not the name of a file in qrels", shorten(split))
	}
	path := filepath.Join(dir, "qrels", split+".tsv")
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		for _, suffix := range files.PackedSuffixes() {
			if _, packedErr := os.Stat(path + suffix); packedErr == nil {
				return LoadQrels(path + suffix)
			}
		}
		entries, _ := os.ReadDir(filepath.Join(dir, "qrels")) // err describes the problem already
		var splits []string
		for _, e := range entries {
			bare, _ := files.TrimPackedSuffix(e.Name())
			if name, ok := strings.CutSuffix(bare, ".tsv"); ok {
				splits = append(splits, name)
			}
		}
		if len(splits) > 0 {
			err = fmt.Errorf("%w; there is %s", err, strings.Join(slices.Compact(splits), ", "))
		}
	}
	if err != nil {
		return nil, err
	}
	return LoadQrels(path)
}

// ReadQrels reads judgements, plain or compressed by gzip, zstd or xz, in one of three layouts:
//
//   - BEIR: tab-separated with the header query-id, corpus-id, score
//   - TREC: query, an ignored column, document, grade
//   - query, document, grade without a header
//
// Without a header, white space separates the columns, or tabs if only they yield a known number of
// columns, so that ids may contain blanks. A first line that could be read both ways is an error.
// Quotation marks have no meaning. Lines end with LF or CRLF, and blank lines are skipped. A grade is an
// integer, which may be written as 1.0. name is the name of the file in errors. Errors are a
// [LineError] that wraps [ErrFormat] or, for a document judged twice with different grades,
// [ErrDuplicate].
func ReadQrels(r io.Reader, name string) (*Qrels, error) {
	t, err := newTable(r, name, []header{qrelsHeader},
		"4 (query, 0, document, grade) or 3 (query, document, grade)", 3, 4)
	if err != nil {
		return nil, err
	}
	q := new(Qrels)
	for {
		cols, err := t.nextRow()
		if err == io.EOF {
			return q, nil
		}
		if err != nil {
			return nil, err
		}
		n := len(cols)
		grade, err := strconv.Atoi(wholeNumber(string(cols[n-1])))
		if err != nil {
			return nil, t.lineError(malformed("grade %q is not an integer", shorten(cols[n-1])))
		}
		if err := q.Add(string(cols[0]), string(cols[n-2]), grade); err != nil {
			return nil, t.lineError(err)
		}
	}
}

// wholeNumber removes a fraction of zeros from an integer: pandas writes it in columns with missing
// values.
func wholeNumber(s string) string {
	if whole, zeros, ok := strings.Cut(s, "."); ok && zeros != "" && whole != "" && strings.Trim(zeros, "0") == "" {
		return whole
	}
	return s
}
