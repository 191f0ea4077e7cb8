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
}

// Multi answers queries from several indexes with one codec as if they were one. It is
// a [Searcher].
//
// On the processor a query has its centroid scores computed once, and one budget for
// candidates and for exact scores, which goes where the best candidates are; so the
// cost is about that of one index with all documents, whatever their number. Stored
// search parameters are used where all indexes have the same.
//
// Hits say which index they are of. Among documents of equal score the one whose index comes first
// in the set comes first. An id may be in several indexes, if these were not filled through an
// [index.Shards]; then each of them is a document of its own, even if hits are grouped. A filter with
// a set of ordinals is an error ([ErrOption]). So is ([index.ErrCodec]) a file that is followed and
// was replaced by one with another codec.
type Multi struct{ searcher }

// NewMulti returns a searcher for a set of indexes. Each search sees the set as it is
// when the search begins.
func NewMulti(ctx context.Context, set *index.Shards, o *MultiOptions) (*Multi, error) {
	return newMulti(ctx, o, func() (*collection, func(), error) {
		snap, err := set.Snapshot()
		if err != nil {
			return nil, nil, err
		}
		return newCollection(snap.Snapshots()...), func() { _ = snap.Close() }, nil
	})
}

// NewMultiAt returns a searcher for one snapshot, which the caller closes after the
// searcher.
func NewMultiAt(ctx context.Context, snap *index.ShardsSnapshot, o *MultiOptions) (*Multi, error) {
	return newMulti(ctx, o, pinnedSource(snap.Snapshots()...))
}

// At is a searcher for one snapshot of the set that m searches. It uses the memory and
// the devices of m, which is what makes it cheap enough to have one for each query: m is
// closed after it, and Close of either closes both.
func (m *Multi) At(snap *index.ShardsSnapshot) *Multi {
	return &Multi{searcher{m.core, pinnedSource(snap.Snapshots()...)}}
}

func newMulti(ctx context.Context, o *MultiOptions, open source) (*Multi, error) {
	if o == nil {
		o = &MultiOptions{}
	}
	c, err := newCore(&EngineOptions{Threads: o.Threads, Scheduler: o.Scheduler, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	c.multi = true
	if len(o.Devices) > 0 {
		coll, done, err := open()
		if err != nil {
			return nil, err
		}
		defer done()
		if c.stages, err = attachShards(ctx, coll, c.host, o.Devices); err != nil {
			return nil, err
		}
		c.usesStoredDefaults = false
	}
	return &Multi{searcher{c, open}}, nil
}

// ShardDescription is one of several indexes that are searched as one.
type ShardDescription struct {
	Name     string `json:"name"`     // the path of its file
	Docs     int64  `json:"docs"`     // live
	Passages int64  `json:"passages"` // in which some of them are stored
	Tokens   uint64 `json:"tokens"`   // of these documents
	// Device and Memory as in [Description].
	Device string              `json:"device,omitempty"`
	Memory *kernels.MemoryPlan `json:"device_memory,omitempty"`
}

// describeShards adds what is particular to several indexes.
func (c *collection) describeShards(d *Description) {
	sum := fnv.New64a()
	d.Generation = 0
	for i := range c.shards {
		s := c.shards[i].snap
		d.Generation += s.Generation()
		_, _ = sum.Write(binary.LittleEndian.AppendUint64(nil, s.Lineage()))
		if d.Model == nil {
			d.Model = s.Header().Model
		}
		st := s.State()
		d.Shards = append(d.Shards, ShardDescription{
			Name: s.Path(), Docs: int64(st.Documents()), Passages: int64(st.Passages), Tokens: st.LiveTokens,
		})
	}
	d.Lineage = sum.Sum64()
}
