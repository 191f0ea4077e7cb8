package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// IndexRate bounds the requests a second of each index whose name matches a pattern, as in
// [Grant]; twice as many may come at once.
type IndexRate struct {
	Pattern string
	Rate    float64
}

// ParseIndexRate parses PATTERN=N.
func ParseIndexRate(text string) (r IndexRate, err error) {
	pattern, value, ok := strings.Cut(text, "=")
	if !ok {
		return r, fmt.Errorf("%q is no rate of an index; want a name or a pattern, and requests a second: logs-*=20",
			text)
	}
	if err := checkPattern(pattern); err != nil {
		return r, err
	}
	n, ok := parseRate(value)
	if !ok {
		return r, fmt.Errorf("%q: %q is no number of requests a second above 0", text, value)
	}
	return IndexRate{pattern, n}, nil
}

// parseRate parses a number of requests a second. ok is false unless it is above 0, and not absurdly large.
func parseRate(text string) (perSecond float64, ok bool) {
	perSecond, err := strconv.ParseFloat(text, 64)
	return perSecond, err == nil && perSecond > 0 && perSecond <= 1e9
}

// burstForRate returns how many requests may come at once at a rate.
func burstForRate(perSecond float64) int { return max(1, int(2*perSecond)) }

// parseLimit sets a limit of the token from a word NAME=VALUE. Its error does not repeat the word, which
// may be a part of a secret.
func (t *Token) parseLimit(text string) error {
	name, value, _ := strings.Cut(text, "=")
	ok := false
	switch name {
	case "indexes":
		n, err := strconv.ParseUint(value, 10, 31)
		t.Indexes, ok = int(n), err == nil && n > 0
	case "rate":
		t.Rate, ok = parseRate(value)
	}
	if !ok {
		return errors.New("want indexes=N or rate=N, above 0")
	}
	return nil
}

// limitIndexRate counts a request towards the rates of its index.
func (q *request) limitIndexRate() *Problem {
	if q.indexName() == "" { // the pattern * would match it
		return nil
	}
	for _, r := range q.server.options.IndexRates {
		if !nameMatches(r.Pattern, q.indexName()) {
			continue
		}
		if p := q.server.rates.countRequest("index "+q.indexName()+" "+r.Pattern, r.Rate, burstForRate(r.Rate),
			"rate of the index"); p != nil {
			return p
		}
	}
	return nil
}

// creatingIndexes counts the requests that are creating an index, by its name.
type creatingIndexes struct {
	mu       sync.Mutex
	requests map[string]int
}

// reserveIndexName checks that the service and the token of the request may have an index of a name, and
// counts the name as an index until done is called: when the index was created, or will not be. An index
// that exists is always allowed. Only names are counted, which costs little.
func (q *request) reserveIndexName(name string) (done func(), err error) {
	m := &q.server.creating
	m.mu.Lock()
	defer m.mu.Unlock()
	names := q.server.collections.Names()
	if !slices.Contains(names, name) {
		names = slices.AppendSeq(slices.Clip(names), maps.Keys(m.requests))
		slices.Sort(names)
		others := slices.DeleteFunc(slices.Compact(names), func(other string) bool { return other == name })
		if p := q.tooManyIndexes(others); p != nil {
			return nil, p
		}
	}
	m.requests[name]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.requests[name]--; m.requests[name] == 0 {
			delete(m.requests, name)
		}
	}, nil
}

// tooManyIndexes returns the answer to a request that would exceed a limit by creating an index in addition
// to those of the names, or nil if it may create one.
func (q *request) tooManyIndexes(names []string) *Problem {
	if limit := q.server.options.Limits.Indexes; len(names) >= limit {
		return problem(CodeTooManyIndexes,
			"the service has as many indexes as it may have, %d (max-indexes): delete one, or have the limit raised",
			limit)
	}
	t := q.token
	if t == nil || t.Indexes == 0 {
		return nil
	}
	administered := 0
	for _, name := range names {
		if t.PermissionOn(name) >= Admin {
			administered++
		}
	}
	if administered < t.Indexes {
		return nil
	}
	return problem(CodeTooManyIndexes,
		"token %s has as many indexes as it may have, %d (indexes): delete one, or have the limit raised", t.Name,
		t.Indexes)
}
