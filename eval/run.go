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

// ScoredDocument is one retrieved document.
type ScoredDocument struct {
	Doc   string  // the id
	Score float64 // higher is better; finite
	Rank  int     // as in the file, from 0 or 1; only [TiesRank] uses it
}

// Run is the output of a system: a list of documents for each query. Queries and hits keep the
// order in which they were added. The zero value is empty and ready to use.
//
// Concurrent reads are safe as long as no goroutine calls [Run.Add].
type Run struct {
	// Tag names the system: the last column of the first line of a TREC run.
	Tag string
	// RankOffset is how many better documents of each query the run omits. WriteRun starts ranks after
	// them.
	RankOffset int

	queries []string
	hits    map[string][]ScoredDocument

	// openSets has the documents of queries that may still grow, to find duplicates. Runs usually
	// list one query after another, so only the set of the current query is kept. The set of a query
	// that occurs again later is kept for good, which limits the work for any order of lines.
	openSets map[string]map[string]struct{}
	current  string
}

// Add appends hits to the list of a query. Without hits it records a query that retrieved no
// documents. A document that the query has already wraps [ErrDuplicate]; an empty id or a score
// that is not finite wraps [ErrFormat].
func (r *Run) Add(query string, hits ...ScoredDocument) error {
	if query == "" {
		return malformed("empty query id")
	}
	seen := r.documentSet(query)
	for _, h := range hits {
		if h.Doc == "" {
			return malformed("query %q: empty document id", shorten(query))
		}
		if math.IsNaN(h.Score) || math.IsInf(h.Score, 0) {
			return malformed("query %q, document %q: score %v is not finite", shorten(query), shorten(h.Doc), h.Score)
		}
		if _, ok := seen[h.Doc]; ok {
			return fmt.Errorf("%w: query %q retrieves document %q twice", ErrDuplicate, shorten(query), shorten(h.Doc))
		}
		seen[h.Doc] = struct{}{}
		r.hits[query] = append(r.hits[query], h)
	}
	return nil
}

// documentSet returns the set of documents of a query, and adds the query if it is new.
func (r *Run) documentSet(query string) map[string]struct{} {
	if r.hits == nil {
		r.hits = make(map[string][]ScoredDocument)
		r.openSets = make(map[string]map[string]struct{})
	}
	hits, hasQuery := r.hits[query]
	if !hasQuery {
		r.queries = append(r.queries, query)
		r.hits[query] = nil
	}
	if set, ok := r.openSets[query]; ok {
		return set
	}
	set := make(map[string]struct{}, len(hits))
	for _, h := range hits {
		set[h.Doc] = struct{}{}
	}
	r.openSets[query] = set
	if !hasQuery {
		delete(r.openSets, r.current)
		r.current = query
	}
	return set
}

// Queries returns the queries of the run in the order they were added.
func (r *Run) Queries() []string { return slices.Clone(r.queries) }

// Len returns the number of queries.
func (r *Run) Len() int { return len(r.queries) }

// Has reports whether the run has a query, even one without hits.
func (r *Run) Has(query string) bool {
	_, ok := r.hits[query]
	return ok
}

// Hits returns the hits of a query in the order they were added. The caller must
// not change them.
func (r *Run) Hits(query string) []ScoredDocument { return slices.Clip(r.hits[query]) }

// Ranked returns the hits of a query, the best first.
func (r *Run) Ranked(query string, ties Ties) []ScoredDocument {
	return ties.sort(slices.Clone(r.hits[query]))
}

var runHeader = header{
	qrelsHeader[0],
	qrelsHeader[1],
	{"rank"},
	{"score", "sim", "similarity"},
}

// LoadRun reads a regular file with [ReadRun].
func LoadRun(path string) (*Run, error) { return load(path, ReadRun) }

// ReadRun reads a run, plain or compressed. Its columns are the six of TREC (query, Q0, document,
// rank, score, tag), four (query, document, rank, score) or the three of MS MARCO (query, document,
// rank); the latter two may have a header. The score of a hit without one is its negative rank, so
// that the first is the best. Separators, line ends and errors are those of [ReadQrels]. A document
// that a query retrieves twice is an error, as in trec_eval.
func ReadRun(r io.Reader, name string) (*Run, error) {
	t, err := newTable(r, name, []header{runHeader, runHeader[:3]},
		"6 (query, Q0, document, rank, score, tag), 4 (query, document, rank, score) or 3 (query, document, rank)",
		3, 4, 6)
	if err != nil {
		return nil, err
	}
	run := new(Run)
	for {
		cols, err := t.nextRow()
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
			return nil, t.lineError(malformed("rank %q is not an integer", shorten(cols[2])))
		}
		score := -float64(rank)
		if len(cols) > 3 {
			if score, err = strconv.ParseFloat(string(cols[3]), 64); err != nil {
				return nil, t.lineError(malformed("score %q is not a number", shorten(cols[3])))
			}
		} else if rank > maxRank || rank < -maxRank {
			return nil, t.lineError(malformed("rank %d is beyond %d", rank, maxRank))
		}
		hit := ScoredDocument{Doc: string(cols[1]), Score: score, Rank: rank}
		if err := run.Add(string(cols[0]), hit); err != nil {
			return nil, t.lineError(err)
		}
	}
}

