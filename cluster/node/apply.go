package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Ack is what a replica says of a batch of its log, to the subject that the batch names, when
// it is in its file and durable.
type Ack struct {
	Batch    string `json:"batch"`
	Node     string `json:"node"`
	Shard    int    `json:"shard"`
	Sequence uint64 `json:"sequence"`
	// Generation is that of the replica: the change counts when those of one that is searched
	// have it.
	Generation uint64 `json:"generation"`
	// Refused says why the batch was not carried out, which all replicas find alike; "": it was.
	Refused string `json:"refused,omitempty"`
	Kind    string `json:"kind,omitempty"` // of a refusal: "duplicate" or "bad"
	// First is the ordinal of the first of the rows of the batch that were added; the others follow.
	First uint32 `json:"first,omitempty"`
	// Added, Replaced, Deleted and Updated count documents, Passages those that were deleted or
	// updated ([index.Affected]); Missing are ids that were to be deleted.
	Added    int      `json:"added,omitempty"`
	Updated  int      `json:"updated,omitempty"`
	Replaced int      `json:"replaced,omitempty"`
	Deleted  int      `json:"deleted,omitempty"`
	Passages int      `json:"passages,omitempty"`
	Missing  []string `json:"missing,omitempty"`
}

// part is a batch of an entry, and what becomes of it.
type part struct {
	*wire.Batch
	ack Ack
}

// refuse makes the answer of an error that every replica gets; another one is returned.
func (p *part) refuse(err error) error {
	kind := refusal(err)
	if kind == "" {
		return err
	}
	p.ack.Refused, p.ack.Kind = err.Error(), kind
	return nil
}

// clear forgets what was to become of the batch.
func (p *part) clear() {
	p.ack = Ack{Batch: p.ack.Batch, Node: p.ack.Node, Shard: p.ack.Shard, Sequence: p.ack.Sequence, Generation: p.ack.Generation}
}

// entry is one of the log.
type entry struct {
	sequence uint64
	mark     [16]byte
	bytes    int
	parts    []*part
}

// read takes an entry apart. What cannot be read has no parts: nobody knows who asks.
func (r *replica) read(sequence uint64, data []byte) *entry {
	e := &entry{sequence: sequence, mark: mark(data), bytes: len(data)}
	batches, err := wire.DecodeEntry(data)
	if err != nil {
		r.n.log.Warn("an entry of a log is passed over", "replica", r.key, "entry", sequence, "error", err)
		return e
	}
	for _, b := range batches {
		e.parts = append(e.parts, &part{b, Ack{Batch: b.ID.String(), Node: r.n.c.Name, Shard: r.key.shard, Sequence: sequence, Generation: r.key.generation}})
	}
	return e
}

// A run is entries that follow each other and are carried out in one transaction, as long as
// the order of their batches makes no difference.
type run struct {
	entries []*entry
	bytes   int
	ids     map[string]bool // of whole documents
}

const (
	runEntries = 256
	runBytes   = 8 << 20
)

// takes adds an entry to the run, if it goes with the others. Any entry goes alone.
func (u *run) takes(e *entry) bool {
	if len(u.entries) > 0 {
		first := u.entries[0]
		if len(u.entries) == runEntries || u.bytes+e.bytes > runBytes || first.whole() || e.whole() {
			return false
		}
		for _, p := range e.parts {
			if slices.ContainsFunc(p.Documents, func(d vectors.Document) bool { return u.ids[topology.Whole(d.ID)] }) {
				return false
			}
		}
	}
	if u.ids == nil {
		u.ids = map[string]bool{}
	}
	for _, p := range e.parts {
		for _, d := range p.Documents {
			u.ids[topology.Whole(d.ID)] = true
		}
	}
	u.entries, u.bytes = append(u.entries, e), u.bytes+e.bytes
	return true
}

// whole tells whether an entry changes the whole shard.
func (e *entry) whole() bool {
	return slices.ContainsFunc(e.parts, func(p *part) bool { return p.Choice != nil })
}

// apply carries out the entries of a run, in one transaction with the number of the last.
// Where one cannot be carried out, those before it count.
func (r *replica) apply(entries []*entry) error {
	ix := r.use()
	if ix == nil {
		return errNotOpen
	}
	defer r.release()
	_, span := r.n.tracer.Start(r.ctx, "apply", r.n.attributes(r.key.collection, r.key.generation, r.key.shard))
	done, failed := r.commit(ix, entries)
	span.SetAttributes(attribute.Int64("plaid.first_entry", int64(entries[0].sequence)), attribute.Int("plaid.entries", len(entries)))
	ended(span, failed)
	if entries = entries[:done]; done == 0 {
		return failed
	}
	r.mu.Lock()
	for _, e := range entries {
		r.remember(e.sequence, e.mark)
	}
	r.mu.Unlock()
	if err := r.look(); err != nil {
		return err
	}
	r.mu.Lock()
	retired := r.retired // as it was when all of them were applied
	r.mu.Unlock()
	if !retired {
		for _, e := range entries {
			r.acknowledge(e)
		}
	}
	return errors.Join(failed, r.reached(ix))
}

