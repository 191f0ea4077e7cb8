package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/storage"
)

const (
	// changeLimit is how long a change is tried whose request has no deadline. A node has attempt to answer,
	// and longer for more bytes.
	changeLimit   = 2 * time.Minute
	attempt       = 10 * time.Second
	attemptPerMiB = 250 * time.Millisecond
)

// change makes a change of one shard: it is sent to the first holder, and again, to the others too, until
// there is an answer.
func (s *shards) change(ctx context.Context, op string, shard int, in changeAsk) (*changed, error) {
	limit := time.Now().Add(changeLimit)
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline
	}
	size := 0
	for i := range in.Documents {
		size += 4*len(in.Documents[i].Vectors) + len(in.Documents[i].Metadata)
	}
	patience := attempt + time.Duration(size>>20)*attemptPerMiB
	in.Batch = replica.Batch{ID: randomID(), After: cmp.Or(s.c.newest(s.id, shard), s.end(ctx, shard, false))}
	unknown := false // whether it was made
	var last error
	for try, next := 0, 0; ; try++ {
		m, err := s.current(ctx)
		if err != nil {
			return nil, undecided(unknown, err)
		}
		if m.Current == nil {
			return nil, undecided(unknown, fmt.Errorf("%w: %q", collection.ErrEmpty, s.name))
		}
		if holders := s.c.holders(m, shard); len(holders) == 0 {
			last = errNoNode
		} else {
			a := asked{s.name, s.id, m.Current.Number, m.Shards, []shardAt{{Shard: shard}}}
			if try == 0 { // a node that hangs gathers no changes
				next = s.c.front.peers.healthy(holders)
			}
			n := holders[next%len(holders)]
			out, err := s.c.changeAt(ctx, n, op, &request[changeAsk]{a, in}, patience, len(holders) > 1)
			if err == nil {
				s.c.mu.Lock()
				k := shardKey{s.id, shard}
				s.c.seen[k] = max(s.c.seen[k], out.Entry)
				s.c.mu.Unlock()
				return out, nil
			}
			last = fmt.Errorf("node %s: %w", n.Name, err)
			if errors.Is(err, errNoAnswer) || errors.Is(err, errUnsent) {
				s.c.suspect(n)
			}
			switch undone := errors.Is(err, errNoAnswer) || errors.Is(err, journal.ErrUnknown) || errors.Is(err,
				storage.ErrOutcomeUnknown); {
			case undone:
				unknown, in.Batch.Sent = true, true
				next++
			case final(err), errors.Is(err, collection.ErrBusy), errors.Is(err, collection.ErrEmpty):
				return nil, undecided(unknown && !final(err), err)
			case errors.Is(err, errGeneration), errors.Is(err, store.ErrUndecided):
				if try%2 == 1 { // it does not see what this process sees
					next++
				}
			case errors.Is(err, store.ErrLate): // it was not sent before, or it would be looked for
				in.Batch.After = max(in.Batch.After, s.end(ctx, shard, true))
			case notDone(err):
				next++
			default:
				unknown, in.Batch.Sent = true, true
				next++
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, undecided(unknown, err)
		}
		wait := min(10*time.Millisecond<<min(try, 10), time.Second)
		if time.Until(limit) < wait {
			return nil, undecided(unknown, fmt.Errorf("%w: shard %d of %q: %w", collection.ErrUnreachable, shard, s.name, last))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if try > 0 || errors.Is(last, errGeneration) || errors.Is(last, collection.ErrUnknown) {
			_, _ = s.c.refreshed(ctx, s.name)
		}
	}
}

// endTime is how long the end of a log is asked for.
const endTime = 2 * time.Second

// end asks for the end of the log of a shard if this process has not seen any of it: an answer that is lost
// would otherwise be looked for in all of it. 0: it is not known.
func (s *shards) end(ctx context.Context, shard int, again bool) uint64 {
	if n := s.c.newest(s.id, shard); n > 0 && !again {
		return n
	}
	ctx, stop := context.WithTimeout(ctx, endTime)
	defer stop()
	_, _, _, _ = read[lookFound](ctx, s, opStats, only(shard), &lookAsk{})
	return s.c.newest(s.id, shard)
}

// A node that has not answered a change after probeAfter is asked whether it lives, again and again: it has
// probeTime to say so. What it says of the store is that it has heard nothing of it for so many beats.
const (
	probeAfter  = 500 * time.Millisecond
	probeTime   = 500 * time.Millisecond
	silentBeats = 5 // in halves
)

// changeAt has a node make a change of a shard. One that hangs, or does not reach the store, is not waited for
// if there are others: the outcome is then unknown.
func (c *Cluster) changeAt(ctx context.Context, n *Node, op string, in *request[changeAsk], patience time.Duration,
	others bool) (out *changed, err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	answered := c.front.peers.works(n.Name)
	defer func() { answered(err == nil) }()
	type answer struct {
		out *changed
		err error
	}
	came := make(chan answer, 1)
	go func() {
		out := &changed{}
		came <- answer{out, c.call(ctx, n, op, in, out)}
	}()
	for {
		var probe <-chan time.Time
		if others {
			probe = time.After(probeAfter)
		}
		select {
		case a := <-came:
			return a.out, a.err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		case <-probe:
			err = c.works(ctx, n)
			select {
			case a := <-came:
				return a.out, a.err
			default:
			}
			if err != nil && ctx.Err() == nil {
				return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
			}
		}
	}
}

// aliveAsk asks a node whether it hears of the store.
type aliveAsk struct{}

type aliveAnswer struct {
	Silent int64 `json:"silent_ms"` // since when it has not
}

func (c *Cluster) doAlive(context.Context, *aliveAsk) (*aliveAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &aliveAnswer{time.Since(c.answered).Milliseconds()}, nil
}

// suspect passes over a node that has failed, until it says that it lives: no request of a user has to find out.
func (c *Cluster) suspect(n *Node) {
	times := c.front.peers.fail(n.Name)
	if times == 0 {
		return
	}
	c.aside(fmt.Sprintf("asking %s, time %d", n.Started, times), func(ctx context.Context) {
		defer c.front.peers.lives(n.Name) // or another process will have its name
		for c.runs(n.Started) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(c.front.peers.rest(n.Name)):
			}
			if c.alive(ctx, n, &aliveAnswer{}) == nil {
				return
			}
			c.front.peers.fail(n.Name)
		}
	})
}

