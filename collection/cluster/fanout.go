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

// shardTarget names the shards of one generation that a node is asked about.
type shardTarget struct {
	Name       string         `json:"collection"`
	ID         string         `json:"id"`
	Generation uint64         `json:"generation"`
	ShardCount int            `json:"of"` // of the collection
	Shards     []shardAtEntry `json:"shards"`
}

// validate refuses shards that the collection does not have, and duplicates.
func (a *shardTarget) validate() error {
	if a.ShardCount < 0 || a.ShardCount > MaxShards || len(a.Shards) > a.ShardCount {
		return fmt.Errorf("%w: %d of %d shards are asked for", errMessage, len(a.Shards), a.ShardCount)
	}
	named := make([]bool, a.ShardCount)
	for _, s := range a.Shards {
		if s.Shard < 0 || s.Shard >= a.ShardCount || named[s.Shard] {
			return fmt.Errorf("%w: shard %d of %d does not exist, or is asked for twice", errMessage,
				s.Shard, a.ShardCount)
		}
		named[s.Shard] = true
	}
	return nil
}

// shardAtEntry is a shard, and an entry of its log that must have been applied before it answers.
type shardAtEntry struct {
	Shard int    `json:"shard"`
	After uint64 `json:"after,omitempty"`
}

// request asks shards the same question.
type request[In any] struct {
	shardTarget
	In In `json:"in"`
}

// answerHead is part of each answer for a shard.
type answerHead struct {
	Shard int      `json:"shard"`
	Entry uint64   `json:"entry"`          // last applied entry of its log
	Docs  uint64   `json:"docs,omitempty"` // live documents
	Error *failure `json:"error,omitempty"`
	// Unknown lists fields of the condition that no document of the shard has. Other shards may have them.
	Unknown []condition.Field `json:"unknown,omitzero"`
}

// commonHead returns the head of an answer that embeds it.
func (a *answerHead) commonHead() *answerHead { return a }

// answer is a pointer to the answer for a shard, which embeds [answerHead].
type answer[T any] interface {
	*T
	commonHead() *answerHead
}

// answers holds a node's answers, one for each shard.
type answers[T any] struct {
	Shards []T `json:"shards"`
}

// MissingError says that shards did not answer a search. It wraps [collection.ErrUnreachable].
type MissingError struct {
	Name     string // of the collection
	Coverage search.Coverage
	causes   []error // errors of shards that are more specific than ErrUnreachable
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

// Unwrap returns [collection.ErrUnreachable] and the specific errors of shards.
func (e *MissingError) Unwrap() []error {
	return append([]error{collection.ErrUnreachable}, e.causes...)
}

// opStats is an operation that only the first holder of a shard is asked for, because it gathers the changes.
const opStats = "stats"

// fanOut asks for shards. Each shard is asked of one of its holders, and of others if that takes too long or fails.
type fanOut[T, In any, P answer[T]] struct {
	shards *shardedCollection
	m      *Map
	op     string
	kind   string // of requests that take about the same time, for latencies
	joint  bool   // a node does some work of the request once for all its shards
	in     *In

	mu      sync.Mutex
	missing map[int]error // why shards have not answered, by shard. nil after askOnce
	refusal error         // why the request is at fault, nil if it is not
	stale   bool          // a node has another generation
	stop    context.CancelFunc
}

// readShards asks for the shards that selectShards selects, until shards of one generation have answered. missing says
// why shards have not answered. With [Config.Partial] it does not wait for those.
func readShards[T, In any, P answer[T]](ctx context.Context, s *shardedCollection, op string,
	selectShards func(*Map) []int, in *In) (m *Map, byShard map[int]*T, missing map[int]error, err error) {
	// The request ends with its deadline and with the cluster.
	began, deadline := time.Now(), s.c.requestTimeout()
	ctx, stop := context.WithTimeout(ctx, deadline)
	defer stop()
	defer context.AfterFunc(s.c.ctx, stop)()
	if m, err = s.nonEmptyMap(ctx); err != nil {
		return nil, nil, nil, err
	}
	byShard = map[int]*T{}
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
		if missing, stale, err = f.askOnce(ctx, selectShards(m), byShard); err != nil {
			return nil, nil, nil, err
		}
		noteAnswers[T, P](s, byShard)
		// Try again: a newer generation is there, or a shard whose nodes have died gets others in a moment.
		waitForNodes := !s.c.cfg.Partial && time.Since(began) < deadline/3
		patient := stale || try == 0 || waitForNodes
		if len(withoutAnswer(selectShards(m), byShard)) == 0 || !patient || ctx.Err() != nil {
			return m, byShard, missing, nil
		}
		sleepFor(ctx, backoff(try))
		renewed, rerr := s.c.refreshMap(ctx, s.name)
		switch {
		case rerr == nil && renewed.ID != s.id, errors.Is(rerr, collection.ErrUnknown):
			return nil, nil, nil, s.removedError()
		case rerr == nil:
			if renewed.Current != nil && renewed.Current.Number != m.Current.Number {
				clear(byShard) // answers of two generations are never mixed
			}
			m = renewed
		}
	}
}

