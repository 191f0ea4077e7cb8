package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
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
	in.Batch = replica.Batch{ID: randomID(), After: cmp.Or(s.c.newest(s.id, shard), s.end(ctx, shard, false))}
	// unknown says that the change may have been made; next is the holder that is asked; cutOff is how many in turn
	// have said that they do not reach the store.
	unknown, next, cutOff := false, 0, 0
	last := errNoNode
	for try := 0; ; try++ {
		m, err := s.current(ctx)
		if err == nil && m.Current == nil {
			err = fmt.Errorf("%w: %q", collection.ErrEmpty, s.name)
		}
		if err != nil {
			return nil, undecided(unknown, err)
		}
		holders := s.c.holders(m, shard)
		if try == 0 { // a node that hangs gathers no changes
			next = s.c.front.peers.healthy(holders)
		}
		if len(holders) > 0 {
			n := holders[next%len(holders)]
			a := asked{s.name, s.id, m.Current.Number, m.Shards, []shardAt{{Shard: shard}}}
			out, err := s.c.changeAt(ctx, n, op, &request[changeAsk]{a, in}, len(holders) > 1)
			if err == nil {
				s.c.sees(shardKey{s.id, shard}, out.Entry)
				return out, nil
			}
			last = fmt.Errorf("node %s: %w", n.Name, err)
			if isAny(err, errNoAnswer, errUnsent) && !errors.Is(ctx.Err(), context.Canceled) {
				s.c.suspect(n)
			}
			if cutOff++; !errors.Is(err, errCutOff) {
				cutOff = 0
			}
			// The error says whether the change is tried again, and where.
			maybe := isAny(err, errNoAnswer, journal.ErrUnknown, storage.ErrOutcomeUnknown)
			switch {
			case !maybe && (final(err) || isAny(err, collection.ErrBusy, collection.ErrEmpty)):
				return nil, undecided(unknown && !final(err), err)
			case !maybe && isAny(err, errGeneration, store.ErrUndecided):
				next += try % 2 // the node lags behind this process
			case !maybe && errors.Is(err, store.ErrLate): // it was not sent before, or it would be looked for
				in.Batch.After = max(in.Batch.After, s.end(ctx, shard, true))
			case !maybe && notDone(err):
				next++
			default:
				unknown, in.Batch.Sent = true, true
				next++
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, undecided(unknown, err)
		}
		// The others get some time, and a newer map may name other nodes.
		wait := backoff(try)
		refused := cutOff > 0 && cutOff >= len(holders) && !unknown // else it is asked for as long as there is time
		if refused || time.Until(limit) < wait {
			return nil, undecided(unknown, fmt.Errorf("%w: shard %d of %q: %w", collection.ErrUnreachable, shard, s.name, last))
		}
		pause(ctx, wait)
		if try > 0 || isAny(last, errGeneration, collection.ErrUnknown) {
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

// probeAfter is how long a change may be unanswered before its node is asked whether it lives, again and again.
const probeAfter = 500 * time.Millisecond

// changeAt has a node make a change of a shard. One that hangs, or does not reach the store, is not waited for
// if there are others: the outcome is then unknown.
func (c *Cluster) changeAt(ctx context.Context, n *Node, op string, in *request[changeAsk], others bool) (out *changed,
	err error) {
	size := 0
	for i := range in.In.Documents {
		size += 4*len(in.In.Documents[i].Vectors) + len(in.In.Documents[i].Metadata)
	}
	ctx, stop := context.WithTimeout(ctx, attempt+time.Duration(size>>20)*attemptPerMiB)
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

// notDone reports whether an error says that a change was not made.
func notDone(err error) bool {
	return isAny(err, errUnsent, errNotHere, errTooBusy, errMessage, errSecret, errNoRoute, errCutOff,
		journal.ErrBehind, journal.ErrFork, replica.ErrFailed, context.Canceled, context.DeadlineExceeded,
		collection.ErrUnknown, collection.ErrClosed, collection.ErrReopened, collection.ErrDamaged,
		collection.ErrUnreachable)
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
