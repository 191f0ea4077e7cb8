package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// WriteOptions of Add and Delete. The zero value, or nil, is for a change without a
// condition.
type WriteOptions struct {
	// Replace lets a document take the place of one with the same id; without it that is an
	// error ([index.ErrDuplicateID]).
	Replace bool
	// Model, where set, is what made the vectors.
	Model *storage.Model
	// Placed, where set, is told of each document that was added, by its id, the shard and the
	// ordinal in it. It is called by one goroutine at a time.
	Placed func(id string, shard int, ordinal uint32)
	// If, where set, has for shards the last entry of their logs: a shard that has been
	// changed since refuses the change ([ErrConflict]). Shards that are not named have no
	// condition.
	If map[int]uint64
}

// WriteReport says what was changed. What is reported is in the files of as many
// replicas as the map asks for, durable.
type WriteReport struct {
	Added    int `json:"added"`    // documents, those that took the place of others included
	Replaced int `json:"replaced"` // documents whose place was taken
	Deleted  int `json:"deleted"`  // documents
	Updated  int `json:"updated"`  // documents the payload of which was changed
	// Missing are ids that were to be deleted and name nothing.
	Missing []string `json:"missing,omitempty"`
	// Applied has the last entry of each shard's log that was part of it: [WriteOptions.If]
	// of a change that is to follow only this one.
	Applied map[int]uint64 `json:"applied"`
}

// WriteError says which shard a change has failed at. The report beside it tells what
// was made in others and before: a change of several batches is not atomic.
type WriteError struct {
	Shard int
	Err   error
}

func (e *WriteError) Error() string { return fmt.Sprintf("shard %d: %v", e.Shard, e.Err) }

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// Add adds documents. Those of one shard are added in their order, in batches of which
// each is atomic.
//
// Errors: [ErrQuorum], [ErrRefused] (with [index.ErrDuplicateID] for an id that is there
// already), [ErrConflict], [ErrUnacknowledged], [ErrEmpty], [topology.ErrNoCollection],
// and those of src.
func (f *Client) Add(ctx context.Context, src vectors.Source, o *WriteOptions) (*WriteReport, error) {
	if o == nil {
		o = &WriteOptions{}
	}
	w, done, err := f.writing(ctx, o)
	if err != nil {
		return nil, err
	}
	defer done()
	op := wire.AddWhole
	if o.Replace {
		op = wire.PutWhole
	}
	if d := src.Dim(); d != 0 && d != w.m.Current.Dim {
		return nil, fmt.Errorf("%w: documents have %d, the collection has %d", index.ErrDimension, d, w.m.Current.Dim)
	}
	if o.Model != nil {
		if w.model, err = json.Marshal(o.Model); err != nil {
			return nil, err
		}
	}
	for doc, err := range src.Docs(w.ctx, 0, src.Len()) {
		if err == nil {
			err = w.add(op, src.Dim(), doc)
		}
		if err != nil {
			return w.end(err)
		}
	}
	return w.end(w.flush())
}

// Delete removes documents, with their passages where these lie with them. Errors are those of
// Add.
func (f *Client) Delete(ctx context.Context, ids []string, o *WriteOptions) (*WriteReport, error) {
	if o == nil {
		o = &WriteOptions{}
	}
	w, done, err := f.writing(ctx, o)
	if err != nil {
		return nil, err
	}
	defer done()
	for _, id := range unique(ids) {
		if err := w.add(wire.DeleteWhole, 0, vectors.Document{ID: id}); err != nil {
			return w.end(err)
		}
	}
	return w.end(w.flush())
}

// DeleteWhere removes the documents that a condition is true of, in each shard when the
// change has its turn there. Errors are those of Add, and [condition.ErrUnknownField] for
// a field that no document has; then nothing is changed.
func (f *Client) DeleteWhere(ctx context.Context, where *condition.Condition, o *WriteOptions) (*WriteReport, error) {
	return f.change(ctx, wire.DeleteWhere, where, nil, o)
}

// UpdatePayload sets fields in the payloads of the documents that a condition is true of,
// as [index.Index.UpdatePayload] does. Otherwise it is as DeleteWhere.
func (f *Client) UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields, o *WriteOptions) (*WriteReport, error) {
	if err := set.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", index.ErrOption, err)
	}
	return f.change(ctx, wire.Set, where, set, o)
}

