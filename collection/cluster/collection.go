package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
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

// errRebuilt: numbers of documents that were read before a bulk build are those of others now.
var errRebuilt = fmt.Errorf("%w: the collection was built again meanwhile", collection.ErrUnreachable)

// same is errRebuilt if documents have other numbers than in a map.
func (s *shards) same(ctx context.Context, m *Map) error {
	now, err := s.current(ctx)
	if err == nil && now.Current.Base != m.Current.Base {
		err = fmt.Errorf("%q: %w", s.name, errRebuilt)
	}
	return err
}

// settled calls do again if the collection has got another generation meanwhile, so that all that do reads is of one.
func (s *shards) settled(ctx context.Context, do func() error) error {
	for range 4 {
		before, err := s.current(ctx)
		if err != nil {
			return err
		}
		err = do()
		if now, nerr := s.current(ctx); nerr != nil || now.Current.Number == before.Current.Number {
			return err
		}
	}
	return fmt.Errorf("%w: %q is encoded again and again", collection.ErrUnreachable, s.name)
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

// sees notes an entry that a shard has: later reads have to show it.
func (c *Cluster) sees(k shardKey, entry uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[k] = max(c.seen[k], entry)
}

// saw takes over the entries and the numbers of documents that shards have answered with.
func saw[T any, P answer[T]](s *shards, parts map[int]*T) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.front.documents == nil {
		s.c.front.documents = map[shardKey]uint64{}
	}
	for shard, p := range parts {
		a, k := P(p).common(), shardKey{s.id, shard}
		s.c.seen[k] = max(s.c.seen[k], a.Entry)
		s.c.front.documents[k] = a.Docs
	}
}

// docs is how many live documents a shard had when it last answered.
func (s *shards) docs(shard int) int64 {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return int64(s.c.front.documents[shardKey{s.id, shard}])
}

// lookAsk asks for a description of shards.
type lookAsk struct {
	Only   collection.Selection `json:"only"` // whose fields are looked for
	Fields bool                 `json:"fields,omitempty"`
	Stats  bool                 `json:"stats,omitempty"`
}

type lookFound struct {
	answered
	Fields      []condition.Field   `json:"fields,omitzero"` // that documents have
	Stats       *collection.Stats   `json:"stats,omitempty"`
	Description *search.Description `json:"description,omitempty"`
}

// doLook describes shards.
func (c *Cluster) doLook(ctx context.Context, a *asked, in *lookAsk) (*answers[lookFound], error) {
	return eachShard(ctx, c, a, func(h *held, out *lookFound) (err error) {
		if in.Fields {
			out.Fields, err = index.Fields(ctx, []*index.Snapshot{h.view.Snapshot()})
		}
		if !in.Stats || err != nil {
			return err
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

// checkFields makes sure that some document has each field of a condition. The error names the fields that there
// are.
func (s *shards) checkFields(ctx context.Context, where *condition.Condition) error {
	if where == nil || where.IsLenient() {
		return nil
	}
	_, looks, err := all[lookFound](ctx, s, "look", every, &lookAsk{Only: collection.Selection{Where: where}})
	if err == nil {
		err = known(where, looks)
	}
	unknown, ok := errors.AsType[*condition.UnknownFieldError](err)
	if !ok {
		return err
	}
	if _, looks, lerr := all[lookFound](ctx, s, "look", every, &lookAsk{Fields: true}); lerr == nil {
		unknown.Fields = []condition.Field{}
		for _, l := range looks {
			unknown.Fields = append(unknown.Fields, l.Fields...)
		}
		slices.Sort(unknown.Fields)
		unknown.Fields = slices.Compact(unknown.Fields)
	}
	return err
}

// checkFound is checkFields for who has the answers of all shards to a request with the condition.
func checkFound[T any, P answer[T]](ctx context.Context, s *shards, where *condition.Condition,
	found map[int]*T) error {
	if known[T, P](where, found) == nil {
		return nil
	}
	return s.checkFields(ctx, where)
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
		p := looks[shard].Stats
		if p == nil { // it has no documents
			continue
		}
		all = append(all, *p)
		st.Documents += p.Documents
		st.Passages += p.Passages
		st.Deleted += p.Deleted
		st.Tokens += p.Tokens
		st.Metadata += p.Metadata
		st.FileBytes += p.FileBytes
		st.Queue.Requests += p.Queue.Requests
		st.Queue.Documents += p.Queue.Documents
		st.Queue.Bytes += p.Queue.Bytes
		st.Counts.Add(p.Counts)
		st.Sampled = st.Sampled.Join(p.Sampled)
		st.Nbits, st.Centroids = p.Nbits, p.Centroids
	}
	st.Dim, st.Generation, st.Model = m.Current.Dim, m.Current.Number, m.Current.Model
	st.Growth = s.c.growthOf(m, all)
	return st, nil
}

// Snapshot implements [collection.Collection].
func (s *shards) Snapshot(ctx context.Context) (collection.Snapshot, error) {
	m, err := s.filled(ctx)
	if err != nil {
		return nil, err
	}
	s.c.mu.Lock()
	unknown := slices.ContainsFunc(every(m), func(shard int) bool {
		_, known := s.c.front.documents[shardKey{s.id, shard}]
		return !known
	})
	s.c.mu.Unlock()
	if unknown {
		if _, _, err := s.look(ctx); err != nil && !s.c.c.Partial {
			return nil, err
		}
	}
	v := &view{s: s, m: m, dim: m.Current.Dim, lists: map[*search.Filter]collection.Selection{},
		given: map[*condition.Condition]bool{}}
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
