package store

import (
	"context"
	"errors"
	"time"

	"github.com/plaid-ir/plaid/storage"
)

// Counts are what the writer of a collection has done since it was opened.
type Counts struct {
	Updates   uint64 `json:"updates"` // requests
	Documents uint64 `json:"documents"`
	Deletions uint64 `json:"deletions"` // requests
	Deleted   uint64 `json:"deleted"`   // documents
	Failed    uint64 `json:"failed"`    // requests
	Groups    uint64 `json:"groups"`    // transactions, about
	Trainings uint64 `json:"trainings"`
	// Writing is the time of all that.
	Writing time.Duration `json:"writing_ns"`
}

func (c *Collection) counted(rs []*request, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &c.counts
	n.Groups++
	n.Writing += took
	for _, r := range rs {
		switch {
		case r.err != nil:
			n.Failed++
		case r.kind == updating:
			n.Updates++
			n.Documents += uint64(len(r.docs))
		case r.kind == deleting:
			n.Deletions++
			n.Deleted += uint64(r.count)
		}
	}
}

// Stats describes a collection, at little cost.
type Stats struct {
	Documents uint64 `json:"documents"`         // live ones
	Deleted   uint64 `json:"deleted_documents"` // whose ordinals are not used again
	Tokens    uint64 `json:"tokens"`            // of live documents
	// Metadata is how many documents have some.
	Metadata   uint64         `json:"metadata"`
	Dim        int            `json:"dim"`             // 0: no documents yet, as the next three
	Nbits      int            `json:"nbits"`           // as they are kept now
	Centroids  int            `json:"centroids"`       // of the codec
	Generation uint64         `json:"generation"`      // counts how often all was coded anew
	Model      *storage.Model `json:"model,omitempty"` // what made the vectors; nil: nobody said
	FileBytes  int64          `json:"file_bytes"`      // of the index
	Growth     GrowthStats    `json:"growth"`          // from one codec to the next
	Queue      QueueStats     `json:"queue"`           // what waits to be written
	Counts     Counts         `json:"counts"`          // since the collection was opened
}

// Stats describes the collection as it is now. A collection without documents has
// zeros.
func (c *Collection) Stats(ctx context.Context) (Stats, error) {
	st := Stats{Growth: GrowthStats{Stage: StageEmpty}, Queue: c.queue.stats(), FileBytes: c.size()}
	c.mu.Lock()
	st.Counts = c.counts
	c.mu.Unlock()
	v, err := c.View(ctx)
	if errors.Is(err, ErrEmpty) {
		return st, nil
	} else if err != nil {
		return st, err
	}
	s, h := v.snap.State(), v.snap.Header()
	st.Documents, st.Deleted, st.Tokens = uint64(s.Live), uint64(s.Docs-s.Live), s.LiveTokens
	st.Dim, st.Nbits, st.Centroids, st.Generation, st.Model = h.Dim, h.Nbits, h.Centroids, v.snap.Generation(), h.Model
	st.Growth = GrowthStats{Stage: stageOf(&h, &c.s.o.Growth), Drift: v.snap.Drift()}
	st.Growth.Advice = c.advice(&h, st.Growth.Drift)
	c.mu.Lock()
	st.Growth.Training = c.growth.running != nil
	if c.growth.err != nil {
		st.Growth.Failed = c.growth.err.Error()
	}
	c.mu.Unlock()
	st.Metadata = c.withMetadata(v)
	return st, v.Close()
}

// metadataCount is how many documents of a version of the index have metadata.
type metadataCount struct{ version, docs uint64 }

// withMetadata counts the documents that have metadata, once for each state.
func (c *Collection) withMetadata(v *View) uint64 {
	c.mu.Lock()
	known := c.metadata
	c.mu.Unlock()
	if known.version == v.snap.Version() {
		return known.docs
	}
	known = metadataCount{version: v.snap.Version()}
	for o := range v.snap.State().Docs {
		if v.snap.HasPayload(o) {
			known.docs++
		}
	}
	c.mu.Lock()
	c.metadata = known
	c.mu.Unlock()
	return known.docs
}
