package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/vectors"
)

// change is the effect of one transaction on an index. It depends only on the index before it: applied to equal
// indexes, it gives equal indexes (I3 of docs/lab/cluster.md: replicas are functions of objects).
type change struct {
	changeHead
	docs   []vectors.Document // documents to add
	chosen *roaring.Bitmap    // live ordinals to delete, or whose fields are set
	fields condition.Fields   // fields to set; a null removes one
	// check may refuse new payloads. It is nil for entries of a log, which were checked before they were appended.
	check func(ordinal uint32, payload []byte) error
}

// changeHead is the JSON part of an entry.
type changeHead struct {
	Kind    changeKind `json:"kind"`
	Batches []outcome  `json:"batches,omitempty"`
	// First to MaxDocuments are set in an addition: the ordinal of the first document, the dimension of the vectors,
	// whether documents may be replaced, and the limit of documents of the index.
	First        uint32  `json:"first,omitempty"`
	Dim          int     `json:"dim,omitempty"`
	Replace      bool    `json:"replace,omitempty"`
	MaxDocuments *uint64 `json:"max_documents,omitempty"`
	// Base is the [OpenIndex].Base of the index for which the change was decided. IDs name the chosen documents for
	// indexes with another Base ([idsFromOrdinals]).
	Base uint64   `json:"base,omitempty"`
	IDs  []string `json:"ids,omitempty"`
}

type changeKind string

const (
	addDocuments    changeKind = "add"
	deleteDocuments changeKind = "delete"
	setFields       changeKind = "set"
	// sealLog ends the log: the collection was removed, and no change follows.
	sealLog changeKind = "seal"
)

// outcome is the answer to one request of a change. A request that is sent again gets the same answer.
type outcome struct {
	ID       string         `json:"id"`
	Rows     int            `json:"rows,omitempty"` // number of documents and passages of an addition
	Stored   index.Affected `json:"stored,omitzero"`
	Replaced int            `json:"replaced,omitempty"`
	Empty    int            `json:"empty,omitempty"`
	Evicted  int            `json:"evicted,omitempty"`
	Affected index.Affected `json:"affected,omitzero"`
	// Refused is the name of a refusal in [notedRefusals], and Message its text. "" means that the request was done.
	Refused string `json:"refused,omitempty"`
	Message string `json:"says,omitempty"`
}

// newOutcome returns the outcome of a request that was done.
func newOutcome(r *request) outcome {
	a := &r.receipt
	return outcome{
		ID:       r.batch.ID,
		Rows:     len(r.docs),
		Stored:   a.Stored,
		Replaced: a.Replaced,
		Empty:    a.Empty,
		Evicted:  a.Evicted,
		Affected: r.affected,
	}
}

// answerRequest answers a request with the outcome of its batch. It reports whether the change has the batch.
func (c *change) answerRequest(r *request) bool {
	row := 0
	for i := range c.Batches {
		b := &c.Batches[i]
		if b.ID != r.batch.ID {
			row += b.Rows
			continue
		}
		r.affected, r.err = b.Affected, b.refusal()
		r.receipt = collection.Receipt{Stored: b.Stored, Replaced: b.Replaced, Empty: b.Empty, Evicted: b.Evicted}
		for n := range b.Rows {
			r.receipt.Numbers = append(r.receipt.Numbers, uint64(c.First)+uint64(row+n))
			r.receipt.IDs = append(r.receipt.IDs, c.docs[row+n].ID)
		}
		return true
	}
	return false
}

// The format of an entry. Numbers are 32 bits, little-endian:
//
//	version (one byte)
//	length of the head; the head
//	number of records; each record: length of the name, length of the value, number of the vectors' components;
//	name; value; components
//	length of the ordinals; the ordinals as a Roaring bitmap
//
// Records are the documents of an addition, or the fields that are set.
const (
	entryVersion = 1
	recordHead   = 12
)

// ErrEntry means that an entry of a log cannot be read.
var ErrEntry = errors.New("entry of the log is damaged, or of a newer program")

