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

// shardTarget are shards of one generation, which a node is asked for.
type shardTarget struct {
	Name       string         `json:"collection"`
	ID         string         `json:"id"`
	Generation uint64         `json:"generation"`
	ShardCount int            `json:"of"` // shards of the collection
	Shards     []shardAtEntry `json:"shards"`
}

// validate refuses shards that the collection does not have, and a shard that is named twice.
func (a *shardTarget) validate() error {
	if a.ShardCount < 0 || a.ShardCount > MaxShards || len(a.Shards) > a.ShardCount {
		return fmt.Errorf("%w: %d shards of %d are asked for", errMessage, len(a.Shards), a.ShardCount)
	}
	named := make([]bool, a.ShardCount)
	for _, s := range a.Shards {
		if s.Shard < 0 || s.Shard >= a.ShardCount || named[s.Shard] {
			return fmt.Errorf("%w: shard %d of %d is asked for, or twice", errMessage, s.Shard, a.ShardCount)
		}
		named[s.Shard] = true
	}
	return nil
}

// shardAtEntry is a shard, and the entry of its log that must have been applied.
type shardAtEntry struct {
	Shard int    `json:"shard"`
	After uint64 `json:"after,omitempty"`
}

// request asks for shards, the same of each.
type request[In any] struct {
	shardTarget
	In In `json:"in"`
}

// answerHead is part of each answer for a shard.
type answerHead struct {
	Shard int      `json:"shard"`
	Entry uint64   `json:"entry"`          // of its log, up to which it was applied
	Docs  uint64   `json:"docs,omitempty"` // live
	Error *failure `json:"error,omitempty"`
	// Unknown are the fields of the condition that no document of the shard has. Other shards may have them.
	Unknown []condition.Field `json:"unknown,omitzero"`
}

func (a *answerHead) head() *answerHead { return a }

// answer is a pointer to the answer for a shard, which has [answerHead] in it.
type answer[T any] interface {
	*T
	head() *answerHead
}

// answers are those of a node, of each shard.
type answers[T any] struct {
	Shards []T `json:"shards"`
}