// maxRank is the largest rank that can stand for a score: float32 represents all integers up to it.
const maxRank = 1 << 24

// Layout is the file format of a run.
type Layout int

const (
	// TREC has six columns separated by blanks: query, Q0, document, rank, score and tag. Ids must not
	// contain white space.
	TREC Layout = iota
	// TSV has a header and four columns separated by tabs: query, document, rank and score. Ids must
	// not contain tabs or line ends, nor begin or end with white space.
	TSV
)

// CheckID returns an error for an id that the layout cannot represent. The first argument is the kind of the id,
// such as document. The error wraps [ErrFormat].
func (l Layout) CheckID(kind, id string) error {
	switch {
	case l == TREC && strings.ContainsFunc(id, isBlank):
		return malformed("%s id %q has white space, which separates the columns of a TREC run", kind, shorten(id))
	case l == TSV && (strings.ContainsAny(id, "\t\r\n") || strings.TrimFunc(id, isBlank) != id):
		return malformed("%s id %q begins or ends with white space, or has a tab or a line end", kind, shorten(id))
	}
	return nil
}

// Header returns the first line of a run, or "" if the layout has no header.
func (l Layout) Header() string {
	if l == TSV {
		return "query-id\tdoc-id\trank\tscore\n"
	}
	return ""
}

// WriteRun writes a run with its header. Hits are in the order of [TiesRank], ranked from 1. A
// score has the digits that restore its float32. An empty run.Tag is written as "plaid". An id or
// tag that the layout cannot represent, or a score beyond float32, is an error that wraps
// [ErrFormat].
func (l Layout) WriteRun(w io.Writer, run *Run) error {
	bw := bufio.NewWriter(w)
	_, _ = bw.WriteString(l.Header()) // Flush has its error
	if err := l.WriteHits(bw, run); err != nil {
		return err
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("writing run: %w", err)
	}
	return nil
}

// WriteHits is [Layout.WriteRun] without the header, for runs that are written in several steps.
func (l Layout) WriteHits(w io.Writer, run *Run) error {
	tag := cmp.Or(run.Tag, "plaid")
	if strings.ContainsFunc(tag, isBlank) {
		return malformed("tag %q has white space", shorten(tag))
	}
	afterQuery, separator, lineEnd := " Q0 ", " ", " "+tag+"\n"
	if l == TSV {
		afterQuery, separator, lineEnd = "\t", "\t", "\n"
	}
	var line []byte
	for _, query := range run.queries {
		if err := l.CheckID("query", query); err != nil {
			return err
		}
		for i, h := range TiesRank.sort(slices.Clone(run.hits[query])) {
			if err := l.CheckID("document", h.Doc); err != nil {
				return fmt.Errorf("query %q: %w", shorten(query), err)
			}
			if math.IsInf(float64(float32(h.Score)), 0) {
				return malformed("query %q, document %q: score %v is beyond float32",
					shorten(query), shorten(h.Doc), h.Score)
			}
			line = append(append(append(append(line[:0], query...), afterQuery...), h.Doc...), separator...)
			line = append(strconv.AppendInt(line, int64(run.RankOffset+i+1), 10), separator...)
			line = append(appendScore(line, float32(h.Score)), lineEnd...)
			if _, err := w.Write(line); err != nil {
				return fmt.Errorf("writing run: %w", err)
			}
		}
	}
	return nil
}

// appendScore appends the shortest digits that restore the float32. Readers parse a float64 and
// round it. For a few values that does not restore the float32 that the digits are nearest to;
// these get all digits of the float64.
func appendScore(line []byte, score float32) []byte {
	end := len(line)
	line = strconv.AppendFloat(line, float64(score), 'g', -1, 32)
	if back, err := strconv.ParseFloat(string(line[end:]), 64); err != nil || float32(back) != score {
		line = strconv.AppendFloat(line[:end], float64(score), 'g', -1, 64)
	}
	return line
}
