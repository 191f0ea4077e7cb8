package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

var (
	// errLog: the log cannot be followed.
	errLog = errors.New("the log cannot be followed")
	// errLost: the log is not the one that was applied.
	errLost = fmt.Errorf("%w: it has lost entries", errLog)
)

// errAgain: what brings the entries may be gone, and following begins anew.
var errAgain = errors.New("the log is followed anew")

// follow applies the entries of the log in their order, and returns when that cannot go
// on. The replica is ready as soon as it has what was in the log when it began.
//
// The consumer is a plain one, made anew whenever something is odd: that entries come
// in order is checked here anyway, and every request has an end.
func (r *replica) follow() error {
	connection := r.n.connections.Load()
	var stream jetstream.Stream
	if err := r.request(func(ctx context.Context) (err error) {
		stream, err = r.n.bus.JS.Stream(ctx, bus.LogStream(r.key.collection, r.key.shard))
		return err
	}); err != nil {
		return err
	}
	var latest time.Time // of the last entry that was applied; zero: none was since following began
	target, err := r.check(stream, latest)
	if err != nil {
		return err
	}
	if err := r.compare(stream); err != nil {
		return err
	}
	next := r.state().Applied + 1
	var consumer jetstream.Consumer
	if err := r.request(func(ctx context.Context) (err error) {
		consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next, AckPolicy: jetstream.AckNonePolicy,
			InactiveThreshold: time.Minute, MemoryStorage: true, Replicas: 1,
		})
		return err
	}); err != nil {
		return err
	}
	defer r.forget(stream, consumer)
	entries, err := pull(r.n.bus.Conn, bus.LogStream(r.key.collection, r.key.shard), consumer.CachedInfo().Name)
	if err != nil {
		return fmt.Errorf("%w: %w", errLog, err)
	}
	defer entries.close()
	caughtUp := func() {
		if s := r.state(); s.Applied >= target && (!s.Ready || s.Log != "") {
			r.set(func() { r.ready, r.logFault, r.lost = true, "", false })
		}
	}
	caughtUp()
	moved := time.Now() // when an entry was applied last, or the log was looked at
	behind := time.NewTimer(time.Hour)
	defer behind.Stop()
	behind.Stop()
	for {
		if err := entries.ask(); err != nil {
			return fmt.Errorf("%w: %w", errLog, err)
		}
		select {
		case msg := <-entries.msgs:
			if r.far(len(msg.Data)) {
				return errFar
			}
			if err := r.take(entries, msg, &next, &latest); err != nil {
				return err
			}
			caughtUp()
			moved = time.Now()
		case <-r.hints:
			if r.n.connections.Load() != connection {
				return errAgain // a server that was reached again knows of no request
			}
			if time.Since(moved) < r.n.c.Renew {
				continue
			}
			last, err := r.check(stream, latest)
			if err != nil {
				return err
			}
			if moved = time.Now(); last >= next {
				behind.Reset(min(r.n.c.Renew, arrival))
			}
		case <-behind.C:
			if len(entries.msgs) == 0 && time.Since(moved) >= min(r.n.c.Renew, arrival) {
				return errAgain
			}
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

// arrival is how long an entry that is in the log may take to come.
const arrival = 500 * time.Millisecond

// take applies an entry and all that have come behind it.
func (r *replica) take(entries *puller, msg *nats.Msg, next *uint64, latest *time.Time) error {
	var together run
	for there := true; there; {
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		meta, err := entries.take(msg)
		if err != nil {
			return fmt.Errorf("%w: %w", errLog, err)
		}
		if meta != nil {
			if meta.Sequence.Stream != *next {
				return fmt.Errorf("%w: entry %d comes where %d is next", errLog, meta.Sequence.Stream, *next)
			}
			if e := r.read(*next, msg.Data); len(together.entries) > 0 && r.awaited(*next-1) || !together.takes(e) {
				if err := r.apply(together.entries); err != nil {
					return err
				}
				together = run{}
				together.takes(e)
			}
			*latest = meta.Timestamp
			*next++
			r.logEnd.Store(meta.Sequence.Stream + meta.NumPending)
		}
		select {
		case msg = <-entries.msgs:
		default:
			there = false
		}
	}
	if len(together.entries) == 0 {
		return nil
	}
	return r.apply(together.entries)
}

// hint has a replica look whether its log is as it seems, if it is idle.
func (r *replica) hint() {
	select {
	case r.hints <- struct{}{}:
	default:
	}
}

// suspect hints at what may be wrong with the logs of replicas, which nobody tells them. All
// look when a connection was made anew; one does when another replica of its shard is ahead,
// or somebody asks for an entry that it does not have; and each does when it has its turn:
// one of the node at a time, however many there are.
func (n *Node) suspect() {
	tick := time.NewTicker(n.c.Renew)
	defer tick.Stop()
	again := n.bus.Conn.StatusChanged(nats.CONNECTED)
	defer n.bus.Conn.RemoveStatusListener(again)
	var turn []*replica
	for {
		changed := n.watch.Changed()
		for _, r := range n.all() {
			if !r.complete() {
				r.hint()
			}
		}
		select {
		case <-changed:
		case <-again:
			n.connections.Add(1)
			for _, r := range n.all() {
				r.hint()
			}
		case <-tick.C:
			if len(turn) == 0 {
				turn = n.all()
			}
			if len(turn) > 0 {
				turn[0].hint()
				turn = turn[1:]
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// all are the replicas.
func (n *Node) all() []*replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.replicas))
}

// request asks JetStream for something, and not for ever.
func (r *replica) request(ask func(context.Context) error) error {
	ctx, stop := context.WithTimeout(r.ctx, bus.Attempt)
	defer stop()
	if err := ask(ctx); err != nil {
		return fmt.Errorf("%w: %w", errLog, err)
	}
	return nil
}

// forget deletes a consumer; the server does so by itself after a while.
func (r *replica) forget(stream jetstream.Stream, consumer jetstream.Consumer) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(r.ctx), time.Second)
	defer stop()
	_ = stream.DeleteConsumer(ctx, consumer.CachedInfo().Name)
}

// check compares the replica with the log: one that has more than the log, or than
// others where the log ends, shows that the log has lost entries. So does one whose last
// entry is not the one that the log ends with now.
func (r *replica) check(stream jetstream.Stream, latest time.Time) (last uint64, err error) {
	var info *jetstream.StreamInfo
	look := func() error {
		return r.request(func(ctx context.Context) (err error) {
			if info, err = stream.Info(ctx); err == nil {
				r.logEnd.Store(info.State.LastSeq)
			}
			return err
		})
	}
	if err := look(); err != nil {
		return 0, err
	}
	applied := r.state().Applied
	switch last = info.State.LastSeq; {
	case info.State.FirstSeq > applied+1:
		return 0, fmt.Errorf("%w: it has %d, the log begins with %d", errTrimmed, applied, info.State.FirstSeq)
	case last < applied:
		return 0, fmt.Errorf("%w: it ends at %d and the replica has %d", errLost, last, applied)
	case last == applied && !latest.IsZero() && info.State.Msgs > 0 && !info.State.LastTime.Equal(latest):
		return 0, fmt.Errorf("%w: its entry %d is another one than was applied", errLost, last)
	}
	for _, o := range r.n.watch.Replicas(r.key.collection, r.key.generation, r.key.shard) {
		if o.Applied > last {
			// The log may have grown between the two looks.
			if err := look(); err != nil {
				return 0, err
			}
			if last = info.State.LastSeq; o.Applied > last {
				return 0, fmt.Errorf("%w: it ends at %d and node %s has %d", errLost, last, o.Node, o.Applied)
			}
		}
	}
	return last, nil
}

// mark tells an entry of a log from another one of its number.
func mark(data []byte) [16]byte {
	sum := sha256.Sum256(data)
	return [16]byte(sum[:])
}

// compare compares the last entry that was applied with the one of its number in the log:
// a log that has lost its end and grown again has another one. An entry that was cut off
// cannot be compared; cutting leaves the last one.
func (r *replica) compare(stream jetstream.Stream) error {
	var last storage.Applied
	if err := r.at(func(snap *index.Snapshot, _ uint64) (err error) { last, err = snap.Applied(); return err }); err != nil {
		return err
	}
	if last.Mark == [16]byte{} {
		return nil
	}
	var entry *jetstream.RawStreamMsg
	err := r.request(func(ctx context.Context) (err error) { entry, err = stream.GetMsg(ctx, last.Sequence); return err })
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	case err != nil:
		return err
	case mark(entry.Data) != last.Mark:
		return fmt.Errorf("%w: its entry %d is not the one that the replica has", errLost, last.Sequence)
	}
	return nil
}
