package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// asked are shards of one generation, which a node is asked for.
type asked struct {
	Name       string    `json:"collection"`
	ID         string    `json:"id"`
	Generation uint64    `json:"generation"`
	Of         int       `json:"of"` // shards of the collection
	Shards     []shardAt `json:"shards"`
}

// check refuses shards that the collection does not have, and a shard that is named twice.
func (a *asked) check() error {
	if a.Of < 0 || a.Of > MaxShards || len(a.Shards) > a.Of {
		return fmt.Errorf("%w: %d shards of %d are asked for", errMessage, len(a.Shards), a.Of)
	}
	named := make([]bool, a.Of)
	for _, s := range a.Shards {
		if s.Shard < 0 || s.Shard >= a.Of || named[s.Shard] {
			return fmt.Errorf("%w: shard %d of %d is asked for, or twice", errMessage, s.Shard, a.Of)
		}
		named[s.Shard] = true
	}
	return nil
}

// shardAt is a shard, and the entry of its log that must have been applied.
type shardAt struct {
	Shard int    `json:"shard"`
	After uint64 `json:"after,omitempty"`
}

// request asks for shards, the same of each.
type request[In any] struct {
	asked
	In In `json:"in"`
}

// answered is what every answer for a shard says.
type answered struct {
	Shard int      `json:"shard"`
	Entry uint64   `json:"entry"`          // of its log, up to which it was applied
	Docs  uint64   `json:"docs,omitempty"` // live
	Error *failure `json:"error,omitempty"`
	// Unknown are the fields of the condition that no document of the shard has. Other shards may have them.
	Unknown []condition.Field `json:"unknown,omitzero"`
}

func (a *answered) common() *answered { return a }

// answer is a pointer to what a shard answers, which has [answered] in it.
type answer[T any] interface {
	*T
	common() *answered
}

// answers are those of a node, of each shard.
type answers[T any] struct {
	Shards []T `json:"shards"`
}

// MissingError is the error of a search that some shards do not answer. It wraps [collection.ErrUnreachable].
type MissingError struct {
	Name     string // of the collection
	Coverage search.Coverage
	is       []error
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("%v: %d of %d shards of %q do not answer", collection.ErrUnreachable,
		len(e.Coverage.Missing), e.Coverage.Parts, e.Name)
	for i, m := range e.Coverage.Missing {
		if i == 3 {
			return text + ", and others"
		}
		text += fmt.Sprintf("; %s: %s", m.Name, m.Reason)
	}
	return text
}

// Unwrap gives [collection.ErrUnreachable], and what shards have answered if that says more.
func (e *MissingError) Unwrap() []error { return append([]error{collection.ErrUnreachable}, e.is...) }

// opStats is the operation that the first holder is asked for, which gathers the changes.
const opStats = "stats"

// fan asks for shards, each of one of its holders, and others in the place of those that take too long.
type fan[T any] struct {
	s    *shards
	m    *Map
	op   string
	kind string // of requests that take about as long as each other
	// joint requests do some work once for all shards of a node.
	joint bool
	// in makes the request for some shards; of finds in the answer for a shard what all have.
	in func(a asked) any
	of func(*T) *answered

	mu      sync.Mutex
	missing map[int]error // why a shard has not answered
	refusal error         // the request is at fault
	stale   bool          // a node knows another generation
	stop    context.CancelFunc
}