// change has every shard change what a condition is true of.
func (f *Client) change(ctx context.Context, op wire.Op, where *condition.Condition, set condition.Fields, o *WriteOptions) (*WriteReport, error) {
	if o == nil {
		o = &WriteOptions{}
	}
	text, err := choiceOf(where, set)
	if err != nil {
		return nil, err
	}
	if err := f.CheckFields(ctx, where); err != nil {
		return nil, err
	}
	w, done, err := f.writing(ctx, o)
	if err != nil {
		return nil, err
	}
	defer done()
	for s := range w.m.Shards() {
		w.batches[s] = &wire.Batch{ID: wire.NewID(), Op: op, Shard: s, Choice: text}
	}
	return w.end(w.flush())
}

// choiceOf says which documents change, and how.
func choiceOf(where *condition.Condition, set condition.Fields) ([]byte, error) {
	filter, err := whereJSON(where)
	if err != nil {
		return nil, err
	}
	choice := wire.Choice{Where: filter, Set: map[string]json.RawMessage{}}
	for key, value := range set {
		if len(value) == 0 {
			choice.Remove = append(choice.Remove, key)
		} else {
			choice.Set[key] = value
		}
	}
	slices.Sort(choice.Remove)
	return json.Marshal(choice)
}

// writing is a change on its way.
type writing struct {
	f       *Client
	ctx     context.Context
	caller  context.Context
	m       *topology.Map
	o       *WriteOptions
	model   []byte
	batches map[int]*wire.Batch
	bytes   map[int]int
	// begun are the documents of which some passages were sent: others come beside them, and do
	// not take their place.
	begun map[string]bool

	mu     sync.Mutex
	report WriteReport
}

func (f *Client) writing(ctx context.Context, o *WriteOptions) (*writing, func(), error) {
	within, done, err := f.begin(ctx, f.c.WriteDeadline)
	if err != nil {
		return nil, nil, err
	}
	m, err := f.collection()
	if err != nil {
		done()
		return nil, nil, err
	}
	w := &writing{f: f, ctx: within, caller: ctx, m: m, o: o, batches: map[int]*wire.Batch{}, bytes: map[int]int{}, begun: map[string]bool{}}
	w.report.Applied = map[int]uint64{}
	return w, done, nil
}

func (w *writing) end(err error) (*WriteReport, error) {
	if err != nil && w.caller.Err() != nil && !errors.Is(err, ErrUnacknowledged) {
		err = w.caller.Err()
	}
	return &w.report, err
}

// add puts a document into the batch of its shard, and sends that if it is large enough.
func (w *writing) add(op wire.Op, dim int, doc vectors.Document) error {
	if err := vectors.CheckID(doc.ID); err != nil {
		return err
	}
	s := w.m.ShardOf(doc.ID)
	size := len(doc.ID) + len(doc.Payload) + 4*len(doc.Tokens) + 16
	if int64(size) > w.f.bus.Conn.MaxPayload()-1024-int64(len(w.model)) {
		return fmt.Errorf("document %q: %w: it has %d bytes, a message %d at most", doc.ID, ErrRefused, size, w.f.bus.Conn.MaxPayload())
	}
	if w.begun[topology.Whole(doc.ID)] {
		op = op.Alone()
	}
	if b := w.batches[s]; b != nil && (b.Op != op || w.bytes[s]+size > w.f.c.BatchBytes) {
		if err := w.send(s); err != nil {
			return err
		}
		op = w.beside(op, b, doc.ID)
	}
	b := w.batches[s]
	if b == nil {
		b = &wire.Batch{ID: wire.NewID(), Op: op, Shard: s, Dim: dim, Model: w.model}
		w.batches[s] = b
	}
	b.Documents = append(b.Documents, vectors.Document{ID: doc.ID, Tokens: append([]float32(nil), doc.Tokens...), Payload: doc.Payload})
	w.bytes[s] += size
	return nil
}

