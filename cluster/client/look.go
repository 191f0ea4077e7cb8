package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// maxHeld is how many bytes of listed documents are held at a time: they are given in the
// order of the list.
const maxHeld = 256 << 20

// Place is where a document is in a generation. All replicas of a shard give the same
// ordinal.
type Place struct {
	Shard   int
	Ordinal uint32
}

// Document is a document of a collection.
type Document struct {
	Place
	ID      string
	Payload []byte    // nil unless asked for, or if there is none
	Vectors []float32 // [tokens, dimension], row-major; nil unless asked for
	// Applied is the entry of the shard's log up to which the document was read.
	Applied uint64
}

// Number is the document id of a place.
func (p Place) Number() uint64 {
	return collection.NumberOf(&search.Hit{Part: p.Shard, Ordinal: p.Ordinal})
}

// placeOf is the inverse; false if no collection has so many shards.
func placeOf(number uint64) (Place, bool) {
	shard := number >> 32
	return Place{int(shard), uint32(number)}, shard <= wire.MaxShards
}

// wanted says which documents to read, and what of them.
type wanted struct {
	collection.Selection
	collection.ReadOptions
	applied map[int]uint64 // what shards must have applied, beside what this client knows of
}

// list tells whether the documents are named one by one.
func (w *wanted) list() bool { return w.IDs != nil || w.Numbers != nil }

// Documents reads the documents of a selection in one way at most, those of a list in its
// order, others in the order of shards and of ordinals in them. A list of more than 256 MiB
// is [ErrTooLarge].
//
// Those of a shard that come in one answer are of one state
// of it; while changes go on, a long list is of several. A shard that does not answer is
// an error ([*PartialError]) whatever the configuration says. Other errors:
// [collection.ErrSelection], [condition.ErrUnknownField], and those of Search.
func (f *Client) Documents(ctx context.Context, s collection.Selection, o collection.ReadOptions) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		err := s.Check()
		if err == nil {
			err = f.documentsOf(ctx, &wanted{Selection: s, ReadOptions: o}, func(d Document) bool { return yield(d, nil) })
		}
		if err != nil {
			yield(Document{}, err)
		}
	}
}

