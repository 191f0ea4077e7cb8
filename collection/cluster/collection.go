package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
)

// shards is a collection.
type shards struct {
	c        *Cluster
	name, id string
}

var _ collection.Collection = (*shards)(nil)

// Name implements [collection.Collection].
func (s *shards) Name() string { return s.name }

// current is the newest map of the collection that is known here. The error is [collection.ErrUnknown] if the
// collection was removed, whatever has its name now.
func (s *shards) current(ctx context.Context) (*Map, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.c.ctx.Err() != nil {
		return nil, collection.ErrClosed
	}
	m, err := s.c.mapOf(ctx, s.name)
	if err == nil && m.ID != s.id {
		err = s.gone()
	}
	return m, err
}

// filled is the newest map of the collection if that has documents, else [collection.ErrEmpty]. The store is asked
// before that is said: another node may have stored some a moment ago.
func (s *shards) filled(ctx context.Context) (*Map, error) {
	m, err := s.current(ctx)
	if err == nil && m.Current == nil {
		if newer, rerr := s.c.refreshed(ctx, s.name); rerr == nil {
			m = newer
		}
		switch {
		case m.ID != s.id:
			err = s.gone()
		case m.Current == nil:
			err = fmt.Errorf("%w: %q", collection.ErrEmpty, s.name)
		}
	}
	return m, err
}

func (s *shards) gone() error { return fmt.Errorf("%w: %q was removed", collection.ErrUnknown, s.name) }

// refreshed is the newest map, read from the store unless that was done a moment ago: while a node does not
// answer, all requests look for news.
func (c *Cluster) refreshed(ctx context.Context, name string) (*Map, error) {
	c.mu.Lock()
	before, now := c.front.renewed[name], time.Now()
	if c.front.renewed == nil || len(c.front.renewed) > 4096 {
		c.front.renewed = map[string]time.Time{}
	}
	if now.Sub(before) < 100*time.Millisecond {
		c.mu.Unlock()
		return c.mapOf(ctx, name)
	}
	c.front.renewed[name] = now
	c.mu.Unlock()
	return c.renew(ctx, name)
}

// deadline is how long a request may take that says nothing of that.
func (c *Cluster) deadline() time.Duration { return cmp.Or(c.c.Deadline, 30*time.Second) }

// newest is the newest entry of a shard that this process has made or seen.
func (c *Cluster) newest(id string, shard int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[shardKey{id, shard}]
}

// saw takes over what shards have answered: what this process has seen once it sees again.
func saw[T any](s *shards, parts map[int]*T, of func(*T) *answered) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for shard, p := range parts {
		a, k := of(p), shardKey{s.id, shard}
		s.c.seen[k] = max(s.c.seen[k], a.Entry)
		s.c.front.docs(k, a.Docs)
	}
}

// docs notes how many documents a shard has; the mutex of the cluster is held.
func (f *front) docs(k shardKey, n uint64) {
	if f.documents == nil {
		f.documents = map[shardKey]uint64{}
	}
	f.documents[k] = n
}

// docs is how many live documents a shard had when it last answered.
func (s *shards) docs(shard int) int64 {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return int64(s.c.front.documents[shardKey{s.id, shard}])
}

// lookAsk asks what shards are.
type lookAsk struct {
	Only collection.Selection `json:"only"` // whose fields are looked for
	// Strict makes a field that the shard does not know an error, which names those that it knows.
	Strict bool `json:"strict,omitempty"`
	Stats  bool `json:"stats,omitempty"`
}

type lookFound struct {
	answered
	Stats       *collection.Stats   `json:"stats,omitempty"`
	Description *search.Description `json:"description,omitempty"`
}

// doLook describes shards.
func (c *Cluster) doLook(ctx context.Context, a *asked, in *lookAsk) (*answers[lookFound], error) {
	return eachShard(ctx, c, a, func(h *held, out *lookFound) error {
		if in.Strict {
			_, err := h.view.Snapshot().Select(ctx, in.Only.Where)
			return err
		}
		if !in.Stats {
			return nil
		}
		d, err := h.view.Describe(ctx)
		if err != nil {
			return err
		}
		st, err := h.replica.Stats(ctx)
		out.Stats, out.Description = &st, &d
		return err
	}, in.Only.Where)
}

// look describes all shards, as the nodes see them that gather their changes.
func (s *shards) look(ctx context.Context) (*Map, map[int]*lookFound, error) {
	return all[lookFound](ctx, s, opStats, every, &lookAsk{Stats: true})
}

// checkFields makes sure that some document has each field of a condition.
func (s *shards) checkFields(ctx context.Context, where *condition.Condition) error {
	if err := checkWhere(where); where == nil || err != nil || where.IsLenient() {
		return err
	}
	in := lookAsk{Only: collection.Selection{Where: where}}
	_, looks, err := all[lookFound](ctx, s, "look", every, &in)
	if err != nil {
		return err
	}
	if err = known(where, looks); err != nil {
		in.Strict = true
		if _, _, better := all[lookFound](ctx, s, "look", every, &in); errors.Is(better, condition.ErrUnknownField) {
			return better // it names the fields that there are
		}
	}
	return err
}

// Stats implements [collection.Collection]: it asks the node of each shard that gathers its changes.
func (s *shards) Stats(ctx context.Context) (collection.Stats, error) {
	st := collection.Stats{Growth: collection.GrowthStats{Stage: collection.StageEmpty}}
	m, looks, err := s.look(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return st, nil
	}
	if err != nil {
		return st, err
	}
	all := make([]collection.Stats, 0, m.Shards)
	for shard := range m.Shards {
		of := looks[shard].Stats
		if of == nil { // it has no documents
			continue
		}
		all = append(all, *of)
		st.Documents += of.Documents
		st.Passages += of.Passages
		st.Deleted += of.Deleted
		st.Tokens += of.Tokens
		st.Metadata += of.Metadata
		st.FileBytes += of.FileBytes
		st.Queue.Requests += of.Queue.Requests
		st.Queue.Documents += of.Queue.Documents
		st.Queue.Bytes += of.Queue.Bytes
		st.Counts.Add(of.Counts)
		st.Nbits, st.Centroids = of.Nbits, of.Centroids
	}
	st.Dim, st.Generation, st.Model = m.Current.Dim, m.Current.Number, m.Current.Model
	st.Growth = s.c.growthOf(m, all)
	return st, nil
}

// View implements [collection.Collection].
func (s *shards) View(ctx context.Context) (collection.View, error) {
	m, err := s.filled(ctx)
	if err != nil {
		return nil, err
	}
	s.c.mu.Lock()
	known := 0
	for shard := range m.Shards {
		if _, ok := s.c.front.documents[shardKey{s.id, shard}]; ok {
			known++
		}
	}
	s.c.mu.Unlock()
	if known < m.Shards { // nothing was asked yet
		if _, _, err := s.look(ctx); err != nil && !s.c.c.Partial {
			return nil, err
		}
	}
	v := &view{s: s, m: m, dim: m.Current.Dim}
	for shard := range m.Shards {
		v.docs += s.docs(shard)
	}
	return v, nil
}

// Err implements [collection.Collection].
func (s *shards) Err() error {
	if m := s.c.lastMap(s.name); m != nil {
		return m.fault
	}
	return nil
}

// Config implements [collection.Collection].
func (s *shards) Config() collection.Config {
	if m := s.c.lastMap(s.name); m != nil {
		return m.Config
	}
	return collection.Config{}
}
