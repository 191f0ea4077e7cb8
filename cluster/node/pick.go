package node

import (
	"fmt"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

// sets remembers which indexes were searched together, so that they are not compared
// with each other for each query.
type sets struct {
	mu   sync.Mutex
	list []*index.Set
}

const maxSets = 64

func (s *sets) of(files []*index.Index) (*index.Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, set := range s.list {
		if slices.Equal(set.Files(), files) {
			copy(s.list[1:i+1], s.list[:i]) // the last one used is the first
			s.list[0] = set
			return set, nil
		}
	}
	set, err := index.NewSet(files...)
	if err == nil {
		s.list = append([]*index.Set{set}, s.list[:min(len(s.list), maxSets-1)]...)
	}
	return set, err
}

// forget drops what has an index that is about to be closed.
func (s *sets) forget(ix *index.Index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(set *index.Set) bool { return slices.Contains(set.Files(), ix) })
}

// picked are the replicas that a query is about, in one state each. They stay open
// until close.
type picked struct {
	held     []*replica
	snap     *index.SetSnapshot
	searcher *search.Multi
	applied  []uint64
}

func (p *picked) close() {
	if p.searcher != nil {
		_ = p.searcher.Close() // has nothing of its own
	}
	if p.snap != nil {
		_ = p.snap.Close()
	}
	for _, r := range p.held {
		r.release()
	}
}

// pick takes the replicas of a query, or tells why not.
func (n *Node) pick(q *wire.Query) (_ *picked, no *wire.Answer) {
	p := &picked{}
	defer func() {
		if no != nil {
			p.close()
		}
	}()
	failed := func(err error) (*picked, *wire.Answer) {
		return nil, &wire.Answer{Status: wire.Failed, Text: err.Error()}
	}
	var files []*index.Index
	for i, s := range q.Shards {
		if slices.ContainsFunc(q.Shards[:i], func(o wire.ShardAt) bool { return o.Shard == s.Shard }) {
			return nil, refused(fmt.Errorf("%w: shard %d is asked for twice", search.ErrQuery, s.Shard))
		}
		r := n.replica(key{q.Collection, q.Generation, s.Shard})
		var ix *index.Index
		if r != nil {
			if ix = r.use(); ix != nil {
				p.held = append(p.held, r)
			}
		}
		if ix == nil || !r.state().Ready {
			return nil, &wire.Answer{Status: wire.WrongGeneration, Text: fmt.Sprintf("generation %d of shard %d is not here", q.Generation, s.Shard)}
		}
		files = append(files, ix)
	}
	if len(files) == 0 {
		return nil, refused(fmt.Errorf("%w: no shards", search.ErrQuery))
	}
	set, err := n.sets.of(files)
	if err != nil {
		return failed(err)
	}
	if p.snap, err = set.Snapshot(); err != nil {
		return failed(err)
	}
	for i, snap := range p.snap.Parts() {
		applied, err := snap.Applied()
		if err != nil {
			return failed(err)
		}
		applied = max(applied, p.held[i].base)
		if s := q.Shards[i]; applied < s.Applied {
			return nil, &wire.Answer{Status: wire.Behind, Text: fmt.Sprintf("shard %d has applied %d of its log, %d is asked for", s.Shard, applied, s.Applied)}
		}
		p.applied = append(p.applied, applied)
	}
	if p.searcher, err = search.NewMultiAt(n.ctx, p.snap, &search.MultiOptions{Threads: n.c.Threads, Scheduler: n.scheduler, Logger: n.log}); err != nil {
		return failed(err)
	}
	return p, nil
}