// askOnce asks for the shards that byShard lacks, and adds their answers to it. An error means that the request is at
// fault.
func (f *fanOut[T, In, P]) askOnce(ctx context.Context, shards []int,
	byShard map[int]*T) (missing map[int]error, stale bool, err error) {
	ctx, f.stop = context.WithCancel(ctx)
	defer f.stop()
	maps.Copy(byShard, f.askNodes(ctx, withoutAnswer(shards, byShard), nil))
	f.mu.Lock()
	defer f.mu.Unlock()
	missing, f.missing = f.missing, nil // abandoned requests may still fail later
	return missing, f.stale, f.refusal
}

// withoutAnswer returns the shards that byShard has no answer of.
func withoutAnswer[T any](shards []int, byShard map[int]*T) []int {
	return slices.DeleteFunc(slices.Clone(shards), func(s int) bool { return byShard[s] != nil })
}

// readAllShards is readShards, except that it returns an error unless all shards have answered.
func readAllShards[T, In any, P answer[T]](ctx context.Context, s *shardedCollection, op string,
	selectShards func(*Map) []int, in *In) (*Map, map[int]*T, error) {
	m, byShard, missing, err := readShards[T, In, P](ctx, s, op, selectShards, in)
	if err != nil {
		return nil, nil, err
	}
	if selected := selectShards(m); len(byShard) < len(selected) {
		return nil, nil, s.missingError(ctx, coverage(s, m, selected, byShard, missing), missing)
	}
	return m, byShard, nil
}

// coverage lists the shards that an answer is made of. Shards that are not wanted count as covered: they have no
// documents for the answer.
func coverage[T any](s *shardedCollection, m *Map, selected []int, byShard map[int]*T,
	missing map[int]error) search.Coverage {
	c := search.Coverage{Shards: m.Shards}
	for shard := range m.Shards {
		docs := s.documentCount(shard)
		if c.TotalDocs += docs; byShard[shard] != nil || !slices.Contains(selected, shard) {
			c.Docs += docs
			continue
		}
		c.Missing = append(c.Missing, missingShard(shard, docs, missing[shard]))
	}
	return c
}

// missingShard describes a shard that has not answered.
func missingShard(shard int, docs int64, why error) search.MissingShard {
	p := search.MissingShard{
		Shard:  shard,
		Name:   fmt.Sprintf("shard %d", shard),
		Docs:   docs,
		Reason: "no answer in time",
	}
	if why != nil {
		p.Reason = why.Error()
	}
	return p
}

// missingError returns the error of shards that have not answered.
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

// untriedHolders returns the holders of a shard that are not among tried.
func (f *fanOut[T, In, P]) untriedHolders(shard int, tried []string) []*Node {
	return slices.DeleteFunc(slices.Clone(f.shards.c.holders(f.m, shard)),
		func(n *Node) bool { return slices.Contains(tried, n.Name) })
}

// askNodes asks for shards on nodes that are not among tried. It notes shards that no node has.
func (f *fanOut[T, In, P]) askNodes(ctx context.Context, shards []int, tried []string) map[int]*T {
	// Find the holders, and assign each shard to one of them.
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
	if len(groups) == 1 { // the common case needs no goroutine
		for n, shards := range groups {
			return f.askNodeOrOthers(ctx, n, shards, tried)
		}
	}
	// Ask all nodes at once.
	var mu sync.Mutex
	byShard := map[int]*T{}
	var wg sync.WaitGroup
	for n, shards := range groups {
		wg.Go(func() {
			answers := f.askNodeOrOthers(ctx, n, shards, tried)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(byShard, answers)
		})
	}
	wg.Wait()
	return byShard
}