// MissingError is the error of a search that some shards do not answer. It wraps [collection.ErrUnreachable].
type MissingError struct {
	Name     string // of the collection
	Coverage search.Coverage
	causes   []error
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
func (e *MissingError) Unwrap() []error {
	return append([]error{collection.ErrUnreachable}, e.causes...)
}

// opStats is the operation that the first holder is asked for, which gathers the changes.
const opStats = "stats"

// fanOut asks for shards, each of one of its holders, and others in the place of those that take too long.
type fanOut[T, In any, P answer[T]] struct {
	shards *shardedCollection
	m      *Map
	op     string
	kind   string // of requests that take about as long as each other
	// joint requests do some work once for all shards of a node.
	joint bool
	in    *In

	mu      sync.Mutex
	missing map[int]error // why a shard has not answered; nil after the round
	refusal error         // the request is at fault
	stale   bool          // a node knows another generation
	stop    context.CancelFunc
}

// readShards asks for shards of the newest generation, until one generation has answered for them. missing are
// those that have not.
func readShards[T, In any, P answer[T]](ctx context.Context, s *shardedCollection, op string, which func(*Map) []int, in *In) (
	m *Map, parts map[int]*T, missing map[int]error, err error) {
	began, deadline := time.Now(), s.c.requestTimeout()
	ctx, stop := context.WithTimeout(ctx, deadline)
	defer stop()
	defer context.AfterFunc(s.c.ctx, stop)()
	if m, err = s.nonEmptyMap(ctx); err != nil {
		return nil, nil, nil, err
	}
	parts = map[int]*T{}
	for try := 0; ; try++ {
		if m.Current == nil {
			return nil, nil, nil, fmt.Errorf("%w: %q", collection.ErrEmpty, s.name)
		}
		f := &fanOut[T, In, P]{shards: s, m: m, op: op, kind: op, in: in, missing: map[int]error{}}
		if k, ok := any(in).(interface{ latencyKind() (string, bool) }); ok {
			name, joint := k.latencyKind()
			f.kind, f.joint = f.kind+name, joint
		}
		var stale bool
		if missing, stale, err = f.askOnce(ctx, which(m), parts); err != nil {
			return nil, nil, nil, err
		}
		noteAnswers[T, P](s, parts)
		// A shard whose nodes have died gets others in a moment.
		patient := stale || try == 0 || !s.c.cfg.Partial && time.Since(began) < deadline/3
		if len(withoutAnswer(which(m), parts)) == 0 || !patient || ctx.Err() != nil {
			return m, parts, missing, nil
		}
		sleepFor(ctx, backoff(try))
		renewed, rerr := s.c.refreshMap(ctx, s.name)
		switch {
		case rerr == nil && renewed.ID != s.id, errors.Is(rerr, collection.ErrUnknown):
			return nil, nil, nil, s.removedError()
		case rerr == nil:
			if renewed.Current != nil && renewed.Current.Number != m.Current.Number {
				clear(parts) // answers of two generations are never mixed
			}
			m = renewed
		}
	}
}

// askOnce asks for the shards that parts lacks, and adds their answers. An error means that the request is at fault.
func (f *fanOut[T, In, P]) askOnce(ctx context.Context, shards []int, parts map[int]*T) (missing map[int]error, stale bool,
	err error) {
	ctx, f.stop = context.WithCancel(ctx)
	defer f.stop()
	maps.Copy(parts, f.askNodes(ctx, withoutAnswer(shards, parts), nil))
	f.mu.Lock()
	defer f.mu.Unlock()
	missing, f.missing = f.missing, nil // requests that were given up may still fail
	return missing, f.stale, f.refusal
}

// withoutAnswer are the shards that parts has not.
func withoutAnswer[T any](shards []int, parts map[int]*T) []int {
	return slices.DeleteFunc(slices.Clone(shards), func(s int) bool { return parts[s] != nil })
}

// readAllShards is read, and an error unless every shard answers.
func readAllShards[T, In any, P answer[T]](ctx context.Context, s *shardedCollection, op string, which func(*Map) []int, in *In) (*Map,
	map[int]*T, error) {
	m, parts, missing, err := readShards[T, In, P](ctx, s, op, which, in)
	if err != nil {
		return nil, nil, err
	}
	if wanted := which(m); len(parts) < len(wanted) {
		return nil, nil, s.missingError(ctx, coverage(s, m, wanted, parts, missing), missing)
	}
	return m, parts, nil
}

// coverage lists the shards that an answer is made of. Those that are not wanted would add nothing.
func coverage[T any](s *shardedCollection, m *Map, wanted []int, found map[int]*T, missing map[int]error) search.Coverage {
	c := search.Coverage{Shards: m.Shards}
	for shard := range m.Shards {
		docs := s.documentCount(shard)
		if c.Of += docs; found[shard] != nil || !slices.Contains(wanted, shard) {
			c.Docs += docs
			continue
		}
		c.Missing = append(c.Missing, missingShard(shard, docs, missing[shard]))
	}
	return c
}

func missingShard(shard int, docs int64, why error) search.MissingShard {
	p := search.MissingShard{Shard: shard, Name: fmt.Sprintf("shard %d", shard), Docs: docs, Reason: "no answer in time"}
	if why != nil {
		p.Reason = why.Error()
	}
	return p
}

// missingError is the error of shards that have not answered.
func (s *shardedCollection) missingError(ctx context.Context, c search.Coverage, missing map[int]error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.c.ctx.Err() != nil {
		return collection.ErrClosed
	}
	e := &MissingError{Name: s.name, Coverage: c}
	for _, p := range c.Missing {
		if err := missing[p.Shard]; wrapsAny(err, collection.ErrDamaged, collection.ErrUnknown) {
			e.causes = append(e.causes, err)
		}
	}
	return e
}

// untriedHolders are the holders of a shard that are not among tried.
func (f *fanOut[T, In, P]) untriedHolders(shard int, tried []string) []*Node {
	return slices.DeleteFunc(slices.Clone(f.shards.c.holders(f.m, shard)),
		func(n *Node) bool { return slices.Contains(tried, n.Name) })
}

// askNodes asks for shards on nodes that are not among tried. Shards that no node has are noted.
func (f *fanOut[T, In, P]) askNodes(ctx context.Context, shards []int, tried []string) map[int]*T {
	var reachable []int
	var holders [][]*Node
	for _, shard := range shards {
		untried := f.untriedHolders(shard, tried)
		if len(untried) > 0 && f.op == opStats {
			untried = untried[:1]
		}
		if len(untried) > 0 {
			reachable, holders = append(reachable, shard), append(holders, untried)
		} else if len(tried) == 0 {
			f.noteMissing([]int{shard}, errNoNode)
		}
	}
	groups := f.shards.c.front.peers.assign(reachable, holders, f.shards.c.cfg.Zone, f.shards.c.node, f.joint)
	if len(groups) == 1 { // as often
		for n, shards := range groups {
			return f.askNodeOrOthers(ctx, n, shards, tried)
		}
	}
	var mu sync.Mutex
	parts := map[int]*T{}
	var wg sync.WaitGroup
	for n, shards := range groups {
		wg.Go(func() {
			answers := f.askNodeOrOthers(ctx, n, shards, tried)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(parts, answers)
		})
	}
	wg.Wait()
	return parts
}

// askNodeOrOthers asks one node, and others in its place if it refuses, fails, or takes too long.
func (f *fanOut[T, In, P]) askNodeOrOthers(ctx context.Context, n *Node, shards []int, tried []string) map[int]*T {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type answer struct {
		parts map[int]*T
		first bool // from n
	}
	results := make(chan answer, 2)     // both, if neither is waited for
	running, waitingForFirst := 1, true // waiting for n
	go func() { results <- answer{f.sendTo(ctx, n, shards), true} }()

	// The others are asked once, for the shards that are lacking then, if each of these has another holder.
	found, othersAsked := map[int]*T{}, false
	tried = append(slices.Clone(tried), n.Name)
	askOthers := func() {
		missing := withoutAnswer(shards, found)
		if othersAsked || slices.ContainsFunc(missing, func(s int) bool { return len(f.untriedHolders(s, tried)) == 0 }) {
			return
		}
		othersAsked = true
		running++
		go func() { results <- answer{f.askNodes(ctx, missing, tried), false} }()
	}

	// A request that takes longer than usual is made elsewhere too if the budget allows it; one that takes much longer,
	// in any case.
	usualTime := f.shards.c.front.peers.hedgeDelay(n.Name, f.kind)
	deadline, _ := ctx.Deadline()
	slow, veryLate := time.After(usualTime), time.After(min(time.Until(deadline)/3, time.Second+10*usualTime))
	for running > 0 {
		select {
		case got := <-results:
			running--
			for s, p := range got.parts {
				found[s] = cmp.Or(found[s], p)
			}
			waitingForFirst = waitingForFirst && !got.first
			if len(found) == len(shards) {
				if waitingForFirst {
					f.shards.c.suspectNode(n) // the others had less time
				}
				return found
			}
			if got.first {
				askOthers()
			}
		case <-slow:
			if waitingForFirst && f.shards.c.front.peers.allowHedge() {
				askOthers()
			}
		case <-veryLate:
			if waitingForFirst {
				askOthers()
			}
		case <-ctx.Done():
			if waitingForFirst && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				f.shards.c.suspectNode(n)
			}
			return found
		}
	}
	return found
}

