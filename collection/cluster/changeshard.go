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
	// changeLimit is how long a change without a deadline is tried. A node has attemptTime to answer, and
	// attemptPerMiB longer for each MiB.
	changeLimit   = 2 * time.Minute
	attemptTime   = 10 * time.Second
	attemptPerMiB = 250 * time.Millisecond
)

// changeShard makes a change of one shard. It sends the change to the first holder, and again, to the other holders
// too, until there is an answer.
func (s *shardedCollection) changeShard(ctx context.Context, op string, shard int,
	in changeRequest) (*changeResult, error) {
	limit := time.Now().Add(changeLimit)
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline
	}
	in.Batch = replica.Batch{
		ID:    randomID(),
		After: cmp.Or(s.c.newestEntry(s.id, shard), s.logEnd(ctx, shard, useKnownEnd)),
	}
	// outcomeUnknown says that the change may have been made. holderIndex is the holder to ask. cutOffHolders counts
	// the holders in a row that do not reach the store.
	outcomeUnknown, holderIndex, cutOffHolders := false, 0, 0
	lastErr := errNoNode
	for try := 0; ; try++ {
		// Find the holders of the shard.
		m, err := s.currentMap(ctx)
		if err == nil && m.Current == nil {
			err = fmt.Errorf("%w: %q", collection.ErrEmpty, s.name)
		}
		if err != nil {
			return nil, markUnknown(outcomeUnknown, err)
		}
		holders := s.c.holders(m, shard)
		if try == 0 { // avoid the first holder if it has failed recently
			holderIndex = s.c.front.peers.firstHealthy(holders)
		}
		if len(holders) > 0 {
			// Send the change to one of them.
			n := holders[holderIndex%len(holders)]
			target := shardTarget{
				Name:       s.name,
				ID:         s.id,
				Generation: m.Current.Number,
				ShardCount: m.Shards,
				Shards:     []shardAtEntry{{Shard: shard}},
			}
			out, err := s.c.changeOnNode(ctx, n, op, &request[changeRequest]{target, in}, len(holders) > 1)
			if err == nil {
				s.c.noteEntry(shardKey{s.id, shard}, out.Entry)
				return out, nil
			}
			lastErr = fmt.Errorf("node %s: %w", n.Name, err)
			if wrapsAny(err, errNoAnswer, errUnsent) && !errors.Is(ctx.Err(), context.Canceled) {
				s.c.suspectNode(n)
			}
			if cutOffHolders++; !errors.Is(err, errCutOff) {
				cutOffHolders = 0
			}
			// The error decides whether the change is sent again, and to which holder.
			mayBeDone := wrapsAny(err, errNoAnswer, journal.ErrUnknown, storage.ErrOutcomeUnknown)
			switch {
			case !mayBeDone && (isFinal(err) || wrapsAny(err, collection.ErrBusy, collection.ErrEmpty)):
				return nil, markUnknown(outcomeUnknown && !isFinal(err), err)
			case !mayBeDone && wrapsAny(err, errGeneration, store.ErrUndecided):
				holderIndex += try % 2 // the node may lag behind this process: ask it a second time
			case !mayBeDone && errors.Is(err, store.ErrLate): // it was never sent, so a newer entry is a safe start
				in.Batch.After = max(in.Batch.After, s.logEnd(ctx, shard, askForEnd))
			case !mayBeDone && isCertainlyNotDone(err):
				holderIndex++
			default:
				outcomeUnknown, in.Batch.Sent = true, true
				holderIndex++
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, markUnknown(outcomeUnknown, err)
		}
		// Wait, so that other nodes can take over, and look for a newer map, which may name them.
		wait := backoff(try)
		// Give up early if all holders are cut off from the store, unless the change may have been made.
		cutOff := cutOffHolders > 0 && cutOffHolders >= len(holders) && !outcomeUnknown
		if cutOff || time.Until(limit) < wait {
			return nil, markUnknown(outcomeUnknown,
				fmt.Errorf("%w: shard %d of %q: %w", collection.ErrUnreachable, shard, s.name, lastErr))
		}
		sleepFor(ctx, wait)
		if try > 0 || wrapsAny(lastErr, errGeneration, collection.ErrUnknown) {
			_, _ = s.c.refreshMap(ctx, s.name)
		}
	}
}

// logEndTimeout limits how long shards are asked for the end of their log.
const logEndTimeout = 2 * time.Second

// Values of the parameter refresh of logEnd.
const (
	useKnownEnd = false
	askForEnd   = true
)

// logEnd returns the end of the log of a shard, 0 if it is not known. The shard is asked if this process has seen no
// entry of it, or with refresh: a change with a lost answer would otherwise be looked for in the whole log.
func (s *shardedCollection) logEnd(ctx context.Context, shard int, refresh bool) uint64 {
	if n := s.c.newestEntry(s.id, shard); n > 0 && !refresh {
		return n
	}
	ctx, stop := context.WithTimeout(ctx, logEndTimeout)
	defer stop()
	_, _, _, _ = readShards[describeAnswer](ctx, s, opStats, oneShard(shard), &describeRequest{})
	return s.c.newestEntry(s.id, shard)
}

// probeInterval is how long a change may be unanswered before its node is asked whether it is alive, and then again.
const probeInterval = 500 * time.Millisecond

// changeOnNode sends a change of a shard to a node. If the shard has other holders, it does not wait for a node that
// hangs or does not reach the store; the outcome is then unknown.
func (c *Cluster) changeOnNode(ctx context.Context, n *Node, op string, in *request[changeRequest],
	hasOthers bool) (out *changeResult, err error) {
	// Allow more time for larger changes.
	size := 0
	for i := range in.In.Documents {
		size += 4*len(in.In.Documents[i].Vectors) + len(in.In.Documents[i].Metadata)
	}
	ctx, stop := context.WithTimeout(ctx, attemptTime+time.Duration(size>>20)*attemptPerMiB)
	defer stop()
	done := c.front.peers.beginOther(n.Name)
	defer func() { done(err == nil) }()
	type answer struct {
		out *changeResult
		err error
	}
	results := make(chan answer, 1)
	go func() {
		out := &changeResult{}
		results <- answer{out, c.callNode(ctx, n, op, in, out)}
	}()
	// Wait for the answer, and ask the node now and then whether it is alive.
	for {
		var probe <-chan time.Time
		if hasOthers {
			probe = time.After(probeInterval)
		}
		select {
		case a := <-results:
			return a.out, a.err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		case <-probe:
			err = c.probeNodeAndStore(ctx, n)
			select {
			case a := <-results:
				return a.out, a.err
			default:
			}
			if err != nil && ctx.Err() == nil {
				return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
			}
		}
	}
}

// isCertainlyNotDone reports whether an error says that a change was not made.
func isCertainlyNotDone(err error) bool {
	return wrapsAny(err, errUnsent, errNotHere, errTooBusy, errMessage, errSecret, errNoRoute, errCutOff,
		journal.ErrBehind, journal.ErrFork, replica.ErrFailed, context.Canceled, context.DeadlineExceeded,
		collection.ErrUnknown, collection.ErrClosed, collection.ErrReopened, collection.ErrDamaged,
		collection.ErrUnreachable)
}

// markUnknown adds [storage.ErrOutcomeUnknown] to the error of a change that may have been made.
func markUnknown(unknown bool, err error) error {
	if !unknown {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrOutcomeUnknown, err)
}

// randomID returns a random id, which is unique for all practical purposes.
func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