// read asks for shards of the newest generation, until one generation has answered for them. missing are
// those that have not.
func read[T, In any, P answer[T]](ctx context.Context, s *shards, op string, which func(*Map) []int, in *In) (
	m *Map, parts map[int]*T, missing map[int]error, err error) {
	began, deadline := time.Now(), s.c.deadline()
	ctx, stop := context.WithTimeout(ctx, deadline)
	defer stop()
	defer context.AfterFunc(s.c.ctx, stop)()
	if m, err = s.filled(ctx); err != nil {
		return nil, nil, nil, err
	}
	parts = map[int]*T{}
	for try := 0; ; try++ {
		if m.Current == nil {
			return nil, nil, nil, fmt.Errorf("%w: %q", collection.ErrEmpty, s.name)
		}
		f := &fan[T]{s: s, m: m, op: op, kind: op, missing: map[int]error{}}
		f.in = func(a asked) any { return &request[In]{a, *in} }
		f.of = func(p *T) *answered { return P(p).common() }
		if k, ok := any(in).(interface{ kind() (string, bool) }); ok {
			name, joint := k.kind()
			f.kind, f.joint = f.kind+name, joint
		}
		wanted := slices.DeleteFunc(which(m), func(shard int) bool { return parts[shard] != nil })
		within, stop := context.WithCancel(ctx)
		f.stop = stop
		maps.Copy(parts, f.some(within, wanted, nil))
		stop()
		f.mu.Lock()
		refusal, missing, stale := f.refusal, f.missing, f.stale
		f.missing = nil // what was given up may still say something
		f.mu.Unlock()
		if refusal != nil {
			return nil, nil, nil, refusal
		}
		wanted = slices.DeleteFunc(wanted, func(shard int) bool { return parts[shard] != nil })
		saw(s, parts, f.of)
		// A shard whose nodes have died gets others in a moment.
		patient := stale || try == 0 || !s.c.c.Partial && time.Since(began) < deadline/3
		if len(wanted) == 0 || !patient || ctx.Err() != nil {
			return m, parts, missing, nil
		}
		select {
		case <-time.After(min(10*time.Millisecond<<min(try, 10), time.Second)):
		case <-ctx.Done():
		}
		renewed, rerr := s.c.refreshed(ctx, s.name)
		switch {
		case rerr == nil && renewed.ID != s.id, errors.Is(rerr, collection.ErrUnknown):
			return nil, nil, nil, s.gone()
		case rerr == nil:
			if renewed.Current != nil && renewed.Current.Number != m.Current.Number {
				clear(parts) // answers of two generations are never mixed
			}
			m = renewed
		}
	}
}

// all is read, and an error unless every shard answers.
func all[T, In any, P answer[T]](ctx context.Context, s *shards, op string, which func(*Map) []int, in *In) (*Map,
	map[int]*T, error) {
	m, parts, missing, err := read[T, In, P](ctx, s, op, which, in)
	if err == nil && len(parts) < len(which(m)) {
		err = s.unanswered(ctx, m, which(m), func(shard int) bool { return parts[shard] != nil }, missing)
	}
	return m, parts, err
}

// unanswered is the error of shards that have not answered.
func (s *shards) unanswered(ctx context.Context, m *Map, wanted []int, there func(int) bool,
	missing map[int]error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.c.ctx.Err() != nil {
		return collection.ErrClosed
	}
	e := &MissingError{Name: s.name, Coverage: search.Coverage{Parts: m.Shards}}
	for _, shard := range wanted {
		docs := s.docs(shard)
		e.Coverage.Of += docs
		if there(shard) {
			e.Coverage.Docs += docs
			continue
		}
		e.Coverage.Missing = append(e.Coverage.Missing, missingPart(shard, docs, missing[shard]))
		if err := missing[shard]; errors.Is(err, collection.ErrDamaged) || errors.Is(err, collection.ErrUnknown) {
			e.is = append(e.is, err)
		}
	}
	return e
}

func missingPart(shard int, docs int64, why error) search.MissingPart {
	p := search.MissingPart{Part: shard, Name: fmt.Sprintf("shard %d", shard), Docs: docs, Reason: "no answer in time"}
	if why != nil {
		p.Reason = why.Error()
	}
	return p
}

// some asks for shards on nodes that are not among tried. What stays without an answer is noted.
func (f *fan[T]) some(ctx context.Context, shards []int, tried []string) map[int]*T {
	var there []int
	var holders [][]*Node
	for _, shard := range shards {
		left := slices.DeleteFunc(slices.Clone(f.s.c.holders(f.m, shard)),
			func(n *Node) bool { return slices.Contains(tried, n.Name) })
		switch {
		case len(left) > 0 && f.op == opStats:
			there, holders = append(there, shard), append(holders, left[:1])
		case len(left) > 0:
			there, holders = append(there, shard), append(holders, left)
		case len(tried) == 0:
			f.miss([]int{shard}, errors.New("no node is there that has it"))
		}
	}
	groups := f.s.c.front.peers.assign(there, holders, f.s.c.c.Zone, f.s.c.node, f.joint)
	if len(groups) == 1 { // as often
		for n, shards := range groups {
			return f.node(ctx, n, shards, tried)
		}
	}
	var mu sync.Mutex
	parts := map[int]*T{}
	var wg sync.WaitGroup
	for n, shards := range groups {
		wg.Go(func() {
			got := f.node(ctx, n, shards, tried)
			mu.Lock()
			defer mu.Unlock()
			for s, p := range got {
				parts[s] = p
			}
		})
	}
	wg.Wait()
	return parts
}

