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
// with each other for each query, and what searching them takes is not allocated anew.
type sets struct {
	mu   sync.Mutex
	list []together
}

type together struct {
	*index.Set
	searcher *search.Multi
}

const maxSets = 64

// of finds the set of some files, or makes it with a searcher that open returns.
func (s *sets) of(files []*index.Index, open func(*index.Set) (*search.Multi, error)) (together, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range s.list {
		if slices.Equal(t.Files(), files) {
			copy(s.list[1:i+1], s.list[:i]) // the last one used is the first
			s.list[0] = t
			return t, nil
		}
	}
	set, err := index.NewSet(files...)
	if err != nil {
		return together{}, err
	}
	t := together{Set: set}
	if t.searcher, err = open(set); err != nil {
		return together{}, err
	}
	s.list = append([]together{t}, s.list[:min(len(s.list), maxSets-1)]...)
	return t, nil
}

// forget drops what has an index that is about to be closed.
func (s *sets) forget(ix *index.Index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(t together) bool { return slices.Contains(t.Files(), ix) })
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
	if p.snap != nil {
		_ = p.snap.Close()
	}
	for _, r := range p.held {
		r.release()
	}
}

// pick takes the replicas of a query, or tells why not.
func (n *Node) pick(q *wire.Query) (got *picked, no *wire.Answer) {
	p := &picked{}
	defer func() {
		if got == nil { // also where this ends in a panic
			p.close()
		}
	}()
	failed := func(err error) (*picked, *wire.Answer) {
		return nil, &wire.Answer{Status: wire.Failed, Text: n.inside("a query", err).Error()}
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
	set, err := n.sets.of(files, func(set *index.Set) (*search.Multi, error) {
		return search.NewMulti(n.ctx, set, &search.MultiOptions{Threads: n.c.Threads, Scheduler: n.scheduler, Logger: n.log})
	})
	if err != nil {
		return failed(err)
	}
	if p.snap, err = set.Snapshot(); err != nil {
		return failed(err)
	}
	for i, snap := range p.snap.Parts() {
		last, err := snap.Applied()
		if err != nil {
			return failed(err)
		}
		applied := max(last.Sequence, p.held[i].base)
		if s := q.Shards[i]; applied < s.Applied {
			p.held[i].hint()
			return nil, &wire.Answer{Status: wire.Behind, Text: fmt.Sprintf("shard %d has applied %d of its log, %d is asked for", s.Shard, applied, s.Applied)}
		}
		p.applied = append(p.applied, applied)
	}
	p.searcher = set.searcher.At(p.snap)
	return p, nil
}
