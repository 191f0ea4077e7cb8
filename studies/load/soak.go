package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/server/store"
)

// The soak asks a service for a while, and meanwhile adds documents, replaces, deletes
// and updates them, and trains the index anew after a third of the time. It checks
//
//   - each answer to a search: that each document in it is there, with its newest
//     metadata and about the score that it has exactly, and which better ones are not
//     in it. Of documents that were changed during the search nothing is asked.
//   - at the end each document, and again after the process was killed: that it is
//     there as it was acknowledged last, with the same vectors, or is not if it was
//     deleted.
//   - that the heap of the service has not grown.

const (
	soakQueries  = 50
	soakClients  = 4
	soakSamples  = 20
	heldExtra    = 1000 // added documents that are kept before old ones are deleted
	leastRecall  = 0.97 // mean
	heapGrowth   = 1.25 // the most, from before the training to the last quarter,
	heapAllowed  = 32 << 20
	documentsGet = 200 // that are looked at with one request
)

// errSoak says that something was not as it has to be; the report has it.
var errSoak = errors.New("the soak found faults")

type soaking struct {
	o     options
	in    *input
	ref   *reference
	child *child
	start time.Time

	mu       sync.Mutex
	report   soakReport
	searches tally
	missed   int
	wanted   int
}

func soak(ctx context.Context, o options, in *input, stderr io.Writer) (_ report, err error) {
	s := &soaking{o: o, in: in}
	if s.ref, err = newReference(ctx, in, soakQueries); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.data, "soak-") // what the soak has changed is of no use to another
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := s.fill(ctx, dir); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log.txt"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if s.child, err = startChild(dir, log); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.child.stop()) }()
	if err := s.everything(ctx, stderr); err != nil {
		return nil, err
	}
	if err := s.compare(ctx, "at the end"); err != nil {
		return nil, err
	}
	if err := s.child.kill(); err != nil {
		return nil, err
	}
	if s.child, err = startChild(dir, log); err != nil {
		return nil, err
	}
	if err := s.compare(ctx, "after kill -9"); err != nil {
		return nil, err
	}
	return s.verdict()
}

// fill makes the collection in the folder of data, where it is kept, and copies it.
func (s *soaking) fill(ctx context.Context, dir string) error {
	st, err := store.Open(ctx, s.o.data, nil)
	if err != nil {
		return err
	}
	_, err = s.in.fill(ctx, st)
	if err = errors.Join(err, st.Close(ctx)); err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(dir, collection), os.DirFS(filepath.Join(s.o.data, collection)))
}

// wrong notes a fault; of a thousand the first ones say enough.
func (s *soaking) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.report.Wrong) < 20 {
		s.report.Wrong = append(s.report.Wrong, fmt.Sprintf("%.1f s: ", time.Since(s.start).Seconds())+fmt.Sprintf(format, args...))
	}
}

// everything does all there is to do at once.
func (s *soaking) everything(ctx context.Context, stderr io.Writer) error {
	s.start = time.Now()
	during, cancel := context.WithTimeout(ctx, s.o.soak)
	defer cancel()
	group := float64(s.o.group)
	documents := float64(max(s.o.documents, 1))
	var added, deleted, updated, retrained tally
	var wg sync.WaitGroup
	wg.Go(func() { s.search(during) })
	wg.Go(func() { s.pace(during, ctx, 1, documents/group, &added, s.add) })
	wg.Go(func() { s.pace(during, ctx, 2, documents/group, &deleted, s.delete) })
	wg.Go(func() { s.pace(during, ctx, 3, 5, &updated, s.update) })
	wg.Go(func() {
		select {
		case <-during.Done():
		case <-time.After(s.o.soak / 3):
			s.pace(during, ctx, 4, 1/s.o.soak.Seconds(), &retrained, s.retrain) // one
		}
	})
	wg.Go(func() {
		tick := time.NewTicker(s.o.soak / soakSamples)
		defer tick.Stop()
		for {
			s.sample(ctx, stderr)
			select {
			case <-during.Done():
				return
			case <-tick.C:
			}
		}
	})
	wg.Wait()
	r := &s.report
	r.Seconds = time.Since(s.start).Seconds()
	r.Searches, r.Added, r.Deleted, r.Updated, r.Retrain = summary(&s.searches), summary(&added), summary(&deleted), summary(&updated), summary(&retrained)
	return ctx.Err()
}

