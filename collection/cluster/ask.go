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

// answered is part of each answer for a shard.
type answered struct {
	Shard int      `json:"shard"`
	Entry uint64   `json:"entry"`          // of its log, up to which it was applied
	Docs  uint64   `json:"docs,omitempty"` // live
	Error *failure `json:"error,omitempty"`
	// Unknown are the fields of the condition that no document of the shard has. Other shards may have them.
	Unknown []condition.Field `json:"unknown,omitzero"`
}

func (a *answered) common() *answered { return a }

// answer is a pointer to the answer for a shard, which has [answered] in it.
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
		len(e.Coverage.Missing), e.Coverage.Shards, e.Name)
	for i, m := range e.Coverage.Missing {
		if i == 3 {
			return text + ", and others"
		}
		text += fmt.Sprintf("; %s: %s", m.Name, m.Reason)
	}
	return text
}

// Unwrap gives [collection.ErrUnreachable], and the errors of shards that say more.
func (e *MissingError) Unwrap() []error { return append([]error{collection.ErrUnreachable}, e.is...) }

// opStats is the operation that the first holder is asked for, which gathers the changes.
const opStats = "stats"

// fan asks for shards, each of one of its holders, and others in the place of those that take too long.
type fan[T, In any, P answer[T]] struct {
	s    *shards
	m    *Map
	op   string
	kind string // of requests that take about as long as each other
	// joint requests do some work once for all shards of a node.
	joint bool
	in    *In

	mu      sync.Mutex
	missing map[int]error // why a shard has not answered; nil after the round
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
		f := &fan[T, In, P]{s: s, m: m, op: op, kind: op, in: in, missing: map[int]error{}}
		if k, ok := any(in).(interface{ kind() (string, bool) }); ok {
			name, joint := k.kind()
			f.kind, f.joint = f.kind+name, joint
		}
		var stale bool
		if missing, stale, err = f.round(ctx, which(m), parts); err != nil {
			return nil, nil, nil, err
		}
		saw[T, P](s, parts)
		// A shard whose nodes have died gets others in a moment.
		patient := stale || try == 0 || !s.c.c.Partial && time.Since(began) < deadline/3
		if len(lacking(which(m), parts)) == 0 || !patient || ctx.Err() != nil {
			return m, parts, missing, nil
		}
		pause(ctx, backoff(try))
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

// round asks for the shards that parts lacks, and adds their answers. An error means that the request is at fault.
func (f *fan[T, In, P]) round(ctx context.Context, shards []int, parts map[int]*T) (missing map[int]error, stale bool,
	err error) {
	ctx, f.stop = context.WithCancel(ctx)
	defer f.stop()
	maps.Copy(parts, f.some(ctx, lacking(shards, parts), nil))
	f.mu.Lock()
	defer f.mu.Unlock()
	missing, f.missing = f.missing, nil // requests that were given up may still fail
	return missing, f.stale, f.refusal
}

// lacking are the shards that parts has not.
func lacking[T any](shards []int, parts map[int]*T) []int {
	return slices.DeleteFunc(slices.Clone(shards), func(s int) bool { return parts[s] != nil })
}

// all is read, and an error unless every shard answers.
func all[T, In any, P answer[T]](ctx context.Context, s *shards, op string, which func(*Map) []int, in *In) (*Map,
	map[int]*T, error) {
	m, parts, missing, err := read[T, In, P](ctx, s, op, which, in)
	if err != nil {
		return nil, nil, err
	}
	if wanted := which(m); len(parts) < len(wanted) {
		return nil, nil, s.unanswered(ctx, coverage(s, m, wanted, parts, missing), missing)
	}
	return m, parts, nil
}

// coverage lists the shards that an answer is made of. Those that are not wanted would add nothing.
func coverage[T any](s *shards, m *Map, wanted []int, found map[int]*T, missing map[int]error) search.Coverage {
	c := search.Coverage{Shards: m.Shards}
	for shard := range m.Shards {
		docs := s.docs(shard)
		if c.Of += docs; found[shard] != nil || !slices.Contains(wanted, shard) {
			c.Docs += docs
			continue
		}
		c.Missing = append(c.Missing, missingPart(shard, docs, missing[shard]))
	}
	return c
}

func missingPart(shard int, docs int64, why error) search.MissingShard {
	p := search.MissingShard{Shard: shard, Name: fmt.Sprintf("shard %d", shard), Docs: docs, Reason: "no answer in time"}
	if why != nil {
		p.Reason = why.Error()
	}
	return p
}

// unanswered is the error of shards that have not answered.
func (s *shards) unanswered(ctx context.Context, c search.Coverage, missing map[int]error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.c.ctx.Err() != nil {
		return collection.ErrClosed
	}
	e := &MissingError{Name: s.name, Coverage: c}
	for _, p := range c.Missing {
		if err := missing[p.Shard]; isAny(err, collection.ErrDamaged, collection.ErrUnknown) {
			e.is = append(e.is, err)
		}
	}
	return e
}

// left are the holders of a shard that are not among tried.
func (f *fan[T, In, P]) left(shard int, tried []string) []*Node {
	return slices.DeleteFunc(slices.Clone(f.s.c.holders(f.m, shard)),
		func(n *Node) bool { return slices.Contains(tried, n.Name) })
}

// some asks for shards on nodes that are not among tried. Shards that no node has are noted.
func (f *fan[T, In, P]) some(ctx context.Context, shards []int, tried []string) map[int]*T {
	var there []int
	var holders [][]*Node
	for _, shard := range shards {
		left := f.left(shard, tried)
		if len(left) > 0 && f.op == opStats {
			left = left[:1]
		}
		if len(left) > 0 {
			there, holders = append(there, shard), append(holders, left)
		} else if len(tried) == 0 {
			f.miss([]int{shard}, errNoNode)
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
			maps.Copy(parts, got)
		})
	}
	wg.Wait()
	return parts
}

