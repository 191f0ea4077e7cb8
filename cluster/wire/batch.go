package wire

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/vectors"
)

// Op is what a batch does.
type Op uint8

// The operations. All documents of a batch are of one shard, and a batch is carried
// out as a whole, in one transaction of each replica, or not at all. It has all passages
// of a document ([vectors.Passage]), in a row.
const (
	// Add refuses the batch if a document is there already.
	Add Op = iota + 1
	// Put adds documents, in the place of those with the same ids.
	Put
	// Delete removes documents with their passages, and passages by their own ids; those
	// that are not there are no fault.
	Delete
	// DeleteWhere removes the documents that a condition is true of when its turn comes.
	DeleteWhere
	// Set sets fields in the payloads of such documents.
	Set
)

// wide tells an operation on the whole shard, which names no documents.
func (o Op) wide() bool { return o == DeleteWhere || o == Set }

func (o Op) String() string {
	switch o {
	case Add:
		return "add"
	case Put:
		return "put"
	case Delete:
		return "delete"
	case DeleteWhere:
		return "delete where"
	case Set:
		return "set"
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Batch is an entry of the log of a shard.
type Batch struct {
	ID    ID
	Op    Op
	Shard int
	Dim   int // of the vectors; 0 in a batch without any
	// Model is what made the vectors, in its JSON form; nil: nobody said.
	Model []byte
	// Choice, of DeleteWhere and Set, is a [Choice] in its JSON form.
	Choice []byte
	// Documents; of a deletion only the ids count.
	Documents []vectors.Document
	// Reply is the subject that hears what became of the batch; "": nobody asks.
	Reply string
}

// Choice says which documents of a shard change, and how. A field that no document of the
// shard has is NULL.
type Choice struct {
	// Where is a filter with a condition, as in a query.
	Where json.RawMessage `json:"where"`
	// Set has fields and their new values, of which null is one; Remove names those that go.
	Set    map[string]json.RawMessage `json:"set,omitempty"`
	Remove []string                   `json:"remove,omitempty"`
}

const batchMagic = "PLB1"

// Encode returns the message.
func (b *Batch) Encode() ([]byte, error) {
	bad := func(format string, args ...any) ([]byte, error) {
		return nil, fmt.Errorf("batch: %w: %s", ErrMessage, fmt.Sprintf(format, args...))
	}
	if b.Op < Add || b.Op > Set || b.Shard < 0 || b.Shard > MaxShards || b.Dim < 0 || b.Dim > MaxDim || len(b.Reply) > math.MaxUint16 {
		return bad("%v of dimension %d for shard %d", b.Op, b.Dim, b.Shard)
	}
	extra := b.Model
	if b.Op.wide() {
		extra = b.Choice
	}
	if b.Op.wide() != (b.Choice != nil) || b.Op.wide() && (b.Model != nil || b.Documents != nil) {
		return bad("%v with %d documents", b.Op, len(b.Documents))
	}
	size := 0
	for _, d := range b.Documents {
		size += 10 + len(d.ID) + len(d.Payload) + 4*len(d.Tokens)
		switch {
		case len(d.ID) > math.MaxUint16 || int64(len(d.Payload)) >= noPayload:
			return bad("document %q does not fit", d.ID)
		case b.Op == Delete && (d.Tokens != nil || d.Payload != nil):
			return bad("document %q is to be deleted and has content", d.ID)
		case len(d.Tokens) > 0 && (b.Dim == 0 || len(d.Tokens)%b.Dim != 0):
			return bad("document %q has %d values of dimension %d", d.ID, len(d.Tokens), b.Dim)
		}
	}
	w := begin(batchMagic, 64+len(extra)+len(b.Reply)+size)
	w.u8(version)
	w.u8(uint8(b.Op))
	w.u16(uint16(b.Shard))
	w.bytes(b.ID[:])
	w.u16(uint16(b.Dim))
	w.u16(uint16(len(b.Reply)))
	w.u32(uint32(len(extra)))
	w.u32(uint32(len(b.Documents)))
	w.text(b.Reply)
	w.bytes(extra)
	for _, d := range b.Documents {
		w.u16(uint16(len(d.ID)))
		w.text(d.ID)
		if b.Op == Delete {
			continue
		}
		tokens := 0
		if b.Dim > 0 {
			tokens = len(d.Tokens) / b.Dim
		}
		w.u32(payloadLength(d.Payload))
		w.u32(uint32(tokens))
		w.bytes(d.Payload)
		w.floats(d.Tokens)
	}
	return w.sealed(), nil
}

// DecodeBatch reads what Encode writes.
func DecodeBatch(msg []byte) (*Batch, error) {
	r := open("batch", batchMagic, msg)
	b := &Batch{}
	b.Op = Op(r.u8())
	b.Shard = int(r.u16())
	b.ID = r.id()
	b.Dim = int(r.u16())
	reply, extra, docs := r.u16(), r.u32(), r.u32()
	switch {
	case r.err != nil:
	case b.Op < Add || b.Op > Set:
		r.fail("unknown %v", b.Op)
	case b.Op.wide() && (docs > 0 || extra == 0):
		r.fail("%v with %d documents, and a choice of %d bytes", b.Op, docs, extra)
	}
	b.Reply = string(r.take(uint64(reply)))
	switch {
	case b.Op.wide():
		b.Choice = r.take(uint64(extra))
	case extra > 0:
		b.Model = r.take(uint64(extra))
	}
	least := uint64(10)
	if b.Op == Delete {
		least = 2
	}
	if !b.Op.wide() {
		b.Documents = make([]vectors.Document, r.count(uint64(docs), least))
	}
	for i := range b.Documents {
		d := &b.Documents[i]
		d.ID = string(r.take(uint64(r.u16())))
		if b.Op == Delete {
			continue
		}
		payload, tokens := r.u32(), r.u32()
		if payload != noPayload {
			d.Payload = append([]byte{}, r.take(uint64(payload))...)
		}
		if tokens > 0 && b.Dim == 0 {
			r.fail("document %q has tokens of dimension 0", d.ID)
		}
		d.Tokens = r.floats(uint64(tokens) * uint64(b.Dim))
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return b, nil
}