// change makes one change and returns how long the service took; what it sends is
// answered even if the time of the soak is over.
type change func(ctx context.Context, c *client, rng *rand.Rand, n int) (time.Duration, error)

// pace makes changes at a rate, one after the other.
func (s *soaking) pace(during, ctx context.Context, stream uint64, perSecond float64, t *tally, change change) {
	c := &client{address: s.child.address}
	defer c.close()
	rng := rand.New(rand.NewPCG(s.o.seed, stream))
	start := time.Now()
	defer func() { t.span = time.Since(start) }()
	for n := 0; ; n++ {
		due := start.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))
		select {
		case <-during.Done():
			return
		case <-time.After(time.Until(due)):
		}
		if during.Err() != nil {
			return
		}
		took, err := change(ctx, c, rng, n)
		switch {
		case err != nil && ctx.Err() == nil:
			t.note("failed", 1)
			s.wrong("%v", err)
			return // what is stored is not known any more
		case took > 0:
			t.took = append(t.took, took)
		}
	}
}

const path = "/indices/" + collection

func timed(do func() error) (time.Duration, error) {
	start := time.Now()
	err := do()
	return max(time.Since(start), 1), err
}

// add adds a group of documents; one in five replaces one that is there.
func (s *soaking) add(ctx context.Context, c *client, rng *rand.Rand, n int) (time.Duration, error) {
	docs, metadata := make([][]float32, s.o.group), make([]any, s.o.group)
	ids, of := make([]string, s.o.group), make([]int, s.o.group)
	for i := range docs {
		ids[i] = fmt.Sprintf("new-%d-%d", n, i)
		if rng.IntN(5) == 0 {
			if id, _, ok := s.ref.pick(rng); ok {
				ids[i] = id
			}
		}
		s.ref.adding(ids[i])
		of[i] = rng.IntN(len(s.in.docs))
		docs[i], metadata[i] = s.in.docs[of[i]], map[string]any{"_id": ids[i], "version": n}
	}
	body, err := updateJSON(docs, s.in.dim, metadata)
	if err != nil {
		return 0, err
	}
	took, err := timed(func() error {
		status, answer, err := c.do(ctx, message("POST", path+"/update", body))
		if code := code(status, answer, err); code != "" {
			return fmt.Errorf("update: %s: %s: %w", code, answer, errors.Join(errRefused, err))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for i, id := range ids {
		s.ref.changed(id, func(e *entry) { e.of, e.version, e.gone = of[i], n, false })
	}
	return took, nil
}

// delete deletes as many documents as are too many, at most a group of them.
func (s *soaking) delete(ctx context.Context, c *client, rng *rand.Rand, _ int) (time.Duration, error) {
	s.ref.mu.Lock()
	surplus := s.ref.live - len(s.ref.scores[0]) - heldExtra
	s.ref.mu.Unlock()
	var ids []string
	for range min(surplus, s.o.group) {
		if id, _, ok := s.ref.pick(rng); ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	took, err := timed(func() error {
		return c.call(ctx, "DELETE", path+"/documents", map[string]any{"ids": ids}, nil)
	})
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		s.ref.changed(id, func(e *entry) { e.gone = true })
	}
	return took, nil
}

// update changes the metadata of a document.
func (s *soaking) update(ctx context.Context, c *client, rng *rand.Rand, n int) (time.Duration, error) {
	id, _, ok := s.ref.pick(rng)
	if !ok {
		return 0, nil
	}
	version := -1 - n
	var out struct{ Updated int }
	took, err := timed(func() error {
		return c.call(ctx, "POST", path+"/metadata/update", map[string]any{
			"condition": "_id = ?", "parameters": []any{id}, "updates": map[string]any{"version": version},
		}, &out)
	})
	if err != nil {
		return 0, err
	}
	if out.Updated != 1 {
		s.wrong("metadata of document %q: %d documents were updated; want 1", id, out.Updated)
	}
	s.ref.changed(id, func(e *entry) { e.version = version })
	return took, nil
}

func (s *soaking) retrain(ctx context.Context, c *client, _ *rand.Rand, _ int) (time.Duration, error) {
	c.patience = time.Hour
	return timed(func() error { return c.call(ctx, "POST", path+"/retrain", nil, nil) })
}

// search asks queries at a rate, in an open loop, and checks the answers.
func (s *soaking) search(ctx context.Context) {
	var messages [][]byte
	for i := range s.ref.scores {
		body, err := s.in.searchJSON(i, 1, s.o.k)
		if err != nil {
			s.wrong("%v", err)
			return
		}
		messages = append(messages, message("POST", path+"/search", body))
	}
	var clients []ask
	for range soakClients {
		c := &client{address: s.child.address}
		defer c.close()
		clients = append(clients, func(i int) string {
			i %= len(messages)
			asked := time.Now()
			// Without the context: the last answers are waited for.
			status, body, err := c.do(context.WithoutCancel(ctx), messages[i])
			if code := code(status, body, err); code != "" {
				s.wrong("search: %s: %s", code, body)
				return code
			}
			return s.judge(i, asked, body)
		})
	}
	s.searches = *openLoop(ctx, clients, s.o.rate, s.o.soak, rand.New(rand.NewPCG(s.o.seed, 0)))
}

// judge checks an answer.
func (s *soaking) judge(query int, asked time.Time, body []byte) string {
	hits, err := hitsOf(body)
	if err != nil {
		s.wrong("search: %v: %s", err, body)
		return "another form"
	}
	wrong, missed := s.ref.check(query, asked, hits, s.o.k)
	if wrong != "" {
		s.wrong("query %d: %s", query, wrong)
		return "wrong answer"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed += missed
	s.wanted += len(hits)
	return ""
}

// compare looks at every document, and at its vectors.
func (s *soaking) compare(ctx context.Context, when string) error {
	c := &client{address: s.child.address}
	defer c.close()
	ids, entries := s.ref.all()
	byID := map[string]entry{}
	var living []string
	for i, id := range ids {
		if byID[id] = entries[i]; !entries[i].gone {
			living = append(living, id)
		}
	}
	var st struct{ Documents int }
	if err := c.call(ctx, "GET", path+"/stats", nil, &st); err != nil {
		return err
	}
	if st.Documents != len(living) {
		s.wrong("%s: %d documents; want %d", when, st.Documents, len(living))
	}
	for from := 0; from < len(living); from += documentsGet {
		some := living[from:min(from+documentsGet, len(living))]
		var out struct {
			Documents []struct {
				ID       string
				Metadata struct{ Version int }
				Base64   []byte `json:"embeddings_b64"`
			}
		}
		if err := c.call(ctx, "GET", path+"/documents?"+url.Values{"vectors": {"base64"}, "id": some}.Encode(), nil, &out); err != nil {
			s.wrong("%s: %v", when, err) // one of them is lost
			continue
		}
		for i, d := range out.Documents {
			e := byID[some[i]]
			switch {
			case d.ID != some[i] || d.Metadata.Version != e.version:
				s.wrong("%s: document %q has id %q and version %d; want %d", when, some[i], d.ID, d.Metadata.Version, e.version)
			case e.of < len(s.in.docs):
				if cos := likeness(d.Base64, s.in.docs[e.of], s.in.dim); !(cos > 0.95) {
					s.wrong("%s: document %q has other vectors: mean cosine %.3f", when, some[i], cos)
				}
			}
		}
	}
	s.report.Checked = len(ids)
	return ctx.Err()
}

// likeness is the mean cosine of rows as they came over the wire with others.
func likeness(wire []byte, rows []float32, dim int) float64 {
	if len(wire) != 4*len(rows) {
		return 0
	}
	rows = unit(rows, dim)
	sum := 0.0
	for i, x := range floatsOf(wire) {
		sum += float64(x) * float64(rows[i])
	}
	return sum * float64(dim) / float64(len(rows))
}
