package node

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/nats-io/nats.go"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/keywords"
)

// maxLook is about how many bytes of payloads and vectors an answer has: a message has room
// for them in base64, and for the ids.
const maxLook = 4 << 20

// maxListed is how many documents an answer has at most.
const maxListed = 1 << 15

// maxWaitingLooks is how many questions for documents a node has at a time, those that wait
// for their turn included.
const maxWaitingLooks = 4096

// hearLook answers for documents of a shard, some questions at a time; others wait.
func (n *Node) hearLook(msg *nats.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	if n.asked.Add(1) > maxWaitingLooks {
		n.asked.Add(-1)
		n.found(msg, &wire.Found{Status: wire.Busy})
		return
	}
	n.done.Go(func() {
		defer n.asked.Add(-1)
		var l wire.Look
		if err := wire.ReadJSON(msg.Data, &l); err != nil {
			n.found(msg, &wire.Found{Status: wire.Refused, Code: wire.CodeQuery, Text: err.Error()})
			return
		}
		ctx, stop := context.WithTimeout(n.ctx, l.Left)
		defer stop()
		ctx, span := n.heard(ctx, msg, "documents", n.attributes(l.Collection, l.Generation, l.Shard))
		defer span.End()
		select {
		case n.looks <- struct{}{}:
			defer func() { <-n.looks }()
			var f *wire.Found
			if err := n.guard("a question for documents", func() error { f = n.look(ctx, &l); return nil }); err != nil {
				f = &wire.Found{Status: wire.Failed, Text: err.Error()}
			}
			n.found(msg, f)
		case <-ctx.Done(): // nobody waits any more
		}
	})
}

func (n *Node) found(msg *nats.Msg, f *wire.Found) {
	text, err := json.Marshal(f)
	if most := n.bus.Conn.MaxPayload(); err == nil && int64(len(text)) > most {
		text, err = json.Marshal(&wire.Found{Status: wire.Refused, Code: wire.CodeOption, Text: fmt.Sprintf("the documents take %d bytes, %d are the most of a message", len(text), most)})
	}
	if err == nil {
		err = msg.Respond(text)
	}
	if err != nil {
		n.log.Warn("a question for documents is not answered", "error", err)
	}
}

// look finds documents in one state of a shard.
func (n *Node) look(ctx context.Context, l *wire.Look) *wire.Found {
	k := key{l.Collection, l.Generation, l.Shard}
	r := n.replica(k)
	if r == nil || !r.state().Ready {
		return &wire.Found{Status: wire.WrongGeneration, Text: fmt.Sprintf("%s is not here", k)}
	}
	if l.Explain != nil {
		return n.explain(ctx, l)
	}
	f, err := n.lookAt(ctx, r, l)
	if errors.Is(err, keywords.ErrDamaged) { // which the next attempt mends
		f, err = n.lookAt(ctx, r, l)
	}
	switch {
	case err == nil:
		return f
	case errors.Is(err, wire.ErrMessage):
		return &wire.Found{Status: wire.Refused, Code: wire.CodeOption, Text: err.Error()}
	}
	return notFound(n.failed(ctx, err))
}

func (n *Node) lookAt(ctx context.Context, r *replica, l *wire.Look) (f *wire.Found, err error) {
	f = &wire.Found{}
	if l.Words != nil {
		if err := r.syncWords(ctx); err != nil {
			return f, err
		}
	}
	return f, r.at(func(snap *index.Snapshot, applied uint64) error {
		if applied < l.Applied {
			r.hint()
			f.Status, f.Text = wire.Behind, fmt.Sprintf("shard %d has applied %d of its log, %d is asked for", l.Shard, applied, l.Applied)
			return nil
		}
		f.Applied = applied
		switch {
		case l.Words != nil:
			return r.words(ctx, snap, l, f)
		case l.Feedback != nil:
			return feedback(ctx, snap, l, f)
		case l.Facet != nil:
			return facet(ctx, snap, l, f)
		case l.Stats:
			f.Stats = r.stats(snap)
		}
		return gather(ctx, snap, l, f)
	})
}

// notFound is an answer without documents.
func notFound(a *wire.Answer) *wire.Found {
	return &wire.Found{Status: a.Status, Code: a.Code, Text: a.Text}
}

