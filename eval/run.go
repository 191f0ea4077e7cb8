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
	hits    map[string][]ScoredDocument

	// Documents of the queries that may still grow, to find duplicates. Runs
	// list their queries one after another, so that only the current query is
	// kept; one that is met again later is kept for good, which bounds the work
	// for any order of lines.
	openSets map[string]map[string]struct{}
	current  string
}

// Add appends hits to the list of a query; without hits it records a query that
// retrieved nothing. A document that the query has already wraps [ErrDuplicate];
// an empty id or a score that is not finite wraps [ErrFormat].
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

// documentSet returns the set of documents of a query, adding the query if it is new.
func (r *Run) documentSet(query string) map[string]struct{} {
	if r.hits == nil {
		r.hits = make(map[string][]ScoredDocument)
		r.openSets = make(map[string]map[string]struct{})
	}
	hits, known := r.hits[query]
	if !known {
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
	if !known {
		delete(r.openSets, r.current)
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

// ReadRun reads a run, plain or compressed: TREC's six columns (query, Q0, document,
// rank, score, tag), four (query, document, rank, score) or the three of MS MARCO (query, document,
// rank); of the latter two a header is optional. A hit without a score has the negative rank for one, so
// that the first is the best. Separators, line ends and errors are those of [ReadQrels]; a
// document that a query retrieves twice is an error, as in trec_eval.
func ReadRun(r io.Reader, name string) (*Run, error) {
	t, err := newTable(r, name, []header{runHeader, runHeader[:3]},
		"6 (query, Q0, document, rank, score, tag), 4 (query, document, rank, score) or 3 (query, document, rank)", 3, 4, 6)
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

// maxRank is the largest rank that makes a score: float32 tells all of these apart.
const maxRank = 1 << 24

// Layout is how a run is written.
type Layout int

const (
	// TREC is six columns that blanks separate: query, Q0, document, rank, score and tag. No id can have
	// white space.
	TREC Layout = iota
	// TSV is a header and four columns that tabs separate: query, document, rank and score. No id can have a
	// tab or a line end, nor begin or end with white space.
	TSV
)

// CheckID refuses an id that the layout cannot have; the first argument is its kind, such as document. The error
// wraps [ErrFormat].
func (l Layout) CheckID(what, id string) error {
	switch {
	case l == TREC && strings.ContainsFunc(id, isBlank):
		return malformed("%s id %q has white space, which separates the columns of a TREC run", what, shorten(id))
	case l == TSV && (strings.ContainsAny(id, "\t\r\n") || strings.TrimFunc(id, isBlank) != id):
		return malformed("%s id %q begins or ends with white space, or has a tab or a line end", what, shorten(id))
	}
	return nil
}

// Header is the first line of a run, "" if there is none.
func (l Layout) Header() string {
	if l == TSV {
		return "query-id\tdoc-id\trank\tscore\n"
	}
	return ""
}

// WriteRun writes a run, below its header. The hits of a query come in the
// order of [TiesRank], ranked from 1, and a score has the digits that give
// back its float32. An empty run.Tag is written as "plaid". An id or tag that the
// layout cannot have, or a score beyond float32, is an error that wraps [ErrFormat].
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

// WriteHits is [Layout.WriteRun] without the header, for runs that are written a part at a time.
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
				return malformed("query %q, document %q: score %v is beyond float32", shorten(query), shorten(h.Doc), h.Score)
			}
			line = append(append(append(append(line[:0], query...), afterQuery...), h.Doc...), separator...)
			line = append(strconv.AppendInt(line, int64(run.Before+i+1), 10), separator...)
			line = append(appendScore(line, float32(h.Score)), lineEnd...)
			if _, err := w.Write(line); err != nil {
				return fmt.Errorf("writing run: %w", err)
			}
		}
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
