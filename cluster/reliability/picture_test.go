//go:build unix

package reliability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// model is what a collection may hold: of each id the versions that it may have, 0 being
// that it is not there. One version, if all changes of the id were acknowledged.
type model struct {
	may   map[string]map[int]bool
	next  int
	maker *searchtest.Maker
}

// newModel returns a model and the documents that its collection begins with.
func newModel() (*model, []vectors.Document) {
	m := &model{may: map[string]map[int]bool{}, maker: searchtest.New(*seed, dim, 6)}
	var docs []vectors.Document
	for i := range 60 {
		m.next++
		m.may[idOf(i)] = map[int]bool{m.next: true}
		docs = append(docs, m.documents(idOf(i), m.next)...)
	}
	return m, docs
}

// idOf is the id of the n-th document. Each fourth one is made of passages.
func idOf(n int) string {
	if n%4 == 3 {
		return fmt.Sprint("p", n)
	}
	return fmt.Sprint("d", n)
}

// mostPassages is how many a document of the model has at most.
const mostPassages = 4

// passagesOf is of how many parts a version of a document is.
func passagesOf(id string, version int) int {
	if id[0] == 'p' {
		return 1 + version%mostPassages
	}
	return 1
}

// documents is a version of a document, with all its passages.
func (m *model) documents(id string, version int) []vectors.Document {
	if id[0] != 'p' {
		return []vectors.Document{{ID: id, Tokens: m.maker.Tokens(1 + version%5), Payload: fmt.Appendf(nil, `{"v":%d,"part":-1}`, version)}}
	}
	docs := make([]vectors.Document, passagesOf(id, version))
	for i := range docs {
		p := vectors.Passage{Of: id, Number: i, Start: 10 * i, End: 10*i + 9}
		payload, err := p.Payload(fmt.Appendf(nil, `{"v":%d,"part":%d}`, version, i))
		if err != nil {
			panic(err) // it cannot be
		}
		docs[i] = vectors.Document{ID: p.ID(), Tokens: m.maker.Tokens(1 + (version+i)%5), Payload: payload}
	}
	return docs
}

// change makes some changes at a time, each of another document: they may share entries of
// logs.
func (m *model) change(t *testing.T, ctx context.Context, f *client.Client, rng *rand.Rand, c *counts) {
	type one struct {
		id          string
		version, op int
		err         error
	}
	all := make([]one, 1+rng.IntN(2)*rng.IntN(8))
	var wg sync.WaitGroup
	for i, n := range rng.Perm(80)[:len(all)] {
		x := &all[i]
		m.next++
		x.id, x.version, x.op = idOf(n), m.next, rng.IntN(3)
		if x.op == 0 {
			x.version = 0
			wg.Go(func() { _, x.err = f.Delete(ctx, []string{x.id}, nil) })
			continue
		}
		src := searchtest.Source(t, dim, m.documents(x.id, x.version))
		wg.Go(func() { _, x.err = f.Add(ctx, src, &client.WriteOptions{Replace: x.op == 1}) })
	}
	wg.Wait()
	for _, x := range all {
		m.changed(t, ctx, c, x.id, x.version, x.op == 2, x.err)
	}
}

// changed takes down what became of a change to a version; fresh: the document was not to be
// there.
func (m *model) changed(t *testing.T, ctx context.Context, c *counts, id string, version int, fresh bool, err error) {
	c.changes++
	if m.may[id] == nil {
		m.may[id] = map[int]bool{0: true}
	}
	may := m.may[id]
	switch {
	case err == nil:
		c.acknowledged++
		if fresh && !may[0] {
			t.Errorf("%s was added and is there already: %v", id, may)
		}
		m.may[id] = map[int]bool{version: true}
	case errors.Is(err, index.ErrDuplicateID):
		c.acknowledged++
		if delete(may, 0); len(may) == 0 {
			t.Errorf("%s is said to be there, and was deleted", id)
		}
	case errors.Is(err, client.ErrQuorum):
		c.refused++
	case errors.Is(err, client.ErrUnacknowledged) || ctx.Err() != nil:
		c.unknown++
		may[version] = true
	default:
		t.Errorf("a change fails: %v", err)
	}
}

// search asks for all documents, as they are or by their passages, and compares them with what
// they may be.
func (m *model) search(t *testing.T, ctx context.Context, f *client.Client, c *counts) {
	c.searches++
	o := search.Options{K: 1000, Mode: search.Exhaustive, Payload: true}
	if c.searches%3 == 0 {
		o.Group, o.Passages = search.GroupBest, mostPassages
	}
	r, err := f.Search(ctx, search.Query{Vectors: m.maker.Tokens(2), Dim: dim}, o)
	if err != nil {
		var partial *client.PartialError
		switch {
		case errors.As(err, &partial):
			c.turned++
			c.reasons[partial.Coverage.Missing[0].Reason]++
		case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, topology.ErrNoCollection):
			c.turned++
		default:
			t.Errorf("a search fails: %v", err)
		}
		return
	}
	c.answered++
	if !r.Coverage.Complete() {
		t.Errorf("a result is partial: %+v", r.Coverage)
	}
	found, parts := map[string]int{}, map[string]int{}
	for i, h := range r.Hits {
		if i > 0 && h.Score > r.Hits[i-1].Score {
			t.Errorf("hit %d has a higher score than the one before", i)
		}
		all := []search.Hit{h}
		if o.Group != "" {
			if all = h.Passages; len(all) == 0 || found[h.ID] > 0 {
				t.Errorf("hit %d: %s comes twice or has no passages", i, h.ID)
			}
		}
		for _, p := range all {
			m.take(t, h.ID, p, found, parts)
		}
	}
	for id, may := range m.may {
		if !may[found[id]] {
			t.Errorf("%s has version %d, it may have %v", id, found[id], may)
		}
		if n := passagesOf(id, found[id]); found[id] > 0 && parts[id] != n {
			t.Errorf("%s has %d parts of version %d, which has %d", id, parts[id], found[id], n)
		}
	}
	for id := range found {
		if m.may[id] == nil {
			t.Errorf("%s was never added", id)
		}
	}
}

// take notes which version of its document a hit, or a passage of one, is of.
func (m *model) take(t *testing.T, of string, h search.Hit, found, parts map[string]int) {
	id, n := vectors.SplitPassageID(h.ID)
	var payload struct {
		V    int
		Part int
	}
	if err := json.Unmarshal(h.Payload, &payload); err != nil || payload.V == 0 || payload.Part != n {
		t.Errorf("%s has the payload %q: %v", h.ID, h.Payload, err)
	}
	if before := found[id]; before > 0 && before != payload.V {
		t.Errorf("%s has parts of the versions %d and %d", id, before, payload.V)
	}
	if whole, _ := vectors.SplitPassageID(of); whole != id {
		t.Errorf("%s is found as a passage of %s", h.ID, of)
	}
	found[id] = payload.V
	parts[id]++
}