func (f *fan[T]) miss(shards []int, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range shards {
		if f.missing != nil {
			f.missing[s] = why
		}
	}
}

// node asks one node, and others in its place if it refuses, fails, or takes too long.
func (f *fan[T]) node(ctx context.Context, n *Node, shards []int, tried []string) map[int]*T {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type answer struct {
		parts map[int]*T
		first bool
	}
	came := make(chan answer, 2)
	go func() { came <- answer{f.send(ctx, n, shards), true} }()
	tried = append(slices.Clone(tried), n.Name)
	have, running, first, others := map[int]*T{}, 1, true, false
	lacking := func() []int {
		return slices.DeleteFunc(slices.Clone(shards), func(s int) bool { return have[s] != nil })
	}
	elsewhere := func() {
		rest := lacking()
		if others || !f.elsewhere(rest, tried) {
			return
		}
		others = true
		running++
		go func() { came <- answer{f.some(ctx, rest, tried), false} }()
	}
	usual := f.s.c.front.peers.patience(n.Name, f.kind)
	patience := time.NewTimer(usual)
	defer patience.Stop()
	// What takes much longer than usual is asked elsewhere whatever the budget.
	deadline, _ := ctx.Deadline()
	late := time.NewTimer(min(time.Until(deadline)/3, time.Second+10*usual))
	defer late.Stop()
	for running > 0 {
		select {
		case got := <-came:
			running--
			for s, p := range got.parts {
				have[s] = cmp.Or(have[s], p)
			}
			first = first && !got.first
			if len(have) == len(shards) {
				if first {
					f.s.c.suspect(n) // the others had less time
				}
				return have
			}
			if got.first {
				elsewhere()
			}
		case <-patience.C:
			if first && f.s.c.front.peers.again() {
				elsewhere()
			}
		case <-late.C:
			if first {
				elsewhere()
			}
		case <-ctx.Done():
			if first && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				f.s.c.suspect(n)
			}
			return have
		}
	}
	return have
}

// elsewhere reports whether each of some shards has another holder.
func (f *fan[T]) elsewhere(shards []int, tried []string) bool {
	for _, s := range shards {
		if !slices.ContainsFunc(f.s.c.holders(f.m, s), func(n *Node) bool { return !slices.Contains(tried, n.Name) }) {
			return false
		}
	}
	return true
}

// send asks a node and waits for what it answers for; why it has no answer for others is noted.
func (f *fan[T]) send(ctx context.Context, n *Node, shards []int) map[int]*T {
	a := asked{Name: f.s.name, ID: f.s.id, Generation: f.m.Current.Number, Of: f.m.Shards}
	for _, s := range shards {
		a.Shards = append(a.Shards, shardAt{Shard: s, After: f.s.c.expected(f.s.id, s)})
	}
	peers := &f.s.c.front.peers
	peers.begin(n.Name)
	began := time.Now()
	var out answers[T]
	err := f.s.c.call(ctx, n, f.op, f.in(a), &out)
	if err != nil {
		out.Shards = nil // an answer that was read in part is none
	}
	parts := map[int]*T{}
	failed := err != nil && !errors.Is(err, errGeneration)
	for i := range out.Shards {
		p := &out.Shards[i]
		of := f.of(p)
		if !slices.Contains(shards, of.Shard) || parts[of.Shard] != nil {
			err = fmt.Errorf("%w: it answers for another shard", errMessage)
			continue
		}
		if of.Error == nil {
			parts[of.Shard] = p
			continue
		}
		why := of.Error.err()
		failed = failed || !errors.Is(why, errGeneration)
		f.refused(n, []int{of.Shard}, why)
	}
	peers.done(n.Name, f.kind, time.Since(began), !failed)
	if failed && ctx.Err() == nil {
		f.s.c.suspect(n)
	}
	if err != nil {
		f.refused(n, slices.DeleteFunc(slices.Clone(shards), func(s int) bool { return parts[s] != nil }), err)
	}
	return parts
}

// refused notes why a node does not answer for shards.
func (f *fan[T]) refused(n *Node, shards []int, err error) {
	if final(err) {
		f.mu.Lock()
		if f.missing != nil && f.refusal == nil {
			f.refusal = err
		}
		f.mu.Unlock()
		f.stop()
		return
	}
	if errors.Is(err, errGeneration) || errors.Is(err, errNotHere) {
		f.mu.Lock()
		f.stale = true
		f.mu.Unlock()
	}
	f.miss(shards, fmt.Errorf("node %s: %w", n.Name, err))
}
