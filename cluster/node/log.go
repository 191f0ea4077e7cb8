package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/condition"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

var (
	// errLog: the log cannot be followed.
	errLog = errors.New("the log cannot be followed")
	// errLost: the log is not the one that was applied.
	errLost = fmt.Errorf("%w: it has lost entries", errLog)
)

// follow applies the entries of the log in their order, and returns when that cannot go
// on. The replica is ready as soon as it has what was in the log when it began.
//
// The consumer is a plain one, made anew whenever something is odd: that entries come
// in order is checked here anyway, and every request has an end.
func (r *replica) follow() error {
	var stream jetstream.Stream
	if err := r.request(func(ctx context.Context) (err error) {
		stream, err = r.n.bus.JS.Stream(ctx, bus.LogStream(r.key.collection, r.key.shard))
		return err
	}); err != nil {
		return err
	}
	target, err := r.check(stream)
	if err != nil {
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
	caughtUp := func() {
		if s := r.state(); s.Applied >= target && (!s.Ready || s.Log != "") {
			r.set(func() { r.ready, r.logFault, r.lost = true, "", false })
		}
	}
	caughtUp()
	for {
		batch, err := consumer.Fetch(64, jetstream.FetchMaxWait(r.n.c.Renew), jetstream.FetchHeartbeat(r.n.c.Renew/3))
		if err != nil {
			return fmt.Errorf("%w: %w", errLog, err)
		}
		for msg := range batch.Messages() {
			if r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			meta, err := msg.Metadata()
			if err != nil {
				return fmt.Errorf("%w: %w", errLog, err)
			}
			if meta.Sequence.Stream != next {
				return fmt.Errorf("%w: entry %d comes where %d is next", errLog, meta.Sequence.Stream, next)
			}
			if err := r.apply(next, msg.Data()); err != nil {
				return err
			}
			next++
			caughtUp()
		}
		switch err := batch.Error(); {
		case r.ctx.Err() != nil:
			return r.ctx.Err()
		case err != nil:
			return fmt.Errorf("%w: %w", errLog, err)
		}
		if _, err := r.check(stream); err != nil {
			return err
		}
	}
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
// others where the log ends, shows that the log has lost entries.
func (r *replica) check(stream jetstream.Stream) (last uint64, err error) {
	var info *jetstream.StreamInfo
	look := func() error {
		return r.request(func(ctx context.Context) (err error) { info, err = stream.Info(ctx); return err })
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

// Ack is what a replica says of an entry of its log, to the subject that the batch
// names, when the entry is in its file and durable.
type Ack struct {
	Batch    string `json:"batch"`
	Node     string `json:"node"`
	Shard    int    `json:"shard"`
	Sequence uint64 `json:"sequence"`
	// Refused says why the batch was not carried out, which all replicas find alike; "": it was.
	Refused string `json:"refused,omitempty"`
	Kind    string `json:"kind,omitempty"` // of a refusal: "duplicate" or "bad"
	// First is the ordinal of the first of the documents that were added; the others follow.
	First uint32 `json:"first,omitempty"`
	// Added, Replaced, Deleted and Updated count documents; Missing are ids that were to be
	// deleted.
	Added    int      `json:"added,omitempty"`
	Updated  int      `json:"updated,omitempty"`
	Replaced int      `json:"replaced,omitempty"`
	Deleted  int      `json:"deleted,omitempty"`
	Missing  []string `json:"missing,omitempty"`
}

// apply carries out an entry, in one transaction with its number.
func (r *replica) apply(sequence uint64, data []byte) error {
	ix := r.use()
	if ix == nil {
		return errNotOpen
	}
	defer r.release()
	ack := Ack{Node: r.n.c.Name, Shard: r.key.shard, Sequence: sequence}
	entry := ix.Entry(sequence)
	batch, err := wire.DecodeBatch(data)
	reply := ""
	if err == nil {
		ack.Batch, reply = batch.ID.String(), batch.Reply
		err = r.carryOut(entry, batch, &ack)
	}
	if kind := refusal(err); kind != "" {
		ack.Refused, ack.Kind = err.Error(), kind
		err = entry.Skip(r.ctx)
	}
	if err != nil && !errors.Is(err, index.ErrApplied) {
		return fmt.Errorf("%s, entry %d of the log: %w", r.key, sequence, err)
	}
	if err := r.look(); err != nil {
		return err
	}
	if reply == "" || r.n.isNext(r.key) {
		return nil
	}
	text, err := json.Marshal(ack)
	if err == nil {
		err = r.n.bus.Conn.Publish(reply, text)
	}
	if err != nil {
		r.n.log.Warn("a change is not acknowledged", "replica", r.key, "entry", sequence, "error", err)
	}
	return nil
}

// isNext tells whether a replica is of a generation that nobody searches yet: what it
// has does not count for a change.
func (n *Node) isNext(k key) bool {
	m, err := n.watch.MapOf(k.collection)
	return err == nil && m.Current != nil && m.Current.Number != k.generation
}

func (r *replica) carryOut(entry index.Entry, b *wire.Batch, ack *Ack) (err error) {
	if b.Shard != r.key.shard {
		return fmt.Errorf("%w: a batch for shard %d in the log of shard %d", wire.ErrMessage, b.Shard, r.key.shard)
	}
	if b.Op == wire.Delete {
		ids := make([]string, len(b.Documents))
		for i, d := range b.Documents {
			ids[i] = d.ID
		}
		ack.Deleted, ack.Missing, err = entry.Delete(r.ctx, ids)
		return err
	}
	if b.Choice != nil {
		return r.carryOutChoice(entry, b, ack)
	}
	var model *storage.Model
	if b.Model != nil {
		model = &storage.Model{}
		if err := json.Unmarshal(b.Model, model); err != nil {
			return fmt.Errorf("%w: model: %w", wire.ErrMessage, err)
		}
	}
	src, err := vectors.FromDocuments(max(b.Dim, 1), b.Documents)
	if err != nil {
		return err
	}
	if b.Dim == 0 { // documents without tokens are of any dimension
		src = anyDim{src}
	}
	report, err := entry.Add(r.ctx, src, &index.AddOptions{Replace: b.Op == wire.Put, Model: model, Threads: r.n.c.Threads})
	if err == nil {
		ack.Added, ack.Replaced, ack.First = report.Docs, report.Replaced, report.First
	}
	return err
}

// carryOutChoice changes the documents that a condition is true of now. All replicas have
// the same documents at this entry, so they choose the same.
func (r *replica) carryOutChoice(entry index.Entry, b *wire.Batch, ack *Ack) error {
	var choice wire.Choice
	if err := wire.ReadJSON(b.Choice, &choice); err != nil {
		return err
	}
	where, err := conditionOf(choice.Where)
	if err != nil {
		return err
	}
	if b.Op == wire.DeleteWhere {
		ack.Deleted, err = entry.DeleteWhere(r.ctx, where.Lenient())
	} else {
		ack.Updated, err = entry.UpdatePayload(r.ctx, where.Lenient(), choice.Set)
	}
	return err
}

type anyDim struct{ vectors.Source }

func (anyDim) Dim() int { return 0 }

// refusal is the kind of an error that every replica gets of an entry, whatever the
// machine; "": it is another one, or none.
func refusal(err error) string {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case is(index.ErrDuplicateID):
		return "duplicate"
	case is(index.ErrDimension, index.ErrTooMany, index.ErrOption, storage.ErrModel, vectors.ErrID, vectors.ErrShape, vectors.ErrValue, wire.ErrMessage, wire.ErrVersion, condition.ErrNoObject):
		return "bad"
	}
	return ""
}
