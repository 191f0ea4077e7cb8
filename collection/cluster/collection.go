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

// shardedCollection is a collection of the cluster, as this process sees it.
type shardedCollection struct {
	c        *Cluster
	name, id string
}

var _ collection.Collection = (*shardedCollection)(nil)

// Name implements [collection.Collection].
func (s *shardedCollection) Name() string { return s.name }

// currentMap returns the newest known map of the collection. The error is [collection.ErrUnknown] if the collection was
// removed, even if another one has its name now.
func (s *shardedCollection) currentMap(ctx context.Context) (*Map, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.c.ctx.Err() != nil {
		return nil, collection.ErrClosed
	}
	m, err := s.c.findMap(ctx, s.name)
	if err == nil && m.ID != s.id {
		err = s.removedError()
	}
	return m, err
}

// nonEmptyMap returns the newest map if the collection has documents, or else [collection.ErrEmpty]. It asks the store
// before it reports that: another node may have stored documents a moment ago.
func (s *shardedCollection) nonEmptyMap(ctx context.Context) (*Map, error) {
	m, err := s.currentMap(ctx)
	if err == nil && m.Current == nil {
		if newer, refreshErr := s.c.refreshMap(ctx, s.name); refreshErr == nil {
			m = newer
		}
		switch {
		case m.ID != s.id:
			err = s.removedError()
		case m.Current == nil:
			err = fmt.Errorf("%w: %q", collection.ErrEmpty, s.name)
		}
	}
	return m, err
}

// errRebuilt means that the collection was built again, so that numbers read before belong to other documents now.
var errRebuilt = fmt.Errorf("%w: the collection was built again meanwhile", collection.ErrUnreachable)

// checkSameNumbers returns errRebuilt if documents have other numbers now than in a map.
func (s *shardedCollection) checkSameNumbers(ctx context.Context, m *Map) error {
	now, err := s.currentMap(ctx)
	if err == nil && now.Current.Base != m.Current.Base {
		err = fmt.Errorf("%q: %w", s.name, errRebuilt)
	}
	return err
}

// withinOneGeneration calls read, and again if the collection has got another generation meanwhile, so that everything
// that it reads is of one generation.
func (s *shardedCollection) withinOneGeneration(ctx context.Context, read func() error) error {
	for range 4 {
		before, err := s.currentMap(ctx)
		if err != nil {
			return err
		}
		err = read()
		if now, nerr := s.currentMap(ctx); nerr != nil || now.Current.Number == before.Current.Number {
			return err
		}
	}
	return fmt.Errorf("%w: %q changes its generation again and again", collection.ErrUnreachable, s.name)
}

// removedError returns the error of a collection that was removed.
func (s *shardedCollection) removedError() error {
	return fmt.Errorf("%w: %q was removed", collection.ErrUnknown, s.name)
}

// refreshMap reads the newest map from the store, unless that was done a moment ago: while a node does not answer, all
// requests look for a newer map.
func (c *Cluster) refreshMap(ctx context.Context, name string) (*Map, error) {
	c.mu.Lock()
	before, now := c.front.rereadAt[name], time.Now()
	if c.front.rereadAt == nil || len(c.front.rereadAt) > 4096 {
		c.front.rereadAt = map[string]time.Time{}
	}
	if now.Sub(before) < 100*time.Millisecond {
		c.mu.Unlock()
		return c.findMap(ctx, name)
	}
	c.front.rereadAt[name] = now
	c.mu.Unlock()
	return c.rereadMap(ctx, name)
}

// requestTimeout returns how long a request without a deadline may take.
func (c *Cluster) requestTimeout() time.Duration { return cmp.Or(c.cfg.Deadline, 30*time.Second) }

// newestEntry returns the newest entry of a shard that this process has made or seen.
func (c *Cluster) newestEntry(id string, shard int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seenEntries[shardKey{id, shard}]
}

// noteEntry notes an entry that a shard has, so that later reads show it.
func (c *Cluster) noteEntry(k shardKey, entry uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seenEntries[k] = max(c.seenEntries[k], entry)
}

// noteAnswers notes the entries and document counts in the answers of shards.
func noteAnswers[T any, P answer[T]](s *shardedCollection, byShard map[int]*T) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.front.documents == nil {
		s.c.front.documents = map[shardKey]uint64{}
	}
	for shard, p := range byShard {
		a, k := P(p).commonHead(), shardKey{s.id, shard}
		s.c.seenEntries[k] = max(s.c.seenEntries[k], a.Entry)
		s.c.front.documents[k] = a.Docs
	}
}

// documentCount returns how many live documents a shard had when it last answered.
func (s *shardedCollection) documentCount(shard int) int64 {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return int64(s.c.front.documents[shardKey{s.id, shard}])
}

// describeRequest asks for a description of shards.
type describeRequest struct {
	Only   collection.Selection `json:"only"` // its fields are looked up
	Fields bool                 `json:"fields,omitempty"`
	Stats  bool                 `json:"stats,omitempty"`
}

