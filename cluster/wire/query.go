package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/plaid-ir/plaid/search"
)

// Query asks a node for the best documents of some of its shards.
type Query struct {
	ID ID
	// Collection and Generation say what is meant: a node that does not have this
	// generation answers [WrongGeneration].
	Collection string
	Generation uint64
	// Left is the time until the answer is of no use; clocks of machines differ, so it is
	// no moment. Beyond 71 minutes it is cut.
	Left time.Duration
	// Shards that are asked, in order, each with the sequence of its log that must have
	// been applied.
	Shards []ShardAt
	// Vectors is [len/Dim, Dim], row-major; Weights has a factor a token, or is nil.
	Dim     int
	Vectors []float32
	Weights []float32
	// Keep is how many hits come back at most, K how many are looked for.
	K, Keep               int
	Mode                  search.Mode
	Probes, Approx, Exact int
	Derive, Payload       bool
	AllowMissing          bool
	// Model, Filter and Options.Candidates in their JSON forms, nil where there are none.
	Model, Filter, Candidates []byte
	// Wants is what is asked for beside, nil: nothing.
	Wants *Wants
}

// Wants are options of a search that few ask for, in the form of JSON.
type Wants struct {
	Group    search.Grouping `json:"group,omitempty"`
	Passages int             `json:"passages,omitempty"`
	Matches  bool            `json:"matches,omitempty"`
}

// ShardAt is a shard and a sequence of its log.
type ShardAt struct {
	Shard   int
	Applied uint64
}

const queryMagic = "PLQ1"

// Flags of a query.
const (
	flagDerive = 1 << iota
	flagPayload
	flagAllowMissing
	flagWeights
	flagWants
	allQueryFlags = 1<<iota - 1
)

// Limits of what fits the fields of a message.
const (
	MaxDim    = 1<<16 - 1
	MaxTokens = 1<<16 - 1
	MaxShards = 1<<16 - 1
)

// Encode returns the message. What does not fit its fields is [search.ErrQuery] or
// [search.ErrOption].
func (q *Query) Encode() ([]byte, error) {
	tokens := 0
	if q.Dim > 0 {
		tokens = len(q.Vectors) / q.Dim
	}
	switch {
	case q.Dim <= 0 || q.Dim > MaxDim || tokens == 0 || tokens > MaxTokens || tokens*q.Dim != len(q.Vectors):
		return nil, fmt.Errorf("%w: %d values of dimension %d", search.ErrQuery, len(q.Vectors), q.Dim)
	case q.Weights != nil && len(q.Weights) != tokens:
		return nil, fmt.Errorf("%w: %d weights for %d tokens", search.ErrQuery, len(q.Weights), tokens)
	case len(q.Collection) > math.MaxUint8 || len(q.Shards) > MaxShards:
		return nil, fmt.Errorf("%w: collection %q, %d shards", search.ErrOption, q.Collection, len(q.Shards))
	}
	for _, n := range []int{q.K, q.Keep, q.Probes, q.Approx, q.Exact} {
		if n < 0 || int64(n) > math.MaxUint32 {
			return nil, fmt.Errorf("%w: %d", search.ErrOption, n)
		}
	}
	flags := uint16(0)
	for _, f := range []struct {
		is  bool
		bit uint16
	}{{q.Derive, flagDerive}, {q.Payload, flagPayload}, {q.AllowMissing, flagAllowMissing}, {q.Weights != nil, flagWeights}, {q.Wants != nil, flagWants}} {
		if f.is {
			flags |= f.bit
		}
	}
	left := min(max(q.Left.Microseconds(), 0), math.MaxUint32)
	w := begin(queryMagic, 96+len(q.Collection)+10*len(q.Shards)+4*len(q.Vectors)+4*len(q.Weights)+len(q.Model)+len(q.Filter)+len(q.Candidates))
	w.u8(version)
	w.u8(uint8(q.Mode))
	w.u16(flags)
	w.bytes(q.ID[:])
	w.u64(q.Generation)
	w.u32(uint32(left))
	for _, n := range []int{q.K, q.Keep, q.Probes, q.Approx, q.Exact, len(q.Model), len(q.Filter), len(q.Candidates)} {
		w.u32(uint32(n))
	}
	w.u16(uint16(tokens))
	w.u16(uint16(q.Dim))
	w.u16(uint16(len(q.Shards)))
	w.u16(uint16(len(q.Collection)))
	for _, s := range q.Shards {
		w.u16(uint16(s.Shard))
		w.u64(s.Applied)
	}
	w.floats(q.Vectors)
	w.floats(q.Weights)
	w.text(q.Collection)
	w.bytes(q.Model)
	w.bytes(q.Filter)
	w.bytes(q.Candidates)
	if q.Wants != nil {
		text, err := json.Marshal(q.Wants)
		if err != nil {
			return nil, err
		}
		w.u32(uint32(len(text)))
		w.bytes(text)
	}
	return w.sealed(), nil
}

// DecodeQuery reads what Encode writes. The query shares the memory of the message.
func DecodeQuery(msg []byte) (*Query, error) {
	r := open("query", queryMagic, msg)
	q := &Query{}
	q.Mode = search.Mode(r.u8())
	flags := r.u16()
	q.ID = r.id()
	q.Generation = r.u64()
	q.Left = time.Duration(r.u32()) * time.Microsecond
	var n [8]uint32
	for i := range n {
		n[i] = r.u32()
	}
	q.K, q.Keep, q.Probes, q.Approx, q.Exact = int(n[0]), int(n[1]), int(n[2]), int(n[3]), int(n[4])
	tokens, dim := r.u16(), r.u16()
	shards, name := r.u16(), r.u16()
	q.Dim = int(dim)
	switch {
	case r.err != nil:
	case flags&^allQueryFlags != 0:
		r.fail("unknown flags %x", flags&^allQueryFlags)
	case q.Mode > search.Candidates:
		r.fail("unknown mode %d", q.Mode)
	case tokens == 0 || dim == 0:
		r.fail("no vectors")
	case name > math.MaxUint8:
		r.fail("a name of %d bytes", name)
	}
	q.Derive, q.Payload, q.AllowMissing = flags&flagDerive != 0, flags&flagPayload != 0, flags&flagAllowMissing != 0
	q.Shards = make([]ShardAt, r.count(uint64(shards), 10))
	for i := range q.Shards {
		q.Shards[i] = ShardAt{int(r.u16()), r.u64()}
	}
	q.Vectors = r.floats(uint64(tokens) * uint64(dim))
	if flags&flagWeights != 0 {
		q.Weights = r.floats(uint64(tokens))
	}
	q.Collection = string(r.take(uint64(name)))
	for i, part := range []*[]byte{&q.Model, &q.Filter, &q.Candidates} {
		if n[5+i] > 0 {
			*part = r.take(uint64(n[5+i]))
		}
	}
	if flags&flagWants != 0 {
		text := r.take(uint64(r.u32()))
		q.Wants = &Wants{}
		if r.err == nil {
			if err := json.Unmarshal(text, q.Wants); err != nil {
				r.fail("%v", err)
			}
		}
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return q, nil
}