// explain tells what becomes of a document in a search of its shard.
func (n *Node) explain(ctx context.Context, l *wire.Look) *wire.Found {
	q, err := wire.DecodeQuery(l.Explain)
	if err == nil && (len(q.Shards) != 1 || len(l.IDs) != 1) {
		err = fmt.Errorf("%w: an explanation is of one document and of its shard", wire.ErrMessage)
	}
	var query search.Query
	var o search.Options
	if err == nil {
		query, o, err = request(q)
	}
	if err != nil {
		return &wire.Found{Status: wire.Refused, Code: wire.CodeQuery, Text: err.Error()}
	}
	p, no := n.pick(q)
	if no != nil {
		return notFound(no)
	}
	defer p.close()
	f := &wire.Found{}
	if o.Filter != nil && o.Filter.Where != nil {
		if f.Unknown, err = unknownFields(ctx, p.snap.Parts(), o.Filter.Where); err != nil {
			return notFound(n.failed(ctx, err))
		}
		o.Filter.Where = o.Filter.Where.Lenient()
	}
	if f.Explanation, err = p.searcher.Explain(ctx, query, l.IDs[0], o); err != nil {
		return notFound(n.failed(ctx, err))
	}
	return f
}

// gather reads the documents that are asked for, as many as fit.
func gather(ctx context.Context, snap *index.Snapshot, l *wire.Look, f *wire.Found) error {
	limit, room := maxListed, maxLook
	if l.Limit > 0 {
		limit = min(limit, l.Limit)
	}
	if l.Bytes > 0 {
		room = min(room, l.Bytes)
	}
	// take reads a document; place is where to go on if it has no room.
	take := func(place, ordinal uint32) (goOn bool, err error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		full := len(f.Documents) >= limit
		var d wire.FoundDocument
		if !full {
			if d, err = document(snap, ordinal, l); err != nil {
				return false, err
			}
			size := len(d.Payload) + len(d.Vectors) + len(d.ID)
			full = len(f.Documents) > 0 && size > room // one by itself has a message of its own
			room -= size
		}
		if full {
			f.More, f.Next = true, place
			return false, nil
		}
		f.Documents = append(f.Documents, d)
		return true, nil
	}
	var among *roaring.Bitmap
	switch {
	case l.IDs != nil:
		for i := int(l.From); i < len(l.IDs); i++ {
			ordinal, there, err := snap.Ordinal(l.IDs[i])
			if err != nil {
				return err
			}
			if there {
				if goOn, err := take(uint32(i), ordinal); err != nil || !goOn {
					return err
				}
			}
		}
		return nil
	case l.Ordinals != nil:
		for i := int(l.From); i < len(l.Ordinals); i++ {
			if ordinal := l.Ordinals[i]; snap.Live(ordinal) {
				if goOn, err := take(uint32(i), ordinal); err != nil || !goOn {
					return err
				}
			}
		}
		return nil
	case l.Filter != nil:
		where, err := conditionOf(l.Filter)
		if err != nil {
			return err
		}
		if f.Unknown, err = unknownFields(ctx, []*index.Snapshot{snap}, where); err != nil {
			return err
		}
		if among, err = snap.Select(ctx, where.Lenient()); err != nil {
			return err
		}
	case l.All:
		among = roaring.New()
		among.AddRange(0, uint64(snap.State().Docs))
		among.AndNot(snap.Tombstones())
	default:
		return nil
	}
	it, before := among.Iterator(), ""
	for it.AdvanceIfNeeded(l.From); it.HasNext(); {
		ordinal := it.Next()
		if l.Whole {
			id := snap.DocumentOf(ordinal)
			if id == before {
				continue // its passages are in a row
			}
			before = id
		}
		if goOn, err := take(ordinal, ordinal); err != nil || !goOn {
			return err
		}
	}
	return nil
}

func document(snap *index.Snapshot, ordinal uint32, l *wire.Look) (d wire.FoundDocument, err error) {
	if d.Ordinal, d.ID = ordinal, snap.ID(ordinal); l.Whole {
		d.ID = snap.DocumentOf(ordinal)
	}
	if l.Payload {
		if d.Payload, err = snap.Payload(ordinal); err != nil {
			return d, err
		}
	}
	if l.Vectors {
		v, err := snap.Vectors(ordinal)
		if err != nil {
			return d, err
		}
		for _, x := range v {
			d.Vectors = binary.LittleEndian.AppendUint32(d.Vectors, math.Float32bits(x))
		}
	}
	return d, nil
}

// stats describes a shard.
func (r *replica) stats(snap *index.Snapshot) *wire.ShardStats {
	s, h := snap.State(), snap.Header()
	st := &wire.ShardStats{
		Documents: uint64(snap.Documents()), Passages: uint64(s.Passages), Deleted: uint64(s.Docs - s.Live), Tokens: s.LiveTokens,
		Payloads: snap.Payloads(), Nbits: h.Nbits, Centroids: h.Centroids, Normalize: h.Normalize,
	}
	st.Source, st.Trained, st.TrainRMSE, st.Added, st.AddedErrors = h.Build.Source, h.Build.Tokens, h.Build.RMSE, s.AddedTokens, s.AddedSumSq
	if info, err := os.Stat(r.n.path(r.key)); err == nil {
		st.FileBytes = info.Size()
	}
	return st
}
