package eval

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Hit is one retrieved document.
type Hit struct {
	Doc   string  // the id
	Score float64 // higher is better; finite
	Rank  int     // as the file has it, from 0 or 1; used by [TiesRank] only
}

// Run is what a system retrieved: a list of documents for each query. Queries and
// hits keep the order in which they were added. The zero value is empty and ready
// to use.
//
// Reading from several goroutines is safe as long as none calls [Run.Add].
type Run struct {
	// Tag names the system: the last column of a TREC run, of its first line.
	Tag string
	// Before is how many documents of each query come before those that are in the run, whose
	// ranks WriteRun counts on from there.
	Before int

	queries []string
	hits    map[string][]Hit

	// Documents of the queries that may still grow, to find duplicates. Runs
	// list their queries one after another, so that only the current query is
	// kept; one that is met again later is kept for good, which bounds the work
	// for any order of lines.
	docs    map[string]map[string]struct{}
	current string
}

// Add appends hits to the list of a query; without hits it records a query that
// retrieved nothing. A document that the query has already wraps [ErrDuplicate];
// an empty id or a score that is not finite wraps [ErrFormat].
func (r *Run) Add(query string, hits ...Hit) error {
	if query == "" {
		return malformed("empty query id")
	}
	seen := r.seen(query)
	for _, h := range hits {
		if h.Doc == "" {
			return malformed("query %q: empty document id", clip(query))
		}
		if math.IsNaN(h.Score) || math.IsInf(h.Score, 0) {
			return malformed("query %q, document %q: score %v is not finite", clip(query), clip(h.Doc), h.Score)
		}
		if _, ok := seen[h.Doc]; ok {
			return fmt.Errorf("%w: query %q retrieves document %q twice", ErrDuplicate, clip(query), clip(h.Doc))
		}
		seen[h.Doc] = struct{}{}
		r.hits[query] = append(r.hits[query], h)
	}
	return nil
}

// seen returns the set of documents of a query, adding the query if it is new.
func (r *Run) seen(query string) map[string]struct{} {
	if r.hits == nil {
		r.hits = make(map[string][]Hit)
		r.docs = make(map[string]map[string]struct{})
	}
	old, known := r.hits[query]
	if !known {
		r.queries = append(r.queries, query)
		r.hits[query] = nil
	}
	if set, ok := r.docs[query]; ok {
		return set
	}
	set := make(map[string]struct{}, len(old))
	for _, h := range old {
		set[h.Doc] = struct{}{}
	}
	r.docs[query] = set
	if !known {
		delete(r.docs, r.current)
		r.current = query
	}
	return set
}

// Queries returns the queries of the run in the order they were added.
func (r *Run) Queries() []string { return slices.Clone(r.queries) }

// Len returns the number of queries.
func (r *Run) Len() int { return len(r.queries) }

// Has reports whether the run has a query, be it with no hits.
func (r *Run) Has(query string) bool {
	_, ok := r.hits[query]
	return ok
}

// Hits returns the hits of a query in the order they were added. The caller must
// not change them.
func (r *Run) Hits(query string) []Hit { return slices.Clip(r.hits[query]) }

// Ranked returns the hits of a query, the best first.
func (r *Run) Ranked(query string, ties Ties) []Hit { return ties.sort(slices.Clone(r.hits[query])) }

var runHeader = header{
	qrelsHeader[0],
	qrelsHeader[1],
	{"rank"},
	{"score", "sim", "similarity"},
}

// LoadRun reads a regular file with [ReadRun].
func LoadRun(path string) (*Run, error) { return load(path, ReadRun) }

// ReadRun reads a run, plain or gzip: TREC's six columns (query, Q0, document,
// rank, score, tag) or four (query, document, rank, score; a header is optional).
// Separators, line ends and errors are those of [ReadQrels]; a document that a
// query retrieves twice is an error, as in trec_eval.
func ReadRun(r io.Reader, name string) (*Run, error) {
	t, err := newTable(r, name, runHeader, "6 (query, Q0, document, rank, score, tag) or 4 (query, document, rank, score)", 4, 6)
	if err != nil {
		return nil, err
	}
	run := new(Run)
	for {
		cols, err := t.row()
		if err == io.EOF {
			return run, nil
		}
		if err != nil {
			return nil, err
		}
		if len(cols) == 6 {
			if run.Tag == "" {
				run.Tag = string(cols[5])
			}
			cols = append(cols[:1], cols[2:5]...)
		}
		rank, err := strconv.Atoi(string(cols[2]))
		if err != nil {
			return nil, t.fail(malformed("rank %q is not an integer", clip(cols[2])))
		}
		score, err := strconv.ParseFloat(string(cols[3]), 64)
		if err != nil {
			return nil, t.fail(malformed("score %q is not a number", clip(cols[3])))
		}
		hit := Hit{Doc: string(cols[1]), Score: score, Rank: rank}
		if err := run.Add(string(cols[0]), hit); err != nil {
			return nil, t.fail(err)
		}
	}
}

// WriteRun writes a run as TREC's six columns. The hits of a query come in the
// order of [TiesRank], ranked anew from 1, and a score has the digits that give
// back its float32. An empty run.Tag is written as "plaid". An id or tag that
// white space would split, or a score beyond float32, is an error that wraps
// [ErrFormat].
func WriteRun(w io.Writer, run *Run) error {
	tag := cmp.Or(run.Tag, "plaid")
	if strings.ContainsFunc(tag, isBlank) {
		return malformed("tag %q has white space", clip(tag))
	}
	bw := bufio.NewWriter(w)
	var line []byte
	for _, query := range run.queries {
		if strings.ContainsFunc(query, isBlank) {
			return malformed("query id %q has white space", clip(query))
		}
		for i, h := range TiesRank.sort(slices.Clone(run.hits[query])) {
			if strings.ContainsFunc(h.Doc, isBlank) {
				return malformed("query %q: document id %q has white space", clip(query), clip(h.Doc))
			}
			if math.IsInf(float64(float32(h.Score)), 0) {
				return malformed("query %q, document %q: score %v is beyond float32", clip(query), clip(h.Doc), h.Score)
			}
			line = append(line[:0], query...)
			line = append(line, " Q0 "...)
			line = append(line, h.Doc...)
			line = append(line, ' ')
			line = strconv.AppendInt(line, int64(run.Before+i+1), 10)
			line = append(line, ' ')
			line = appendScore(line, float32(h.Score))
			line = append(line, ' ')
			line = append(line, tag...)
			line = append(line, '\n')
			if _, err := bw.Write(line); err != nil {
				return fmt.Errorf("writing run: %w", err)
			}
		}
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("writing run: %w", err)
	}
	return nil
}

// appendScore writes the shortest digits that give back the float32. Readers parse
// a float64 and round that, which for a few values is not the float32 that the
// digits are nearest to; those get all the digits of the float64.
func appendScore(line []byte, score float32) []byte {
	end := len(line)
	line = strconv.AppendFloat(line, float64(score), 'g', -1, 32)
	if back, err := strconv.ParseFloat(string(line[end:]), 64); err != nil || float32(back) != score {
		line = strconv.AppendFloat(line[:end], float64(score), 'g', -1, 64)
	}
	return line
}