// beside takes down the documents of a batch that was sent, and is the operation on a passage
// that comes after it.
func (w *writing) beside(op wire.Op, sent *wire.Batch, id string) wire.Op {
	if !op.Whole() || op == wire.DeleteWhole {
		return op
	}
	for i := range sent.Documents {
		if d := &sent.Documents[i]; topology.Whole(d.ID) != d.ID {
			w.begun[topology.Whole(d.ID)] = true
		}
	}
	if w.begun[topology.Whole(id)] {
		return op.Alone()
	}
	return op
}

// flush sends what there is, to all shards at a time.
func (w *writing) flush() error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for s := range w.m.Shards() {
		if w.batches[s] == nil {
			continue
		}
		wg.Go(func() {
			if err := w.publish(s); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	wg.Wait()
	return failed
}

func (w *writing) send(s int) error {
	err := w.publish(s)
	delete(w.batches, s)
	delete(w.bytes, s)
	return err
}

// publish writes a batch to the log of its shard and waits until enough replicas have it.
func (w *writing) publish(s int) error {
	fail := func(err error) error { return &WriteError{s, err} }
	if err := w.f.awaitQuorum(w.ctx, w.m, s); err != nil {
		return fail(err)
	}
	b := w.batches[s]
	inbox, heard := w.f.acks.expect(b.ID)
	defer w.f.acks.forget(b.ID)
	b.Reply = inbox
	msg, err := b.Encode()
	if err != nil {
		return fail(err)
	}
	if int64(len(msg)) > w.f.bus.Conn.MaxPayload() {
		return fail(fmt.Errorf("%w: a batch of %d bytes", ErrRefused, len(msg)))
	}
	var sequence uint64
	if after, conditional := w.o.If[s]; conditional {
		if last, more := w.report.at(&w.mu, s); more { // its own batch before
			after = last
		}
		sequence, err = w.f.publish(w.ctx, w.m, s, b.ID, msg, jetstream.WithExpectLastSequence(after))
	} else {
		sequence, err = w.f.queues.of(w.m, s).publish(w.ctx, b, msg)
	}
	if err != nil {
		if gone := w.f.removed(); gone != nil {
			err = gone // with its log
		}
		return fail(err)
	}
	return w.await(s, b, sequence, heard)
}

func (r *WriteReport) at(mu *sync.Mutex, s int) (uint64, bool) {
	mu.Lock()
	defer mu.Unlock()
	n, ok := r.Applied[s]
	return n, ok
}

// settle is how long replicas that have just come may take to be seen.
const settle = 3 * time.Second

func (f *Client) awaitQuorum(ctx context.Context, m *topology.Map, s int) error {
	ctx, stop := context.WithTimeout(ctx, settle)
	defer stop()
	var err error
	_ = f.watch.Wait(ctx, func() bool {
		if err = f.removed(); err == nil {
			err = f.quorum(m, s)
		}
		return err == nil || errors.Is(err, errLost) || errors.Is(err, topology.ErrRemoved)
	})
	return err
}

// errLost: a shard takes no changes whatever comes.
var errLost = fmt.Errorf("%w: its log has lost entries", ErrQuorum)

// quorum refuses a change before it is sent, if it cannot be kept: too few replicas
// follow the log, or one says that the log has lost entries.
func (f *Client) quorum(m *topology.Map, s int) error {
	n := 0
	for _, r := range f.watch.Replicas(m.ID(), m.Current.Number, s) {
		if r.Lost {
			return fmt.Errorf("%w: node %s: %s", errLost, r.Node, r.Log)
		}
		if r.Ready && r.Log == "" {
			n++
		}
	}
	if n < m.Acks {
		return fmt.Errorf("%w: there are %d, %d are needed", ErrQuorum, n, m.Acks)
	}
	return nil
}

// Applied are the last entries of the logs, as replicas said last: [WriteOptions.If] of
// a change that is to follow what there is now.
func (f *Client) Applied() (map[int]uint64, error) {
	m, err := f.collection()
	if err != nil {
		return nil, err
	}
	all := map[int]uint64{}
	for s := range m.Shards() {
		f.mu.Lock()
		all[s] = f.seen[s]
		f.mu.Unlock()
		for _, r := range f.watch.Replicas(m.ID(), m.Current.Number, s) {
			all[s] = max(all[s], r.Applied)
		}
	}
	return all, nil
}