// askNodeOrOthers asks one node for shards. Other holders are asked in addition if it refuses, fails, or takes too
// long.
func (f *fanOut[T, In, P]) askNodeOrOthers(ctx context.Context, n *Node, shards []int, tried []string) map[int]*T {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		byShard   map[int]*T
		fromFirst bool // from n
	}
	results := make(chan result, 2) // room for both, since the slower one is not waited for
	running, waitingForFirst := 1, true
	go func() { results <- result{f.sendTo(ctx, n, shards), true} }()

	// askOthers asks other holders for the shards that have no answer yet. It does so once, and only if each of these
	// shards has another holder.
	byShard, othersAsked := map[int]*T{}, false
	tried = append(slices.Clone(tried), n.Name)
	askOthers := func() {
		missing := withoutAnswer(shards, byShard)
		noOther := func(s int) bool { return len(f.untriedHolders(s, tried)) == 0 }
		if othersAsked || slices.ContainsFunc(missing, noOther) {
			return
		}
		othersAsked = true
		running++
		go func() { results <- result{f.askNodes(ctx, missing, tried), false} }()
	}

	// Ask others if the request takes longer than usual and the budget of hedged requests allows it, or if it takes
	// much longer.
	usualTime := f.shards.c.front.peers.hedgeDelay(n.Name, f.kind)
	deadline, _ := ctx.Deadline()
	slow, veryLate := time.After(usualTime), time.After(min(time.Until(deadline)/3, time.Second+10*usualTime))
	for running > 0 {
		select {
		case answered := <-results:
			running--
			for s, p := range answered.byShard {
				byShard[s] = cmp.Or(byShard[s], p)
			}
			waitingForFirst = waitingForFirst && !answered.fromFirst
			if len(byShard) == len(shards) {
				if waitingForFirst {
					f.shards.c.suspectNode(n) // the others were asked later, and were faster
				}
				return byShard
			}
			if answered.fromFirst {
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
			return byShard
		}
	}
	return byShard
}

// sendTo asks a node and returns its answers. It notes the reasons for shards without an answer.
func (f *fanOut[T, In, P]) sendTo(ctx context.Context, n *Node, shards []int) map[int]*T {
	target := shardTarget{Name: f.shards.name, ID: f.shards.id, Generation: f.m.Current.Number, ShardCount: f.m.Shards}
	for _, s := range shards {
		target.Shards = append(target.Shards, shardAtEntry{Shard: s, After: f.shards.c.expectedEntry(f.shards.id, s)})
	}
	peers := &f.shards.c.front.peers
	peers.beginSearch(n.Name)
	began := time.Now()
	var out answers[T]
	// Send the request.
	err := f.shards.c.callNode(ctx, n, f.op, &request[In]{target, *f.in}, &out)
	if err != nil {
		out.Shards = nil // it may have been read in part
	}
	// Check the answers.
	byShard := map[int]*T{}
	failed := isFault(err)
	for i := range out.Shards {
		p := P(&out.Shards[i]).commonHead()
		switch {
		case !slices.Contains(shards, p.Shard) || byShard[p.Shard] != nil:
			err = fmt.Errorf("%w: it answers for another shard", errMessage)
		case p.Error == nil:
			byShard[p.Shard] = &out.Shards[i]
		default:
			why := p.Error.toError()
			failed = failed || isFault(why)
			f.noteRefusal(n, []int{p.Shard}, why)
		}
	}
	// Note how the node did.
	peers.endSearch(n.Name, f.kind, time.Since(began), !failed)
	if failed && ctx.Err() == nil {
		f.shards.c.suspectNode(n)
	}
	if err != nil {
		f.noteRefusal(n, withoutAnswer(shards, byShard), err)
	}
	return byShard
}

// isFault reports whether an error is the fault of the node, rather than of the request or of its map.
func isFault(err error) bool { return err != nil && !errors.Is(err, errGeneration) && !isFinal(err) }

// noteRefusal notes why a node does not answer for shards. If the request is at fault, all other requests end.
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

// noteMissing notes why shards have no answer.
func (f *fanOut[T, In, P]) noteMissing(shards []int, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range shards {
		if f.missing != nil {
			f.missing[s] = why
		}
	}
}