// node asks one node, and others in its place if it refuses, fails, or takes too long.
func (f *fan[T, In, P]) node(ctx context.Context, n *Node, shards []int, tried []string) map[int]*T {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type answer struct {
		parts map[int]*T
		first bool // from n
	}
	came := make(chan answer, 2) // both, if neither is waited for
	running, waiting := 1, true  // waiting for n
	go func() { came <- answer{f.send(ctx, n, shards), true} }()

	// The others are asked once, for the shards that are lacking then, if each of these has another holder.
	have, asked := map[int]*T{}, false
	tried = append(slices.Clone(tried), n.Name)
	elsewhere := func() {
		rest := lacking(shards, have)
		if asked || slices.ContainsFunc(rest, func(s int) bool { return len(f.left(s, tried)) == 0 }) {
			return
		}
		asked = true
		running++
		go func() { came <- answer{f.some(ctx, rest, tried), false} }()
	}

	// A request that takes longer than usual is made elsewhere too if the budget allows it; one that takes much longer,
	// in any case.
	usual := f.s.c.front.peers.patience(n.Name, f.kind)
	deadline, _ := ctx.Deadline()
	slow, late := time.After(usual), time.After(min(time.Until(deadline)/3, time.Second+10*usual))
	for running > 0 {
		select {
		case got := <-came:
			running--
			for s, p := range got.parts {
				have[s] = cmp.Or(have[s], p)
			}
			waiting = waiting && !got.first
			if len(have) == len(shards) {
				if waiting {
					f.s.c.suspect(n) // the others had less time
				}
				return have
			}
			if got.first {
				elsewhere()
			}
		case <-slow:
			if waiting && f.s.c.front.peers.again() {
				elsewhere()
			}
		case <-late:
			if waiting {
				elsewhere()
			}
		case <-ctx.Done():
			if waiting && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				f.s.c.suspect(n)
			}
			return have
		}
	}
	return have
}

// send asks a node, and returns its answers. The reasons why it has none for other shards are noted.
func (f *fan[T, In, P]) send(ctx context.Context, n *Node, shards []int) map[int]*T {
	a := asked{Name: f.s.name, ID: f.s.id, Generation: f.m.Current.Number, Of: f.m.Shards}
	for _, s := range shards {
		a.Shards = append(a.Shards, shardAt{Shard: s, After: f.s.c.expected(f.s.id, s)})
	}
	peers := &f.s.c.front.peers
	peers.begin(n.Name)
	began := time.Now()
	var out answers[T]
	err := f.s.c.call(ctx, n, f.op, &request[In]{a, *f.in}, &out)
	if err != nil {
		out.Shards = nil // an answer that was read in part is none
	}
	parts := map[int]*T{}
	failed := isFault(err)
	for i := range out.Shards {
		p := P(&out.Shards[i]).common()
		switch {
		case !slices.Contains(shards, p.Shard) || parts[p.Shard] != nil:
			err = fmt.Errorf("%w: it answers for another shard", errMessage)
		case p.Error == nil:
			parts[p.Shard] = &out.Shards[i]
		default:
			why := p.Error.err()
			failed = failed || isFault(why)
			f.refused(n, []int{p.Shard}, why)
		}
	}
	peers.done(n.Name, f.kind, time.Since(began), !failed)
	if failed && ctx.Err() == nil {
		f.s.c.suspect(n)
	}
	if err != nil {
		f.refused(n, lacking(shards, parts), err)
	}
	return parts
}

// isFault reports whether an error is the fault of the node, and not of the request or of the map that it is for.
func isFault(err error) bool { return err != nil && !errors.Is(err, errGeneration) && !final(err) }

// refused notes why a node does not answer for shards.
func (f *fan[T, In, P]) refused(n *Node, shards []int, err error) {
	if final(err) {
		f.mu.Lock()
		if f.missing != nil && f.refusal == nil {
			f.refusal = err
		}
		f.mu.Unlock()
		f.stop()
		return
	}
	if isAny(err, errGeneration, errNotHere) {
		f.mu.Lock()
		f.stale = true
		f.mu.Unlock()
	}
	f.miss(shards, fmt.Errorf("node %s: %w", n.Name, err))
}

func (f *fan[T, In, P]) miss(shards []int, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range shards {
		if f.missing != nil {
			f.missing[s] = why
		}
	}
}
