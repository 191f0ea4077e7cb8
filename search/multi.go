package search

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"log/slog"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
)

// MultiOptions of a [Multi]. The zero value, or nil, searches on all processors.
type MultiOptions struct {
	// Threads, Scheduler and Logger as in [EngineOptions].
	Threads   int
	Scheduler *Scheduler
	Logger    *slog.Logger
	// Devices, where set, are where it searches: each index is put on one of them, so
	// that all have about as many tokens, and every search asks all indexes at a time
	// and merges what they find. As with [EngineOptions] there is no fallback to the
	// processor, and the devices stay the caller's.
	Devices []kernels.Device
	// Attach says how an index is put on its device. Limits are for each index.
	Attach kernels.AttachOptions
	// Bound is as in [EngineOptions].
	Bound kernels.Bound
}

// Multi answers queries from several indexes with one codec as if they were one. It is
// a [Searcher].
//
// On the processor a query has its centroid scores computed once, and one budget for
// candidates and for exact scores, which goes where the best candidates are; so the
// cost is about that of one index with all documents, whatever their number. Stored
// search parameters are used where all indexes have the same.
//
// Hits say which index they are of. Among documents of equal score the one whose index
// comes first in the set comes first. An id may be in several indexes, if these were
// not filled through an [index.Set]; then each of them is a document of its own.
// A filter with a set of ordinals is an error ([ErrOption]).
type Multi struct {
	*core
	set    *index.Set
	pinned *index.SetSnapshot // in place of set
}

// NewMulti returns a searcher for a set of indexes. Each search sees the set as it is
// when the search begins.
func NewMulti(ctx context.Context, set *index.Set, o *MultiOptions) (*Multi, error) {
	return newMulti(ctx, &Multi{set: set}, o)
}

// NewMultiAt returns a searcher for one snapshot, which the caller closes after the
// searcher.
func NewMultiAt(ctx context.Context, snap *index.SetSnapshot, o *MultiOptions) (*Multi, error) {
	return newMulti(ctx, &Multi{pinned: snap}, o)
}

// At is a searcher for one snapshot of the set that m searches. It uses the memory and
// the devices of m, which is what makes it cheap enough to have one for each query: m is
// closed after it, and Close of either closes both.
func (m *Multi) At(snap *index.SetSnapshot) *Multi { return &Multi{core: m.core, pinned: snap} }

func newMulti(ctx context.Context, m *Multi, o *MultiOptions) (*Multi, error) {
	if o == nil {
		o = &MultiOptions{}
	}
	c, err := newCore(&EngineOptions{Threads: o.Threads, Scheduler: o.Scheduler, Logger: o.Logger, Bound: o.Bound})
	if err != nil {
		return nil, err
	}
	m.core = c
	if len(o.Devices) > 0 {
		all, done, err := m.collection()
		if err != nil {
			return nil, err
		}
		defer done()
		if c.stages, err = spreadOver(ctx, all, o); err != nil {
			return nil, err
		}
		c.tuned = false
	}
	return m, nil
}

// Close implements [Searcher]. It takes the indexes off their devices, if they are on
// some, and leaves the set open.
func (m *Multi) Close() error { return m.close() }

func (m *Multi) collection() (c *collection, done func(), err error) {
	if m.pinned != nil {
		return collectionOf(m.pinned.Parts()...), func() {}, nil
	}
	snap, err := m.set.Snapshot()
	if err != nil {
		return nil, nil, err
	}
	return collectionOf(snap.Parts()...), func() { _ = snap.Close() }, nil
}

// Search implements [Searcher]. Errors are those of [Engine.Search], and
// [index.ErrCodec] if a file that is followed was replaced by one with another codec.
func (m *Multi) Search(ctx context.Context, q Query, o Options) (*Result, error) {
	return m.searchOne(ctx, m.collection, q, o)
}

// SearchBatch implements [Searcher].
func (m *Multi) SearchBatch(ctx context.Context, qs []Query, o Options) ([]Result, error) {
	return m.batch(ctx, m.collection, qs, o)
}

// Explain is [Engine.Explain]; of an id that several indexes have, for the first.
func (m *Multi) Explain(ctx context.Context, q Query, id string, o Options) (*Explanation, error) {
	return m.explain(ctx, m.collection, q, id, o)
}

// Trace is the Stage of Explain without the rest.
func (m *Multi) Trace(ctx context.Context, q Query, id string, o Options) (Stage, error) {
	return m.trace(ctx, m.collection, q, id, o)
}

// PartDescription is one of several indexes that are searched as one.
type PartDescription struct {
	Name   string `json:"name"`   // the path of its file
	Docs   int64  `json:"docs"`   // live
	Tokens uint64 `json:"tokens"` // of these documents
	// Device and Memory as in [Description].
	Device string              `json:"device,omitempty"`
	Memory *kernels.MemoryPlan `json:"device_memory,omitempty"`
}

// Describe implements [Searcher]. Generation is the sum of those of the indexes.
func (m *Multi) Describe(ctx context.Context) (Description, error) {
	return m.describe(ctx, m.collection, true)
}

// describeParts adds what is particular to several indexes.
func (c *collection) describeParts(d *Description) {
	sum := fnv.New64a()
	d.Generation = 0
	for i := range c.parts {
		s := c.parts[i].snap
		d.Generation += s.Generation()
		_, _ = sum.Write(binary.LittleEndian.AppendUint64(nil, s.Lineage()))
		if d.Model == nil {
			d.Model = s.Header().Model
		}
		d.Parts = append(d.Parts, PartDescription{Name: s.Path(), Docs: int64(s.State().Live), Tokens: s.State().LiveTokens})
	}
	d.Lineage = sum.Sum64()
}
