package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/clustertest"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
)

var (
	seed    = flag.Uint64("seed", 1, "of the model test and of the faults of stores")
	misfits = flag.Int("faults", 0, "how many faults of nodes and stores the model test has (0: a few)")
	over    = flag.String("over", "folder", "the store of the model test: folder, bucket or server")
)

// labelled are the errors that users are told of what is away, and what a change may end with then.
var labelled = []error{
	collection.ErrUnreachable, collection.ErrBusy, collection.ErrClosed, collection.ErrReopened,
	storage.ErrOutcomeUnknown, journal.ErrUnknown,
	context.DeadlineExceeded,
}

func isLabelled(err error) bool {
	return slices.ContainsFunc(labelled, func(l error) bool { return errors.Is(err, l) })
}

// tally is what a run of the model test saw.
type tally struct {
	changes, acknowledged, refused, unknown, reads, answered, turned, settled atomic.Int64
	mu                                                                        sync.Mutex
	faults                                                                    map[string]int
}

func (c *tally) fault(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[kind]++
}

// model is a cluster that is written to while it fails.
type model struct {
	*testing.T
	c     *clustertest.Cluster
	p     *picture
	tally tally
	ctx   context.Context
	// calm is read-locked by changes and reads, and locked by settle.
	calm sync.RWMutex
}

const (
	modelShards = 3
	opTime      = 3 * time.Second
	ringMost    = 30 // documents in the collection that forgets
)

// node is one that runs, at random.
func (m *model) node(r *rand.Rand) *clustertest.Node {
	for {
		all := m.c.Nodes()
		slices.SortFunc(all, func(a, b *clustertest.Node) int { return strings.Compare(a.Name, b.Name) })
		if len(all) > 0 {
			return all[r.IntN(len(all))]
		}
		time.Sleep(time.Millisecond)
	}
}

// failed reports whether an operation failed; errors that are not labelled end the test.
func (m *model) failed(what string, n *clustertest.Node, err error) bool {
	if err == nil {
		return false
	}
	if !isLabelled(err) && m.ctx.Err() == nil {
		m.Errorf("%s through %s fails without a label: %v", what, n.Name, err)
	}
	return true
}

// change makes one change of own documents through a node.
func (m *model) change(s *share, n *clustertest.Node) {
	ctx, stop := context.WithTimeout(m.ctx, opTime)
	defer stop()
	c, err := n.Get("main")
	if err != nil {
		m.failed("a look for the collection", n, err)
		return
	}
	m.tally.changes.Add(1)
	begun := m.p.step()
	id := s.id(s.r.IntN(idsOfWriter))
	d := s.docs[id]
	number, other := s.r.IntN(4), s.r.IntN(4)
	where := collection.Selection{Where: conditiontest.Bind(m, fmt.Sprintf("w = '%s' AND n = %d", s.writer, number))}
	matches := func(v value) bool { return v.version > 0 && v.n == number }
	var single, all effect // of the document, or of all
	var affected index.Affected
	stores := false
	switch op := s.r.IntN(10); {
	case op < 5: // replace or add
		s.version++
		v := value{s.version, number}
		single = func(value) value { return v }
		replace := op < 4
		stores = true
		if !replace {
			single = func(old value) value {
				if old.version > 0 {
					return old
				}
				return v
			}
		}
		var r collection.Receipt
		if r, err = c.Update(ctx, s.documents(id, v), collection.UpdateOptions{Replace: replace}); err == nil {
			d.shard = int(r.Numbers[0] >> 32)
			if !replace && !d.keep(begun, func(v value) bool { return v.version == 0 }) {
				m.Errorf("%s was added and is there: %v", id, d.may())
			}
		}
	case op < 7:
		single = func(value) value { return value{} }
		affected, err = c.Delete(ctx, collection.Selection{IDs: []string{id, "nobody"}})
	case op < 8:
		all = func(v value) value {
			if matches(v) {
				return value{}
			}
			return v
		}
		affected, err = c.Delete(ctx, where)
	default:
		all = func(v value) value {
			if matches(v) {
				v.n = other
			}
			return v
		}
		affected, err = c.UpdateMetadata(ctx, where, map[string]json.RawMessage{"n": fmt.Append(nil, other)})
	}
	m.changed(s, n, id, begun, stores, single, all, matches, affected, err)
}

