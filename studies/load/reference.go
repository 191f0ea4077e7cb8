package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/kernels"
)

// reference knows what the service has been told, and what it is to answer: for some
// queries the exact score of every document, computed from the vectors as they are and
// not as an index has them.
type reference struct {
	scores [][]float64 // [query][document of VECTORS]

	mu        sync.Mutex
	docs      map[string]*entry
	names     []string // of docs, also of deleted ones
	live      int
	deviation float64 // largest of a score, as a share
}

// entry is a document, or was one.
type entry struct {
	of      int // whose vectors it has
	version int // in its metadata
	gone    bool
	pending bool      // a change was sent and not answered
	settled time.Time // when the last change was answered
}

// newReference computes the scores of the first queries.
func newReference(ctx context.Context, in *input, queries int) (*reference, error) {
	r := &reference{docs: map[string]*entry{}, scores: make([][]float64, min(queries, len(in.queries)))}
	backend, err := kernels.Select("")
	if err != nil {
		return nil, err
	}
	var tokens []float32 // of all queries
	for _, q := range in.queries[:len(r.scores)] {
		tokens = append(tokens, q...)
	}
	codes, best := make([]uint32, len(tokens)/in.dim), make([]float32, len(tokens)/in.dim)
	n := 0
	for d, err := range in.src.Docs(ctx, 0, in.src.Len()) {
		if err != nil {
			return nil, err
		}
		if len(d.Tokens) == 0 {
			continue
		}
		// The centroid nearest to a token of a query is the token that matches it.
		if err := backend.Nearest(ctx, codes, best, unit(d.Tokens, in.dim), tokens, in.dim); err != nil {
			return nil, err
		}
		at := 0
		for q := range r.scores {
			sum := 0.0
			for range len(in.queries[q]) / in.dim {
				sum += float64(best[at])
				at++
			}
			r.scores[q] = append(r.scores[q], sum)
		}
		r.put(baseID(n), &entry{of: n})
		n++
	}
	return r, nil
}

func (r *reference) put(id string, e *entry) {
	if r.docs[id] == nil {
		r.names = append(r.names, id)
	}
	r.docs[id] = e
	r.live++
}

// pick takes a document that lives and is not being changed, and marks it as being so.
func (r *reference) pick(rng *rand.Rand) (id string, version int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 100 {
		id = r.names[rng.IntN(len(r.names))]
		if e := r.docs[id]; !e.gone && !e.pending {
			e.pending = true
			return id, e.version, true
		}
	}
	return "", 0, false
}

// adding marks a document that is new, or is to be replaced.
func (r *reference) adding(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.docs[id]; e != nil {
		e.pending = true
		return
	}
	r.put(id, &entry{gone: true, pending: true})
	r.live--
}

// changed notes that a change was answered.
func (r *reference) changed(id string, change func(e *entry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.docs[id]
	gone := e.gone
	change(e)
	e.pending, e.settled = false, time.Now()
	switch {
	case gone && !e.gone:
		r.live++
	case !gone && e.gone:
		r.live--
	}
}

// tolerance is how far a score may be from the exact one, as a share: what the bits of
// a vector lose.
const tolerance = 0.05

// hit is a document of an answer.
type hit struct {
	id      string
	version int
	score   float64
}

// check compares an answer to a query that was asked at a time with what is known. It
// returns what is wrong, and how many of the best documents were not found.
func (r *reference) check(query int, asked time.Time, hits []hit, k int) (wrong string, missed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	exact := r.scores[query]
	found := map[string]bool{}
	for i, h := range hits {
		e := r.docs[h.id]
		switch {
		case e == nil:
			return fmt.Sprintf("document %q was never added", h.id), 0
		case found[h.id]:
			return fmt.Sprintf("document %q is there twice", h.id), 0
		case i > 0 && h.score > hits[i-1].score:
			return "the order is not that of the scores", 0
		}
		found[h.id] = true
		if !e.steady(asked) {
			continue
		}
		off := max(h.score/exact[e.of], exact[e.of]/h.score) - 1
		r.deviation = max(r.deviation, off)
		switch {
		case e.gone:
			return fmt.Sprintf("document %q was deleted", h.id), 0
		case h.version != e.version:
			return fmt.Sprintf("document %q has version %d; want %d", h.id, h.version, e.version), 0
		case !(off <= tolerance):
			return fmt.Sprintf("document %q scores %g; want about %g", h.id, h.score, exact[e.of]), 0
		}
	}
	if len(hits) < min(k, r.live) && len(hits) < k {
		steady := 0
		for _, e := range r.docs {
			if !e.gone && e.steady(asked) {
				steady++
			}
		}
		if len(hits) < min(k, steady) {
			return fmt.Sprintf("%d documents were found; want %d", len(hits), min(k, steady)), 0
		}
	}
	if len(hits) == 0 {
		return "", 0
	}
	// What is better than the last by more than scores are off should be among them.
	least := hits[len(hits)-1].score * (1 + r.slack())
	for id, e := range r.docs {
		if !found[id] && !e.gone && e.steady(asked) && exact[e.of] > least {
			missed++
		}
	}
	return "", min(missed, k)
}

// slack is by how much a better score counts as better.
func (r *reference) slack() float64 { return min(max(r.deviation, 0.001), 0.01) }

// steady tells whether nothing has changed a document since a time.
func (e *entry) steady(since time.Time) bool { return !e.pending && !e.settled.After(since) }

// all are the documents as they are to be, in order.
func (r *reference) all() (ids []string, entries []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids = slices.Sorted(slices.Values(r.names))
	for _, id := range ids {
		entries = append(entries, *r.docs[id])
	}
	return ids, entries
}
