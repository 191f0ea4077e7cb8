package store

import (
	"context"
	"errors"
	"time"

	"github.com/plaid-ir/plaid/collection"
)

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

// Stats describes the collection as it is now. A collection without documents has
// zeros.
func (c *Collection) Stats(ctx context.Context) (collection.Stats, error) {
	st := collection.Stats{Growth: collection.GrowthStats{Stage: collection.StageEmpty}, Queue: c.queue.stats(), FileBytes: c.size()}
	c.mu.Lock()
	st.Counts = c.counts
	c.mu.Unlock()
	v, err := c.View(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return st, nil
	} else if err != nil {
		return st, err
	}
	s, h := v.snap.State(), v.snap.Header()
	st.Documents, st.Deleted, st.Tokens, st.Metadata = uint64(s.Live), uint64(s.Docs-s.Live), s.LiveTokens, v.snap.Payloads()
	st.Dim, st.Nbits, st.Centroids, st.Generation, st.Model = h.Dim, h.Nbits, h.Centroids, v.snap.Generation(), h.Model
	st.Growth = collection.GrowthStats{Stage: c.s.o.Growth.StageOf(&h), Drift: v.snap.Drift()}
	st.Growth.Advice = c.s.o.Growth.Advice(&h, st.Growth.Drift)
	c.mu.Lock()
	st.Growth.Training = c.growth.running != nil
	if c.growth.err != nil {
		st.Growth.Failed = c.growth.err.Error()
	}
	c.mu.Unlock()
	return st, v.Close()
}
