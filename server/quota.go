package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/human"
	"github.com/plaid-ir/plaid/vectors"
)

// Quota bounds what is stored and asked; what is 0 is not bounded.
type Quota struct {
	// Documents that there may be. An update that would bring more is refused.
	Documents uint64
	// Bytes of index files. A change that begins when there are so many is refused, unless it
	// deletes.
	Bytes int64
	// Rate is requests a second; twice as many may come at once.
	Rate float64
}

// stores tells whether the quota is one of what is stored.
func (u *Quota) stores() bool { return u.Documents > 0 || u.Bytes > 0 }

// IndexQuota is the quota of each index whose name matches a pattern, as in [Grant].
type IndexQuota struct {
	Pattern string
	Quota
}

// ParseIndexQuota reads PATTERN [documents=N] [bytes=SIZE] [rate=N].
func ParseIndexQuota(text string) (u IndexQuota, err error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return u, fmt.Errorf("%q is no quota; want a name or a pattern of indexes, and documents=N, bytes=SIZE or rate=N", text)
	}
	u.Pattern = words[0]
	if err := checkPattern(u.Pattern); err != nil {
		return u, err
	}
	if u.Quota, err = parseQuota(words[1:]); err != nil {
		err = fmt.Errorf("%q: %w", text, err)
	}
	return u, err
}

// parseQuota does not repeat words in errors: one may be of a secret.
func parseQuota(words []string) (u Quota, err error) {
	for i, word := range words {
		name, value, _ := strings.Cut(word, "=")
		good := false
		switch name {
		case "documents":
			u.Documents, err = strconv.ParseUint(value, 10, 63)
			good = err == nil && u.Documents > 0
		case "bytes":
			u.Bytes, err = human.Size(value)
			good = err == nil && u.Bytes > 0
		case "rate":
			u.Rate, err = strconv.ParseFloat(value, 64)
			good = err == nil && u.Rate > 0 && u.Rate <= 1e9
		}
		if !good {
			return Quota{}, fmt.Errorf("setting %d is no quota; want documents=N, bytes=SIZE or rate=N, above 0", i+1)
		}
	}
	return u, nil
}

// quotas are those of indexes, and what updates that run will add to what is counted.
type quotas struct {
	indexes []IndexQuota

	mu      sync.Mutex
	running map[string]uint64 // documents, by index
}

// held is a quota that a request has to keep: that of its token or that of its index.
type held struct {
	Quota
	of     string
	counts func(name string) bool // which indexes
}

// held are the quotas that a change of the index has to keep.
func (q *request) held() (all []held) {
	if t := q.token; t != nil && t.Quota.stores() {
		all = append(all, held{t.Quota, "token " + t.Name, func(name string) bool { return t.On(name) >= Write }})
	}
	for _, u := range q.s.quotas.indexes {
		if u.stores() && matchesName(u.Pattern, q.index()) {
			all = append(all, held{u.Quota, "index " + q.index(), func(name string) bool { return name == q.index() }})
		}
	}
	return all
}

// unbounded refuses what nobody can count before it is stored, where that has to be counted.
func (q *request) unbounded(what string) error {
	if all := q.held(); len(all) > 0 {
		return problem(CodeQuota, "%s brings what cannot be counted before it is stored, and the %s has a quota", what, all[0].of)
	}
	return nil
}

// reserve makes sure that the quotas have room for documents, and for a change at all. done
// is to be called when they are stored, or are not: until then they count.
func (q *request) reserve(ctx context.Context, c collection.Collection, docs []collection.Document) (done func(), err error) {
	all := q.held()
	if len(all) == 0 {
		return func() {}, nil
	}
	s, name, n := &q.s.quotas, c.Name(), uint64(len(docs))
	s.mu.Lock()
	s.running[name] += n
	running := maps.Clone(s.running) // is counted before what is stored: twice rather than never
	s.mu.Unlock()
	done = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[name] -= n; s.running[name] == 0 {
			delete(s.running, name)
		}
	}
	for i := range all {
		if err := q.keep(ctx, &all[i], c, docs, running); err != nil {
			done()
			return nil, err
		}
	}
	return done, nil
}

// keep counts what is stored, and says whether that and what updates that run will add is
// within a quota.
func (q *request) keep(ctx context.Context, u *held, c collection.Collection, docs []collection.Document, running map[string]uint64) error {
	var documents, reserved uint64
	for name, n := range running {
		if u.counts(name) {
			reserved += n
		}
	}
	var bytes int64
	for _, name := range q.s.collections.Names() {
		if !u.counts(name) {
			continue
		}
		counted, err := q.s.collections.Get(name)
		if err != nil || counted.Err() != nil {
			continue // dropped meanwhile; or damaged, so that nothing can be added
		}
		st, err := counted.Stats(ctx)
		if errors.Is(err, collection.ErrUnknown) {
			continue
		} else if err != nil {
			return err
		}
		documents, bytes = documents+st.Documents, bytes+st.FileBytes
	}
	if u.Bytes > 0 && bytes >= u.Bytes {
		return problem(CodeQuota, "the quota of the %s is used up: %d bytes are stored, and %d are the most", u.of, bytes, u.Bytes)
	}
	if len(docs) == 0 || u.Documents == 0 || documents+reserved <= u.Documents {
		return nil
	}
	gone, err := goneBy(ctx, c, docs)
	if err != nil || documents+reserved-gone <= u.Documents {
		return err
	}
	p := problem(CodeQuota, "the quota of the %s is used up: there are %d documents, %d more are asked for, and %d are the most", u.of, documents, reserved-gone, u.Documents)
	if documents+uint64(len(docs))-gone <= u.Documents { // but for updates that run, which may replace documents, or fail
		p.after(time.Second)
	}
	return p
}

// goneBy is how many documents an update takes the place of, or pushes out of an index that
// keeps the newest.
func goneBy(ctx context.Context, c collection.Collection, docs []collection.Document) (gone uint64, err error) {
	v, err := c.View(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	ids := []string{}
	for i := range docs {
		if docs[i].ID == "" {
			continue
		}
		ids = append(ids, docs[i].ID)
		if p, _ := vectors.PassageOf(docs[i].ID, docs[i].Metadata); p != nil {
			ids = append(ids, p.Of) // a passage takes the place of all that there is of its document
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids) // not nil, which would mean all documents
	seen := map[uint64]bool{} // as a passage, and as one of its document
	for d, err := range v.Documents(ctx, collection.Selection{IDs: ids}, collection.ReadOptions{}) {
		if err != nil {
			return 0, err
		}
		seen[d.Number] = true
	}
	gone = uint64(len(seen))
	d, err := v.Describe(ctx)
	if err != nil {
		return 0, err
	}
	if most := c.Config().MaxDocuments; most != nil {
		if after := uint64(d.Docs) + uint64(len(docs)) - gone; after > *most {
			gone += min(after-*most, uint64(len(docs))-gone)
		}
	}
	return gone, nil
}

// limitIndex counts a request of an index whose quota says how many may come.
func (q *request) limitIndex() *Problem {
	if q.index() == "" { // a pattern may match that
		return nil
	}
	for _, u := range q.s.quotas.indexes {
		if u.Rate == 0 || !matchesName(u.Pattern, q.index()) {
			continue
		}
		if p := q.s.rate.take("index "+q.index()+" "+u.Pattern, u.Rate, u.burst(), "quota of the index"); p != nil {
			return p
		}
	}
	return nil
}

// burst is how many requests may come at once.
func (u *Quota) burst() int { return max(1, int(2*u.Rate)) }