// commit is apply without telling anybody, and returns how many entries are in the file. Where there is something about the entries that
// concerns none of their batches, each is carried out by itself, so that what becomes of one
// does not depend on those that came at the same time.
func (r *replica) commit(ix *index.Index, entries []*entry) (done int, err error) {
	last := entries[len(entries)-1]
	change := ix.Entry(last.sequence).Marked(last.mark)
	var parts []*part
	for _, e := range entries {
		parts = append(parts, e.parts...)
	}
	err = r.n.guard("a change", func() error { return r.carryOut(ix, change, parts) })
	kind := refusal(err)
	switch {
	case len(entries) > 1 && (kind != "" || errors.Is(err, errPanic)):
		for i := range entries {
			for _, p := range entries[i].parts {
				p.clear()
			}
			if _, err := r.commit(ix, entries[i:i+1]); err != nil {
				return i, err
			}
		}
		return len(entries), nil
	case kind != "":
		for _, p := range parts {
			p.clear()
			_ = p.refuse(err) // which it is
		}
		err = change.Skip(r.ctx)
	case errors.Is(err, errPanic): // at every attempt: the replica answers with what it has
		err = fmt.Errorf("%w: %w", errLog, err)
	}
	if err != nil {
		return 0, fmt.Errorf("%s, entry %d of the log: %w", r.key, last.sequence, err)
	}
	return len(entries), nil
}

// acknowledge tells those who ask what became of the batches of an entry: in one message,
// where there are several.
func (r *replica) acknowledge(e *entry) {
	answers := map[string][]Ack{}
	for _, p := range e.parts {
		if p.Reply != "" {
			answers[p.Reply] = append(answers[p.Reply], p.ack)
		}
	}
	for reply, acks := range answers {
		var text []byte
		var err error
		if len(e.parts) == 1 {
			text, err = json.Marshal(acks[0])
		} else {
			text, err = json.Marshal(acks)
		}
		if err == nil {
			err = r.n.bus.Conn.Publish(reply, text)
		}
		if err != nil {
			r.n.log.Warn("a change is not acknowledged", "replica", r.key, "entry", e.sequence, "error", err)
		}
	}
}

// carryOut does the batches of a run in one transaction. A batch that is refused says so
// and holds up no other. An error is that of all.
func (r *replica) carryOut(ix *index.Index, change index.Entry, parts []*part) error {
	for _, p := range parts {
		if p.Shard != r.key.shard {
			return fmt.Errorf("%w: a batch for shard %d in the log of shard %d", wire.ErrMessage, p.Shard, r.key.shard)
		}
	}
	if len(parts) == 1 && parts[0].Choice != nil {
		return r.carryOutChoice(change, parts[0].Batch, &parts[0].ack)
	}
	if err := disjoint(parts); err != nil {
		return err
	}
	snap, err := ix.Snapshot() // which stays the newest: the log alone changes the file of a replica
	if err != nil {
		return err
	}
	defer snap.Close()
	c := changes{snap: snap, admission: index.NewAdmission(snap)}
	for _, p := range parts {
		if err := p.refuse(c.take(r.ctx, p)); err != nil {
			return err
		}
	}
	switch {
	case len(c.docs) > 0:
		err = c.add(r.ctx, change, r.n.c.Threads)
	case len(c.remove) > 0:
		_, _, err = change.Delete(r.ctx, c.remove)
	default:
		err = change.Skip(r.ctx)
	}
	return err
}

// disjoint is an error if two batches name one document, or one is of the whole shard: those
// have an entry of their own, so that the order in an entry makes no difference.
func disjoint(parts []*part) error {
	seen := map[string]int{} // whole documents, as in a run
	for i, p := range parts {
		if p.Choice != nil {
			return fmt.Errorf("%w: %v in a group", wire.ErrMessage, p.Op)
		}
		for _, d := range p.Documents {
			id := topology.Whole(d.ID)
			if first, there := seen[id]; there && first != i {
				return fmt.Errorf("%w: two batches of a group with document %q", wire.ErrMessage, id)
			}
			seen[id] = i
		}
	}
	return nil
}