// changed enters what became of a change in the picture.
func (m *model) changed(s *share, n *clustertest.Node, id string, begun int64, stores bool, single, all effect,
	matches func(value) bool, affected index.Affected, err error) {
	of := map[string]*pictured{id: s.docs[id]}
	if all != nil {
		of, single = s.docs, all
	}
	switch {
	case err == nil:
		m.tally.acknowledged.Add(1)
		least, most, step := 0, 0, m.p.step()
		for _, d := range of {
			hit := 0
			for v := range d.may() {
				if matches(v) {
					hit++
				}
			}
			if hit > 0 {
				most++
			}
			if hit == len(d.may()) {
				least++
			}
			// A change that finds nothing is none: it tells nothing of its shard.
			made := all == nil && (stores || affected.Documents > 0) || all != nil && hit == len(d.may())
			if made && d.shard >= 0 {
				m.p.told(n, d.shard, begun)
			}
			d.apply(step, single)
		}
		if all != nil && (affected.Documents < least || affected.Documents > most) {
			m.Errorf("a change by a condition has changed %d documents, not %d to %d", affected.Documents, least, most)
		}
	case errors.Is(err, index.ErrDuplicateID):
		m.tally.acknowledged.Add(1)
		if !s.docs[id].keep(m.p.step(), func(v value) bool { return v.version > 0 }) {
			m.Errorf("%s is said to be there, and was deleted", id)
		}
	// no document has the field now
	case errors.Is(err, condition.ErrUnknownField), errors.Is(err, collection.ErrEmpty):
		m.tally.refused.Add(1)
	case errors.Is(err, collection.ErrBusy):
		m.tally.refused.Add(1)
	default:
		m.tally.unknown.Add(1)
		m.failed("a change", n, err)
		for _, d := range of {
			d.pending = append(d.pending, single)
			d.close()
		}
	}
}

// read reads all own documents through a node, in one way or another, and compares.
func (m *model) read(s *share, n *clustertest.Node, patience time.Duration) (answered bool) {
	ctx, stop := context.WithTimeout(m.ctx, patience)
	defer stop()
	m.tally.reads.Add(1)
	known := map[int]int64{}
	for shard := range modelShards {
		known[shard] = m.p.known(n, shard)
	}
	shown, err := m.look(ctx, s, n)
	if errors.Is(err, condition.ErrUnknownField) || errors.Is(err, collection.ErrEmpty) {
		err = nil
	}
	var wrong *wrongError
	if errors.As(err, &wrong) {
		m.Errorf("%s through %s: %v", s.writer, n.Name, err)
		return false
	}
	if m.failed("a read", n, err) {
		m.tally.turned.Add(1)
		return false
	}
	m.tally.answered.Add(1)
	if err := s.compare(shown, func(shard int) int64 { return known[shard] }); err != nil {
		m.Errorf("%s through %s: %v", s.writer, n.Name, err)
	}
	return true
}

type wrongError struct{ error }

func (m *model) look(ctx context.Context, s *share, n *clustertest.Node) (seen, error) {
	shown := seen{}
	c, err := n.Get("main")
	if err != nil {
		return nil, err
	}
	v, err := c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	own := collection.Selection{Where: conditiontest.Bind(m, fmt.Sprintf("w = '%s'", s.writer))}
	way := s.r.IntN(3)
	if way == 0 {
		for d, err := range v.Documents(ctx, own, collection.ReadOptions{Metadata: true}) {
			if err != nil {
				return nil, err
			}
			if err := shown.add(d.ID, d.Metadata); err != nil {
				return nil, &wrongError{err}
			}
		}
		return shown, nil
	}
	filter, err := v.Filter(ctx, own)
	if err != nil {
		return nil, err
	}
	o := search.Options{K: 1000, Mode: search.Exhaustive, Payload: true, Filter: filter}
	if way == 2 {
		o.Group, o.Passages = search.GroupBest, 4
	}
	results, err := v.Search(ctx, []search.Query{{Vectors: flat("v1 w0"), Dim: dim}}, o)
	if err != nil {
		return nil, err
	}
	if !results[0].Coverage.Complete() {
		return nil, &wrongError{fmt.Errorf("a result is partial and not an error: %+v", results[0].Coverage)}
	}
	for i, h := range results[0].Hits {
		if i > 0 && h.Score > results[0].Hits[i-1].Score {
			return nil, &wrongError{fmt.Errorf("hit %d has a higher score than the one before", i)}
		}
		of := []search.Hit{h}
		if way == 2 {
			of = h.Passages
		}
		for _, h := range of {
			metadata, err := v.MetadataOf(&h)
			if err == nil {
				err = shown.add(h.ID, metadata)
			}
			if err != nil {
				return nil, &wrongError{err}
			}
		}
	}
	return shown, nil
}

// work is what a writer does until the end.
func (m *model) work(s *share) {
	var n *clustertest.Node
	for m.ctx.Err() == nil && !m.Failed() {
		m.calm.RLock() // settle uses s.r as well
		if s.r.IntN(6) == 0 || n == nil || m.c.Node(n.Name) != n {
			n = m.node(s.r)
		}
		if s.r.IntN(3) == 0 {
			m.read(s, n, opTime)
		} else {
			m.change(s, n)
		}
		m.calm.RUnlock()
	}
}