// sendTo asks a node, and returns its answers. The reasons why it has none for other shards are noted.
func (f *fanOut[T, In, P]) sendTo(ctx context.Context, n *Node, shards []int) map[int]*T {
	a := shardTarget{Name: f.shards.name, ID: f.shards.id, Generation: f.m.Current.Number, ShardCount: f.m.Shards}
	for _, s := range shards {
		a.Shards = append(a.Shards, shardAtEntry{Shard: s, After: f.shards.c.expectedEntry(f.shards.id, s)})
	}
	peers := &f.shards.c.front.peers
	peers.beginSearch(n.Name)
	began := time.Now()
	var out answers[T]
	err := f.shards.c.callNode(ctx, n, f.op, &request[In]{a, *f.in}, &out)
	if err != nil {
		out.Shards = nil // an answer that was read in part is none
	}
	parts := map[int]*T{}
	failed := isFault(err)
	for i := range out.Shards {
		p := P(&out.Shards[i]).head()
		switch {
		case !slices.Contains(shards, p.Shard) || parts[p.Shard] != nil:
			err = fmt.Errorf("%w: it answers for another shard", errMessage)
		case p.Error == nil:
			parts[p.Shard] = &out.Shards[i]
		default:
			why := p.Error.toError()
			failed = failed || isFault(why)
			f.noteRefusal(n, []int{p.Shard}, why)
		}
	}
	peers.endSearch(n.Name, f.kind, time.Since(began), !failed)
	if failed && ctx.Err() == nil {
		f.shards.c.suspectNode(n)
	}
	if err != nil {
		f.noteRefusal(n, withoutAnswer(shards, parts), err)
	}
	return parts
}

// isFault reports whether an error is the fault of the node, and not of the request or of the map that it is for.
func isFault(err error) bool { return err != nil && !errors.Is(err, errGeneration) && !isFinal(err) }

// noteRefusal notes why a node does not answer for shards.
func (f *fanOut[T, In, P]) noteRefusal(n *Node, shards []int, err error) {
	if isFinal(err) {
		f.mu.Lock()
		if f.missing != nil && f.refusal == nil {
			f.refusal = err
		}
		f.mu.Unlock()
		f.stop()
		return
	}
	if wrapsAny(err, errGeneration, errNotHere) {
		f.mu.Lock()
		f.stale = true
		f.mu.Unlock()
	}
	f.noteMissing(shards, fmt.Errorf("node %s: %w", n.Name, err))
}

func (f *fanOut[T, In, P]) noteMissing(shards []int, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range shards {
		if f.missing != nil {
			f.missing[s] = why
		}
	}
}