// changes are those of batches that are not refused.
type changes struct {
	snap      *index.Snapshot
	admission *index.Admission
	docs      []vectors.Document
	remove    []string
	adding    []*part // whose documents docs are, in this order
}

// take looks whether a batch can be carried out on what the snapshot shows, and says what will
// become of it.
func (c *changes) take(ctx context.Context, p *part) error {
	if p.Op == wire.Delete {
		return c.takeDeletion(ctx, p)
	}
	var model *storage.Model
	if p.Model != nil {
		model = &storage.Model{}
		if err := json.Unmarshal(p.Model, model); err != nil {
			return fmt.Errorf("%w: model: %w", wire.ErrMessage, err)
		}
	}
	if err := c.snap.Header().Model.Check(model); err != nil {
		return fmt.Errorf("%s: %w", c.snap.Path(), err)
	}
	dim := c.snap.Dim()
	if p.Dim != 0 && p.Dim != dim {
		return fmt.Errorf("%w: documents have %d, %s has %d", index.ErrDimension, p.Dim, c.snap.Path(), dim)
	}
	src, err := vectors.FromDocuments(dim, p.Documents)
	if err != nil {
		return err
	}
	var rows []index.Arrival
	added, replaced, before := 0, 0, ""
	for doc, err := range src.Docs(ctx, 0, src.Len()) { // which checks their values
		var passage *vectors.Passage
		if err == nil {
			passage, err = vectors.PassageOf(doc.ID, doc.Payload)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", len(rows), err)
		}
		row, of := index.Arrival{ID: doc.ID}, doc.ID
		if passage != nil {
			row.Parent, of = passage.Of, passage.Of
		}
		if rows = append(rows, row); of == before {
			continue
		}
		before = of
		added++
		switch parts, err := c.snap.Parts(of); {
		case err != nil:
			return err
		case len(parts) > 0:
			replaced++
		}
	}
	switch overlap, err := c.admission.Admit(ctx, rows, p.Op == wire.Put); {
	case err != nil:
		return err
	case overlap:
		return fmt.Errorf("%w: two batches of a group with a document", wire.ErrMessage)
	}
	p.ack.Added, p.ack.Replaced = added, replaced
	if len(p.Documents) > 0 {
		c.docs = append(c.docs, p.Documents...)
		c.adding = append(c.adding, p)
	}
	return nil
}

func (c *changes) takeDeletion(ctx context.Context, p *part) error {
	ids := make([]string, len(p.Documents))
	for i, d := range p.Documents {
		ids[i] = d.ID
	}
	named, missing, err := c.snap.Named(ctx, ids)
	if err != nil {
		return err
	}
	gone, err := c.snap.CountDeleted(ctx, named, named)
	if err != nil {
		return err
	}
	c.remove = append(c.remove, ids...)
	p.ack.Deleted, p.ack.Passages, p.ack.Missing = gone.Documents, gone.Passages, missing
	return nil
}

// add adds the documents, and tells their batches where.
func (c *changes) add(ctx context.Context, change index.Entry, threads int) error {
	src, err := vectors.FromDocuments(c.snap.Dim(), c.docs)
	if err != nil {
		return err
	}
	report, err := change.Add(ctx, src, &index.AddOptions{Replace: true, Delete: c.remove, Threads: threads})
	if err != nil {
		return err
	}
	first := report.First
	for _, p := range c.adding {
		p.ack.First = first
		first += uint32(len(p.Documents))
	}
	return nil
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
	var affected index.Affected
	if b.Op == wire.DeleteWhere {
		affected, err = entry.DeleteWhere(r.ctx, where.Lenient())
		ack.Deleted = affected.Documents
	} else {
		set := condition.Fields{}
		maps.Copy(set, choice.Set)
		for _, key := range choice.Remove {
			set[key] = nil
		}
		affected, err = entry.UpdatePayload(r.ctx, where.Lenient(), set)
		ack.Updated = affected.Documents
	}
	ack.Passages = affected.Passages
	return err
}

// refusal is the kind of an error that every replica gets of an entry, whatever the
// machine; "": it is another one, or none.
func refusal(err error) string {
	if errors.Is(err, index.ErrDuplicateID) {
		return "duplicate"
	}
	for _, bad := range []error{
		index.ErrDimension, index.ErrPassages, index.ErrTooMany, index.ErrOption, storage.ErrModel, vectors.ErrID, vectors.ErrShape, vectors.ErrValue, vectors.ErrFormat,
		wire.ErrMessage, wire.ErrVersion, condition.ErrNoObject,
	} {
		if errors.Is(err, bad) {
			return "bad"
		}
	}
	return ""
}