// alive asks a node whether it lives.
func (c *Cluster) alive(ctx context.Context, n *Node, out *aliveAnswer) error {
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	return c.call(ctx, n, "alive", &aliveAsk{}, out)
}

// works asks a node whether it lives, and reaches the store as well as this process does.
func (c *Cluster) works(ctx context.Context, n *Node) error {
	there := &aliveAnswer{}
	if err := c.alive(ctx, n, there); err != nil {
		return err
	}
	here, err := c.doAlive(ctx, nil)
	if most := c.c.Beat.Milliseconds() * silentBeats / 2; err == nil && there.Silent > most && (c.self(n) ||
		here.Silent < there.Silent/2) {
		err = fmt.Errorf("node %s has heard nothing of the store for %d ms", n.Name, there.Silent)
	}
	return err
}

// notDone reports whether an error says that a change was not made.
func notDone(err error) bool {
	return slices.ContainsFunc([]error{
		errUnsent, errNotHere, errTooBusy, errMessage, errSecret, errNoRoute, journal.ErrBehind, journal.ErrFork,
		store.ErrUndecided,
		replica.ErrFailed,
		context.Canceled, context.DeadlineExceeded, collection.ErrUnknown, collection.ErrClosed, collection.ErrReopened,
		collection.ErrDamaged, collection.ErrUnreachable,
	}, func(is error) bool { return errors.Is(err, is) })
}

// undecided marks the error of a change that may have been made.
func undecided(unknown bool, err error) error {
	if !unknown {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, err)
}

// randomID is one that no other has.
func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