// settle looks at all documents when all is calm: what was acknowledged is there, and what is not
// known of by now will not come.
func (m *model) settle(shares []*share, r *ring) {
	m.calm.Lock()
	defer m.calm.Unlock()
	m.c.Store.SetFaultShare(0)
	m.c.Store.Decide(nil)
	for _, n := range m.c.Nodes() {
		n.Resume()
	}
	m.c.Store.Wait()
	time.Sleep(4 * clustertest.Beat)
	n := m.node(shares[0].r)
	ctx, stop := context.WithTimeout(m.ctx, clustertest.Patience)
	defer stop()
	// A node that was told of a change of each shard knows all before it.
	missing := map[int]bool{0: true, 1: true, 2: true}
	for i := 0; len(missing) > 0 && ctx.Err() == nil; i++ {
		begun := m.p.step()
		c, err := n.Get("main")
		if err != nil {
			continue
		}
		got, err := c.Update(ctx, []collection.DocumentInput{document(fmt.Sprint("barrier", i), "x", `{"w":"barrier"}`)},
			collection.UpdateOptions{Replace: true})
		if m.failed("a change when all is calm", n, err) {
			continue
		}
		m.p.told(n, int(got.Numbers[0]>>32), begun)
		delete(missing, int(got.Numbers[0]>>32))
	}
	for _, s := range shares {
		for !m.read(s, n, clustertest.Patience) && !m.Failed() && ctx.Err() == nil {
			time.Sleep(clustertest.Beat)
		}
		for _, d := range s.docs {
			d.pending = nil
		}
	}
	r.check(ctx, n)
	if ctx.Err() != nil && m.ctx.Err() == nil {
		m.Error("the cluster does not come to rest")
	}
	m.tally.settled.Add(1)
}

// Random changes through random nodes, and all that can be read after each, while nodes are killed,
// paused, cut off, stopped and replaced, the clock of the store jumps, and the store loses requests
// and answers: no acknowledged change is lost, none comes back, no answer is wrong, and every error
// says what it is.
func TestModel(t *testing.T) {
	if *over == "folder" { // the others set the environment
		t.Parallel()
	}
	n := *misfits
	if n == 0 {
		n = effort.Cases(12, 200)
	}
	if effort.Brief() {
		n = 6
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := clustertest.New(t, clustertest.Options{Nodes: 4, Seed: *seed, Store: stores(t)[*over](t),
		Change: shards(modelShards, 2, small, func(c *cluster.Config) {
			c.Grace = 4 * time.Second
			c.CheckpointBytes = 32 * 64 << 10 // entries of one change each
			c.Deadline = opTime
		})})
	m := &model{T: t, c: c, p: newPicture(), ctx: ctx, tally: tally{faults: map[string]int{}}}
	most := uint64(ringMost)
	first := c.Node("n0")
	first.MustCreate(t, "main", collection.Config{Nbits: 4})
	first.MustCreate(t, "ring", collection.Config{MaxDocuments: &most})
	for _, n := range c.Nodes() {
		c.Get(n, "main")
		c.Get(n, "ring")
	}
	c.Store.SetFaultShare(.02)
	var shares []*share
	ring := &ring{m: m, acked: map[string]uint64{}}
	var working sync.WaitGroup
	for i := range 3 {
		s := newShare(m.p, fmt.Sprint("w", i), *seed)
		shares = append(shares, s)
		working.Go(func() { m.work(s) })
	}
	for i := range 2 {
		r := rand.New(rand.NewPCG(*seed, uint64(100+i)))
		working.Go(func() {
			for m.ctx.Err() == nil && !m.Failed() {
				m.calm.RLock()
				ring.add(m.node(r))
				m.calm.RUnlock()
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	working.Go(func() { m.phoenix(rand.New(rand.NewPCG(*seed, 200))) })
	r := rand.New(rand.NewPCG(*seed, 300))
	for i := range n {
		if m.fail(r, i); m.Failed() {
			break
		}
		if i%6 == 5 && i+1 < n {
			m.settle(shares, ring)
			c.Store.SetFaultShare(.02)
		}
	}
	if !m.Failed() {
		m.settle(shares, ring)
		m.cold(shares)
	}
	stop()
	working.Wait()
	t.Logf("seed %d: faults %v; store %v; %d times settled", *seed, m.tally.faults, c.Store.Counts(),
		m.tally.settled.Load())
	t.Logf("%d changes: %d acknowledged, %d refused, %d unknown; %d reads: %d answered, %d turned away",
		m.tally.changes.Load(), m.tally.acknowledged.Load(), m.tally.refused.Load(), m.tally.unknown.Load(),
		m.tally.reads.Load(), m.tally.answered.Load(), m.tally.turned.Load())
}

// cold ends all nodes, and looks at what a new one finds in the store.
func (m *model) cold(shares []*share) {
	m.calm.Lock()
	defer m.calm.Unlock()
	for _, n := range m.c.Nodes() {
		m.c.Kill(n.Name)
		m.c.Forget(n.Name)
	}
	judge := m.c.Start("judge")
	m.c.Get(judge, "main")
	for shard := range modelShards {
		m.p.told(judge, shard, m.p.step())
	}
	for _, s := range shares {
		for end := time.Now().Add(clustertest.Patience); !m.read(s, judge, clustertest.Patience) && !m.Failed(); {
			if time.Now().After(end) {
				m.Error("a new node does not answer")
			}
		}
	}
}