type describeAnswer struct {
	answerHead
	Fields      []condition.Field   `json:"fields,omitzero"` // fields that documents have
	Stats       *collection.Stats   `json:"stats,omitempty"`
	Description *search.Description `json:"description,omitempty"`
}

// doDescribe describes shards.
func (c *Cluster) doDescribe(ctx context.Context, target *shardTarget,
	in *describeRequest) (*answers[describeAnswer], error) {
	return eachShard(ctx, c, target, func(h *openShard, out *describeAnswer) (err error) {
		if in.Fields {
			out.Fields, err = index.Fields(ctx, []*index.Snapshot{h.snapshot.Snapshot()})
		}
		if !in.Stats || err != nil {
			return err
		}
		d, err := h.snapshot.Describe(ctx)
		if err != nil {
			return err
		}
		st, err := h.replica.Stats(ctx)
		out.Stats, out.Description = &st, &d
		return err
	}, in.Only.Where)
}

// describeShards describes all shards. It asks the first holder of each, which gathers the changes.
func (s *shardedCollection) describeShards(ctx context.Context) (*Map, map[int]*describeAnswer, error) {
	return readAllShards[describeAnswer](ctx, s, opStats, allShards, &describeRequest{Stats: true})
}

// checkFields returns an error if no document has a field of a condition. The error lists the fields that documents
// have.
func (s *shardedCollection) checkFields(ctx context.Context, where *condition.Condition) error {
	if where == nil || where.IsLenient() {
		return nil
	}
	in := &describeRequest{Only: collection.Selection{Where: where}}
	_, descriptions, err := readAllShards[describeAnswer](ctx, s, "look", allShards, in)
	if err == nil {
		err = checkKnownFields(where, descriptions)
	}
	unknown, ok := errors.AsType[*condition.UnknownFieldError](err)
	if !ok {
		return err
	}
	in = &describeRequest{Fields: true}
	if _, descriptions, lerr := readAllShards[describeAnswer](ctx, s, "look", allShards, in); lerr == nil {
		unknown.Fields = []condition.Field{}
		for _, l := range descriptions {
			unknown.Fields = append(unknown.Fields, l.Fields...)
		}
		slices.Sort(unknown.Fields)
		unknown.Fields = slices.Compact(unknown.Fields)
	}
	return err
}

// checkAnsweredFields is checkFields for callers that have the answers of all shards to a request with the condition.
func checkAnsweredFields[T any, P answer[T]](ctx context.Context, s *shardedCollection, where *condition.Condition,
	byShard map[int]*T) error {
	if checkKnownFields[T, P](where, byShard) == nil {
		return nil
	}
	return s.checkFields(ctx, where)
}

// Stats implements [collection.Collection]. It asks the first holder of each shard.
func (s *shardedCollection) Stats(ctx context.Context) (collection.Stats, error) {
	st := collection.Stats{Growth: collection.GrowthStats{Stage: collection.StageEmpty}}
	m, descriptions, err := s.describeShards(ctx)
	if errors.Is(err, collection.ErrEmpty) {
		return st, nil
	}
	if err != nil {
		return st, err
	}
	perShard := make([]collection.Stats, 0, m.Shards)
	for shard := range m.Shards {
		p := descriptions[shard].Stats
		if p == nil { // the shard has no documents
			continue
		}
		perShard = append(perShard, *p)
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
	st.Growth = s.c.sumGrowth(m, perShard)
	return st, nil
}

// Snapshot implements [collection.Collection].
func (s *shardedCollection) Snapshot(ctx context.Context) (collection.Snapshot, error) {
	m, err := s.nonEmptyMap(ctx)
	if err != nil {
		return nil, err
	}
	// The first snapshot asks the shards how many documents they have.
	s.c.mu.Lock()
	unknown := slices.ContainsFunc(allShards(m), func(shard int) bool {
		_, known := s.c.front.documents[shardKey{s.id, shard}]
		return !known
	})
	s.c.mu.Unlock()
	if unknown {
		if _, _, err := s.describeShards(ctx); err != nil && !s.c.cfg.Partial {
			return nil, err
		}
	}
	v := &shardedSnapshot{
		coll:            s,
		m:               m,
		dim:             m.Current.Dim,
		numberFilters:   map[*search.Filter]collection.Selection{},
		givenConditions: map[*condition.Condition]bool{},
	}
	for shard := range m.Shards {
		v.docs += s.documentCount(shard)
	}
	return v, nil
}

// Err implements [collection.Collection].
func (s *shardedCollection) Err() error {
	if m := s.c.knownMap(s.name); m != nil {
		return m.readErr
	}
	return nil
}

// Config implements [collection.Collection].
func (s *shardedCollection) Config() collection.Config {
	if m := s.c.knownMap(s.name); m != nil {
		return m.Config
	}
	return collection.Config{}
}
