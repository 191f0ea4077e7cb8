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
	// Placed, where set, is told of each document or passage that was added, by its id, the shard
	// and the ordinal in it. It is called by one goroutine at a time.
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
	// Passages are those that were deleted or changed, of these documents and of others.
	Passages int `json:"passages"`
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
// each is atomic. A document is added with all of its passages, which come in a row.
//
// Errors: [ErrQuorum], [ErrRefused] (with [index.ErrDuplicateID] for an id that is there
// already, or twice in src), [ErrConflict], [ErrUnacknowledged], [ErrEmpty], [topology.ErrNoCollection],
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
	op := wire.Add
	if o.Replace {
		op = wire.Put
	}
	if d := src.Dim(); d != 0 && d != w.m.Current.Dim {
		return nil, fmt.Errorf("%w: documents have %d, the collection has %d", index.ErrDimension, d, w.m.Current.Dim)
	}
	if o.Model != nil {
		if w.model, err = json.Marshal(o.Model); err != nil {
			return nil, err
		}
	}
	var whole document
	add := func() error {
		if len(whole.rows) == 0 {
			return nil
		}
		defer func() { whole = document{} }()
		switch overlap, err := w.admission.Admit(w.ctx, whole.rows, false); {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrRefused, err)
		case overlap:
			return fmt.Errorf("document %q: %w: %w: a part of it came before, and others in between",
				whole.rows[0].ID, ErrRefused, index.ErrDuplicateID)
		}
		return w.add(op, src.Dim(), whole.parts)
	}
	for doc, err := range src.Docs(w.ctx, 0, src.Len()) {
		of := ""
		if err == nil {
			of, err = parentOf(&doc)
		}
		if err == nil && (of == "" || of != whole.of) {
			err = add()
		}
		if err != nil {
			return w.end(err)
		}
		whole.of = of
		whole.rows = append(whole.rows, index.Arrival{ID: doc.ID, Parent: of})
		doc.Tokens = slices.Clone(doc.Tokens)
		whole.parts = append(whole.parts, doc)
	}
	if err := add(); err != nil {
		return w.end(err)
	}
	return w.end(w.flush())
}

// document is a document that is to be added, with all of its passages.
type document struct {
	of    string // its id, if it has passages
	rows  []index.Arrival
	parts []vectors.Document
}

// parentOf is the id of the document that one is a passage of, "" for none.
func parentOf(d *vectors.Document) (string, error) {
	p, err := vectors.PassageOf(d.ID, d.Payload)
	switch {
	case err != nil:
		return "", fmt.Errorf("document %q: %w: %w", d.ID, ErrRefused, err)
	case p == nil:
		return "", nil
	}
	return p.Of, nil
}

// Delete removes documents with their passages, and passages by their own ids. Errors are those
// of Add.
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
		if err := w.add(wire.Delete, 0, []vectors.Document{{ID: id}}); err != nil {
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
	// admission refuses what a source has twice, of which a later batch would replace the first.
	admission *index.Admission

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
	w := &writing{f: f, ctx: within, caller: ctx, m: m, o: o, batches: map[int]*wire.Batch{}, bytes: map[int]int{}, admission: index.NewAdmission()}
	w.report.Applied = map[int]uint64{}
	return w, done, nil
}

func (w *writing) end(err error) (*WriteReport, error) {
	if err != nil && w.caller.Err() != nil && !errors.Is(err, ErrUnacknowledged) {
		err = w.caller.Err()
	}
	return &w.report, err
}

// add puts a document with its passages into the batch of its shard, which is sent before if
// there is no room.
func (w *writing) add(op wire.Op, dim int, parts []vectors.Document) error {
	size := 0
	for i := range parts {
		d := &parts[i]
		if err := vectors.CheckID(d.ID); err != nil {
			return err
		}
		size += len(d.ID) + len(d.Payload) + 4*len(d.Tokens) + 16
	}
	if most := w.f.bus.Conn.MaxPayload() - 1024 - int64(len(w.model)); int64(size) > most {
		return fmt.Errorf("document %q: %w: it has %d bytes with all of its passages, a message %d at most",
			parts[0].ID, ErrRefused, size, most)
	}
	s := w.m.ShardOf(parts[0].ID)
	if w.batches[s] != nil && w.bytes[s]+size > w.f.c.BatchBytes {
		if err := w.send(s); err != nil {
			return err
		}
	}
	b := w.batches[s]
	if b == nil {
		b = &wire.Batch{ID: wire.NewID(), Op: op, Shard: s, Dim: dim, Model: w.model}
		w.batches[s] = b
	}
	b.Documents = append(b.Documents, parts...)
	w.bytes[s] += size
	return nil
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