// encode returns the entry of the change.
func (c *change) encode() ([]byte, error) {
	head, err := json.Marshal(&c.changeHead)
	if err != nil {
		return nil, err
	}
	records := c.docs
	for _, name := range slices.Sorted(maps.Keys(c.fields)) {
		records = append(records, vectors.Document{ID: name, Payload: c.fields[name]})
	}
	size := 32 + len(head) // more than the version and three lengths; the bitmap is appended at the end
	for i := range records {
		r := &records[i]
		size += recordHead + len(r.ID) + len(r.Payload) + 4*len(r.Tokens)
	}
	le := binary.LittleEndian
	b := append(make([]byte, 0, size), entryVersion)
	b = append(le.AppendUint32(b, uint32(len(head))), head...)
	b = le.AppendUint32(b, uint32(len(records)))
	for i := range records {
		r := &records[i]
		for _, n := range []int{len(r.ID), len(r.Payload), len(r.Tokens)} {
			if int64(n) > math.MaxUint32 {
				return nil, fmt.Errorf("document %.100q: %w: %d values", r.ID, vectors.ErrShape, n)
			}
			b = le.AppendUint32(b, uint32(n))
		}
		b = append(append(b, r.ID...), r.Payload...)
		for _, x := range r.Tokens {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
	}
	var ordinals []byte
	if c.chosen != nil {
		if ordinals, err = c.chosen.ToBytes(); err != nil {
			return nil, err
		}
	}
	return append(le.AppendUint32(b, uint32(len(ordinals))), ordinals...), nil
}

// Seal returns the body of the entry that ends a log: an index that has applied it takes no changes.
func Seal() ([]byte, error) { return (&change{changeHead: changeHead{Kind: sealLog}}).encode() }

// Sealed reports whether the body of an entry is a [Seal].
func Sealed(body []byte) bool {
	if len(body) > 1024 { // a Seal is shorter: do not decode large entries
		return false
	}
	c, err := decodeChange(body)
	return err == nil && c.Kind == sealLog
}

// entryReader reads an entry. truncated means that bytes were missing.
type entryReader struct {
	remaining []byte
	truncated bool
}

// nextBytes returns the next n bytes, or nil if fewer remain.
func (r *entryReader) nextBytes(n int) []byte {
	if r.truncated = r.truncated || n > len(r.remaining); r.truncated {
		return nil
	}
	out := r.remaining[:n:n]
	r.remaining = r.remaining[n:]
	return out
}

// nextNumber returns the next 32-bit number, or 0 at the end.
func (r *entryReader) nextNumber() int {
	if b := r.nextBytes(4); b != nil {
		return int(binary.LittleEndian.Uint32(b))
	}
	return 0
}

// decodeChange is the inverse of encode. Payloads are slices of b.
func decodeChange(b []byte) (*change, error) {
	bad := func(format string, args ...any) (*change, error) {
		return nil, fmt.Errorf("%w: %s", ErrEntry, fmt.Sprintf(format, args...))
	}
	r := &entryReader{remaining: b}
	if v := r.nextBytes(1); v == nil || v[0] != entryVersion {
		return bad("it begins with %x, not with version %d", v, entryVersion)
	}
	c := &change{}
	head := r.nextBytes(r.nextNumber())
	if r.truncated {
		return bad("%d bytes are too few", len(b))
	}
	if err := json.Unmarshal(head, &c.changeHead); err != nil {
		return bad("its head: %v", err)
	}
	records := r.nextNumber()
	if records > len(r.remaining)/recordHead {
		return bad("%d records in %d bytes", records, len(r.remaining))
	}
	c.docs = make([]vectors.Document, records)
	for i := range c.docs {
		d := &c.docs[i]
		nameLen, valueLen, components := r.nextNumber(), r.nextNumber(), r.nextNumber()
		d.ID = string(r.nextBytes(nameLen))
		if valueLen > 0 {
			d.Payload = r.nextBytes(valueLen)
		}
		if raw := r.nextBytes(4 * components); len(raw) > 0 {
			d.Tokens = make([]float32, components)
			for j := range d.Tokens {
				d.Tokens[j] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:]))
			}
		}
		if r.truncated {
			return bad("it ends in record %d of %d", i, records)
		}
	}
	ordinals := r.nextBytes(r.nextNumber())
	if r.truncated || len(r.remaining) > 0 {
		return bad("its ordinals have %d bytes, and %d more bytes follow", len(ordinals), len(r.remaining))
	}
	if len(ordinals) > 0 {
		c.chosen = roaring.New()
		if err := c.chosen.UnmarshalBinary(ordinals); err != nil {
			return bad("its ordinals: %v", err)
		}
		if err := c.chosen.Validate(); err != nil {
			return bad("its ordinals: %v", err)
		}
	}
	return c, c.finishDecoding()
}

// finishDecoding checks a decoded change, and turns its records into fields if it sets fields.
func (c *change) finishDecoding() error {
	rows := 0
	for i := range c.Batches {
		b := &c.Batches[i]
		if rows += b.Rows; b.Rows < 0 || rows < 0 || rows > len(c.docs) {
			return fmt.Errorf("%w: its batches have more than its %d documents", ErrEntry, len(c.docs))
		}
	}
	ok := false
	switch c.Kind {
	case addDocuments:
		ok = len(c.docs) > 0 && c.chosen == nil && c.Dim >= 0 && c.Dim <= kernels.MaxDim
	case deleteDocuments:
		ok = len(c.docs) == 0 && c.chosen != nil
	case sealLog:
		ok = len(c.docs) == 0 && c.chosen == nil
	case setFields:
		ok = c.chosen != nil && rows == 0
		c.fields = condition.Fields{}
		for _, d := range c.docs {
			c.fields[d.ID] = d.Payload
		}
		c.docs = nil
	}
	if !ok {
		return fmt.Errorf("%w: it has the kind %q and %d documents", ErrEntry, c.Kind, len(c.docs))
	}
	return nil
}