// Oldest are the documents of a shard with the lowest ordinals, without what is stored
// beside them. Passages of one are one, which has its id.
func (f *Client) Oldest(ctx context.Context, shard, most int) (all []Document, err error) {
	m, err := f.collection()
	if err != nil {
		return nil, err
	}
	for l := (&wire.Look{All: true, Whole: true, Limit: most}); len(all) < most; {
		page, err := f.look(ctx, m, shard, l)
		if err != nil {
			return nil, err
		}
		for i := range page.Documents {
			d, err := documentOf(shard, page, i)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
		if l.From, l.Limit = page.Next, most-len(all); !page.More {
			break
		}
	}
	return all, nil
}

// CheckFields makes sure that some document has each field of a condition.
func (f *Client) CheckFields(ctx context.Context, where *condition.Condition) error {
	w := wanted{Selection: collection.Selection{Where: where}, ReadOptions: collection.ReadOptions{Limit: 1}}
	m, err := f.collection()
	if err != nil {
		return err
	}
	_, err = f.firstPages(ctx, m, &w)
	return err
}

// Shards describes each shard, as one of its replicas is now.
func (f *Client) Shards(ctx context.Context) ([]wire.ShardStats, error) {
	m, err := f.collection()
	if err != nil {
		return nil, err
	}
	found, err := f.lookAll(ctx, m, func(int) *wire.Look { return &wire.Look{Stats: true} })
	if err != nil {
		return nil, err
	}
	all := make([]wire.ShardStats, len(found))
	for s, answer := range found {
		if answer.Stats == nil {
			return nil, fmt.Errorf("shard %d: %w: no figures", s, wire.ErrMessage)
		}
		all[s] = *answer.Stats
	}
	return all, nil
}

func (f *Client) documentsOf(ctx context.Context, w *wanted, give func(Document) bool) error {
	m, err := f.collection()
	if err != nil {
		return err
	}
	if w.list() {
		return f.listed(ctx, m, w, give)
	}
	pages, err := f.firstPages(ctx, m, w)
	if err != nil {
		return err
	}
	n := 0
	for s, page := range pages {
		pages[s] = nil // what was read may be forgotten
		for {
			for i := range page.Documents {
				d, err := documentOf(s, page, i)
				if err != nil {
					return err
				}
				if n++; !give(d) || n == w.Limit {
					return nil
				}
			}
			if !page.More {
				break
			}
			l, err := w.look(m)
			if err != nil {
				return err
			}
			l.From, l.Bytes = page.Next, 0
			if page, err = f.look(ctx, m, s, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// look is what one shard is asked for.
func (w *wanted) look(m *topology.Map) (*wire.Look, error) {
	l := &wire.Look{Payload: w.Metadata, Vectors: w.Vectors, Limit: w.Limit, Bytes: max(4<<20/m.Shards(), 64<<10)}
	if w.Where == nil {
		l.All = true
		return l, nil
	}
	var err error
	l.Filter, err = whereJSON(w.Where)
	return l, err
}

// firstPages are the first documents of each shard, when all say what they have.
func (f *Client) firstPages(ctx context.Context, m *topology.Map, w *wanted) ([]*wire.Found, error) {
	l, err := w.look(m)
	if err != nil {
		return nil, err
	}
	pages, err := f.lookAll(ctx, m, func(int) *wire.Look { one := *l; return &one })
	if err != nil || w.Where == nil {
		return pages, err
	}
	lists := make([][]string, len(pages))
	for s, p := range pages {
		lists[s] = p.Unknown
	}
	return pages, known(w.Where, lists)
}

// listed reads the documents of a list.
func (f *Client) listed(ctx context.Context, m *topology.Map, w *wanted, give func(Document) bool) error {
	const most = 2 << 20 // bytes of a list in one message
	looks, sizes := map[int][]*wire.Look{}, map[int]int{}
	of := func(s, size int) *wire.Look {
		if len(looks[s]) == 0 || sizes[s]+size > most {
			looks[s], sizes[s] = append(looks[s], &wire.Look{Applied: w.applied[s], Payload: w.Metadata, Vectors: w.Vectors}), 0
		}
		sizes[s] += size
		return looks[s][len(looks[s])-1]
	}
	for _, id := range w.IDs {
		l := of(m.ShardOf(id), 3+len(id))
		l.IDs = append(l.IDs, id)
	}
	for _, n := range w.Numbers {
		if p, ok := placeOf(n); ok && p.Shard < m.Shards() {
			l := of(p.Shard, 11)
			l.Ordinals = append(l.Ordinals, p.Ordinal)
		}
	}
	byID, byPlace := map[string]Document{}, map[Place]Document{}
	var mu sync.Mutex
	held := 0
	err := f.each(m, func(s int) error {
		for rest := looks[s]; len(rest) > 0; {
			l := rest[0]
			page, err := f.look(ctx, m, s, l)
			if err != nil {
				return err
			}
			for i := range page.Documents {
				d, err := documentOf(s, page, i)
				if err != nil {
					return err
				}
				mu.Lock()
				byID[d.ID], byPlace[d.Place] = d, d
				held += len(d.ID) + len(d.Payload) + 4*len(d.Vectors)
				over := held > maxHeld
				mu.Unlock()
				if over {
					return fmt.Errorf("%w: a list of documents with more than %d bytes", ErrTooLarge, maxHeld)
				}
			}
			if l.From = page.Next; !page.More {
				rest = rest[1:]
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	n := 0
	for i := range len(w.IDs) + len(w.Numbers) {
		var d Document
		var there bool
		if i < len(w.IDs) {
			d, there = byID[w.IDs[i]]
		} else if p, ok := placeOf(w.Numbers[i-len(w.IDs)]); ok {
			d, there = byPlace[p]
		}
		if !there {
			continue
		}
		if n++; !give(d) || n == w.Limit {
			return nil
		}
	}
	return nil
}

func documentOf(shard int, page *wire.Found, i int) (Document, error) {
	d := &page.Documents[i]
	out := Document{Place: Place{shard, d.Ordinal}, ID: d.ID, Payload: d.Payload, Applied: page.Applied}
	if len(d.Vectors)%4 != 0 {
		return out, fmt.Errorf("document %q: %w: vectors of %d bytes", d.ID, wire.ErrMessage, len(d.Vectors))
	}
	if d.Vectors != nil {
		out.Vectors = make([]float32, len(d.Vectors)/4)
		for i := range out.Vectors {
			out.Vectors[i] = math.Float32frombits(binary.LittleEndian.Uint32(d.Vectors[4*i:]))
		}
	}
	return out, nil
}

// lookAll asks every shard.
func (f *Client) lookAll(ctx context.Context, m *topology.Map, what func(s int) *wire.Look) ([]*wire.Found, error) {
	all := make([]*wire.Found, m.Shards())
	err := f.each(m, func(s int) (err error) {
		all[s], err = f.look(ctx, m, s, what(s))
		return err
	})
	return all, err
}

// each does something for every shard, several at a time. The error is that of the first
// shard that has one.
func (f *Client) each(m *topology.Map, do func(s int) error) error {
	const most = 16
	errs := make([]error, m.Shards())
	turns := make(chan struct{}, most)
	var wg sync.WaitGroup
	for s := range errs {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			errs[s] = do(s)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// look asks the replicas of a shard, one after another, until one answers.
func (f *Client) look(ctx context.Context, m *topology.Map, s int, l *wire.Look) (*wire.Found, error) {
	within, done, err := f.begin(ctx, f.c.Deadline)
	if err != nil {
		return nil, err
	}
	defer done()
	l.Collection, l.Generation, l.Shard = m.ID(), m.Current.Number, s
	f.mu.Lock()
	l.Applied = max(l.Applied, f.seen[s])
	f.mu.Unlock()
	reason := "no node serves it"
	tried := map[string]bool{}
	behind, patience := false, time.Now().Add(settle)
	for within.Err() == nil {
		changed := f.watch.Changed()
		var ready []topology.Replica
		for _, r := range f.watch.Replicas(m.ID(), m.Current.Number, s) {
			if r.Ready && !r.Draining && !tried[r.Node] {
				ready = append(ready, r)
			}
		}
		if len(ready) == 0 && len(tried) == 0 && f.settles(within, changed) {
			continue
		}
		if len(ready) == 0 && behind && time.Now().Before(patience) {
			// Those of a generation that has just taken over catch up in a moment.
			select {
			case <-time.After(10 * time.Millisecond):
			case <-within.Done():
			}
			behind = false
			clear(tried)
			continue
		}
		if len(ready) == 0 {
			break
		}
		node := f.peers.choose(ready, f.c.Zone, nil)
		tried[node] = true
		found, err := f.lookAt(within, node, l, len(ready))
		switch {
		case err != nil:
			reason = fmt.Sprintf("node %s: %v", node, err)
		case found.Status == wire.OK:
			return found, nil
		case found.Status == wire.Refused:
			return nil, answerError(&wire.Answer{Code: found.Code, Text: found.Text})
		default:
			behind = behind || found.Status == wire.Behind
			reason = fmt.Sprintf("node %s: %v %s", node, found.Status, found.Text)
		}
	}
	switch {
	case f.end.Err() != nil:
		return nil, search.ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	if err := f.removed(); err != nil {
		return nil, err
	}
	docs := f.documents(m, s)
	return nil, &PartialError{search.Coverage{Parts: m.Shards(), Of: docs, Missing: []search.MissingPart{{Part: s, Name: fmt.Sprintf("shard %d", s), Docs: docs, Reason: reason}}}}
}

// lookAt asks a node, for a part of the time where others are left.
func (f *Client) lookAt(ctx context.Context, node string, l *wire.Look, left int) (*wire.Found, error) {
	deadline, _ := ctx.Deadline()
	most := time.Until(deadline) / time.Duration(left)
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	l.Left = most * 9 / 10
	msg, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	reply, err := bus.Request(ctx, f.bus.Conn, bus.LookSubject(node), msg)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errors.New("no answer in time")
	}
	if err != nil {
		return nil, err
	}
	found := &wire.Found{}
	return found, wire.ReadJSON(reply.Data, found)
}
