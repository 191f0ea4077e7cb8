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
	// Devices, where set, are the devices that search: each index is copied to one of them, so that
	// all have about the same number of tokens. A search runs on all indexes at the same time and
	// merges their results. As with [EngineOptions] searches do not fall back to the processor, and the
	// caller closes the devices.
	Devices []kernels.Device
}

// Multi answers queries from several indexes with one codec as if they were one. It is
// a [Searcher].
//
// On the processor the centroid scores of a query are computed once, and the budgets for candidates
// and exact scores go to the indexes with the best candidates. So a search costs about as much as
// in one index with all documents. Stored search parameters are used if all indexes have the same.
//
// Hits name their index. Documents of equal score are ordered by their indexes' order in the set. An
// id may be in several indexes if these were not filled through an [index.Shards]; then each is a
// document of its own, even if hits are grouped. A filter with a set of ordinals is an [ErrOption].
// If a file is replaced by one with another codec, searches return an [index.ErrCodec].
type Multi struct{ searcher }

// NewMulti returns a searcher for a set of indexes. Each search uses the newest snapshot of the set
// when it begins.
func NewMulti(ctx context.Context, set *index.Shards, o *MultiOptions) (*Multi, error) {
	return newMulti(ctx, o, func() (*collection, func(), error) {
		snap, err := set.Snapshot()
		if err != nil {
			return nil, nil, err
		}
		return newCollection(snap.Snapshots()...), func() { _ = snap.Close() }, nil
	})
}

// NewMultiAt returns a searcher for one snapshot. The caller closes the snapshot after the
// searcher.
func NewMultiAt(ctx context.Context, snap *index.ShardsSnapshot, o *MultiOptions) (*Multi, error) {
	return newMulti(ctx, o, pinnedSource(snap.Snapshots()...))
}

// At returns a searcher for one snapshot of the set. It shares the memory and the devices of m, so
// a caller can make one for each query. Close of either closes both; the caller closes the snapshot
// after them.
func (m *Multi) At(snap *index.ShardsSnapshot) *Multi {
	return &Multi{searcher{m.core, pinnedSource(snap.Snapshots()...)}}
}

// newMulti returns a searcher that opens the collection of each call by open.
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

// ShardDescription describes one of several indexes that are searched as one.
type ShardDescription struct {
	Name     string `json:"name"`     // the path of its file
	Docs     int64  `json:"docs"`     // live
	Passages int64  `json:"passages"` // in which some of these documents are stored
	Tokens   uint64 `json:"tokens"`   // of these documents
	// Device and Memory as in [Description].
	Device string              `json:"device,omitempty"`
	Memory *kernels.MemoryPlan `json:"device_memory,omitempty"`
}

// describeShards adds the description of each of several indexes.
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
