package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
)

// newsRequest says that a collection has a map, or that there is something of the map's next generation in the store.
type newsRequest struct {
	Name    string `json:"collection"`
	Version uint64 `json:"version"`
}

func (c *Cluster) doNews(ctx context.Context, in *newsRequest) (*emptyAnswer, error) {
	if m := c.knownMap(in.Name); m == nil || m.Version < in.Version {
		if _, err := c.rereadMap(ctx, in.Name); err != nil {
			return &emptyAnswer{}, nil // the next look says why
		}
	}
	c.wakeLoop()
	return &emptyAnswer{}, nil
}

// statusRequest asks for the open replicas of collections, by identity; nil means all.
type statusRequest struct {
	IDs   []string `json:"ids"`
	Stats bool     `json:"stats,omitempty"`
}

type statusAnswer struct {
	Replicas []replicaStatus `json:"replicas"`
	Twin     string          `json:"twin,omitempty"` // the address of another process that has the name of the node
}

type replicaStatus struct {
	ID         string            `json:"id"`
	Shard      int               `json:"shard"`
	Generation uint64            `json:"generation"`
	State      replica.State     `json:"state"`
	Stats      *collection.Stats `json:"stats,omitempty"`
}

func (c *Cluster) doStatus(ctx context.Context, in *statusRequest) (*statusAnswer, error) {
	answer := &statusAnswer{Replicas: []replicaStatus{}}
	c.mu.Lock()
	if c.twin != nil {
		answer.Twin = c.twin.Address
	}
	c.mu.Unlock()
	for _, r := range c.openReplicas(func(k replicaKey) bool { return in.IDs == nil || slices.Contains(in.IDs, k.id) }) {
		s := replicaStatus{ID: r.id, Shard: r.shard, Generation: r.generation, State: r.State()}
		if in.Stats && s.State.Phase == replica.Ready {
			if stats, err := r.Stats(ctx); err == nil {
				s.Stats = &stats
			}
		}
		answer.Replicas = append(answer.Replicas, s)
	}
	return answer, nil
}

// askStatus asks all living nodes for the replicas that they have open. Those that do not answer soon are missing.
func (c *Cluster) askStatus(ctx context.Context, in *statusRequest) map[*Node]*statusAnswer {
	answers, _ := c.askStatusErrors(ctx, in)
	return answers
}

// askStatusErrors is ask with the reasons why nodes are silent.
func (c *Cluster) askStatusErrors(ctx context.Context, in *statusRequest) (answers map[*Node]*statusAnswer, silent map[*Node]error) {
	answers, silent = map[*Node]*statusAnswer{}, map[*Node]error{}
	var mu sync.Mutex
	c.eachNode(ctx, 3*time.Second, func(ctx context.Context, n *Node) {
		var answer statusAnswer
		err := c.callNode(ctx, n, "status", in, &answer)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			silent[n] = err
		} else {
			answers[n] = &answer
		}
	})
	return answers, silent
}

type sampleRequest struct {
	ID         string `json:"id"`
	Shard      int    `json:"shard"`
	Generation uint64 `json:"generation"`
	Tokens     int    `json:"tokens"`
	Seed       uint64 `json:"seed"`
}

type sampleAnswer struct {
	Vectors floats `json:"vectors"`
}

func (c *Cluster) doSample(ctx context.Context, in *sampleRequest) (*sampleAnswer, error) {
	r, release, err := c.acquireReplica(ctx, in.ID, in.Shard, in.Generation)
	if err != nil {
		return nil, err
	}
	defer release()
	sample, err := r.Sample(ctx, min(max(in.Tokens, 0), maxSample/4), in.Seed)
	if err != nil {
		return nil, err
	}
	if len(sample) > maxSample/4*5/4 {
		return nil, fmt.Errorf("%w: a sample of %d values", collection.ErrTooLarge, len(sample))
	}
	return &sampleAnswer{sample}, nil
}

// Status is the state of a cluster, as one of its processes sees it.
type Status struct {
	Place       string             `json:"place"`
	Nodes       []NodeStatus       `json:"nodes"`
	Collections []CollectionStatus `json:"collections"`
	// Faults are sentences; there are none when all is well.
	Faults []string `json:"faults"`
	// Notes are sentences about states that are not as wanted and do no harm, such as fewer nodes than replicas.
	Notes []string `json:"notes"`
}

// NodeStatus describes a node that lives.
type NodeStatus struct {
	Node
	Answers  bool `json:"answers"`
	Replicas int  `json:"replicas"` // that it has open
}

// CollectionStatus describes a collection.
type CollectionStatus struct {
	Name       string           `json:"name"`
	Generation uint64           `json:"generation"` // 0: nothing is searched yet
	Stage      collection.Stage `json:"stage"`
	Documents  uint64           `json:"documents"`
	Bytes      int64            `json:"bytes"` // of one replica of each shard
	Replicas   int              `json:"replicas"`
	Shards     []ShardStatus    `json:"shards"`
	// Work names the work that is under way; "" means none.
	Work string `json:"work,omitempty"`
	// Fault is why nothing of the collection is touched.
	Fault string `json:"fault,omitempty"`
}

// ShardStatus describes a shard. Replicas are those of its holders, in order: the first one gathers the changes.
type ShardStatus struct {
	Entry     uint64          `json:"entry"` // the newest of its log that is known
	Documents uint64          `json:"documents"`
	Replicas  []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus describes a replica.
type ReplicaStatus struct {
	Node string `json:"node"`
	// State is "ready", another phase of the replica, "empty", "closed", or "silent".
	State  string `json:"state"`
	Behind uint64 `json:"behind"` // entries
	Error  string `json:"error,omitempty"`
}

// replicaStates are the states of replicas by the name of their node. Nodes that are silent have none.
type replicaStates map[string]map[replicaKey]replica.State

// Status asks all nodes.
func (c *Cluster) Status(ctx context.Context) *Status {
	answers, silent := c.askStatusErrors(ctx, &statusRequest{})
	s := &Status{
		Place: c.cfg.Place, Nodes: []NodeStatus{}, Collections: []CollectionStatus{},
		Faults: []string{}, Notes: []string{},
	}
	if err := c.Ready(); err != nil {
		s.addFault("%v", err)
	}
	c.mu.Lock()
	nodes := c.nodes
	for _, name := range slices.Sorted(maps.Keys(c.lostMaps)) {
		s.addFault("%s: the store has no map of it any more: nothing of it is changed or deleted", name)
	}
	c.mu.Unlock()
	if len(nodes) == 0 {
		s.addFault("%v", errNoNode)
	}
	states := replicaStates{}
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, s.nodeStatus(n, answers[n], silent[n], states))
	}
	for _, name := range c.Names() {
		m, err := c.findMap(ctx, name)
		if err != nil {
			s.addFault("%s: %v", name, err)
			s.Collections = append(s.Collections, CollectionStatus{
				Name: name, Stage: collection.StageEmpty, Shards: []ShardStatus{}, Fault: err.Error(),
			})
			continue
		}
		s.Collections = append(s.Collections, c.collectionStatus(s, m, states))
	}
	s.noteVersions()
	s.noteFewNodes()
	return s
}

// nodeStatus takes down the answer of a node, and the states of its replicas.
func (s *Status) nodeStatus(n *Node, answer *statusAnswer, silent error, states replicaStates) NodeStatus {
	if answer == nil {
		if e, ok := errors.AsType[*url.Error](silent); ok { // which says again where the node is
			silent = e.Err
		}
		s.addFault("node %s does not answer at %s: %v", n.Name, n.Address, silent)
		return NodeStatus{Node: *n}
	}
	if answer.Twin != "" {
		s.addFault("node %s at %s: another process, at %s, has its name: names have to differ",
			n.Name, n.Address, answer.Twin)
	}
	states[n.Name] = map[replicaKey]replica.State{}
	for _, r := range answer.Replicas {
		states[n.Name][replicaKey{shardKey{r.ID, r.Shard}, r.Generation}] = r.State
	}
	return NodeStatus{*n, true, len(answer.Replicas)}
}

// noteVersions notes that nodes run different versions.
func (s *Status) noteVersions() {
	nodes := map[string][]string{} // by version
	for _, n := range s.Nodes {
		nodes[n.Version] = append(nodes[n.Version], n.Name)
	}
	if len(nodes) < 2 {
		return
	}
	var which []string
	for _, version := range slices.Sorted(maps.Keys(nodes)) {
		has := nodes[version]
		if len(has) > 3 {
			has = append(has[:3:3], "…")
		}
		which = append(which, fmt.Sprintf("%s on %s", version, strings.Join(has, ", ")))
	}
	s.Notes = append(s.Notes, fmt.Sprintf("nodes run different versions and may not understand each other: %s",
		strings.Join(which, "; ")))
}

// noteFewNodes notes the collections that have fewer replicas than wanted because there are fewer nodes.
func (s *Status) noteFewNodes() {
	if !slices.ContainsFunc(s.Nodes, func(n NodeStatus) bool { return n.Answers }) {
		return
	}
	n := len(s.Nodes)
	if n == 0 {
		return
	}
	text := fmt.Sprintf("%d nodes: every shard%%s has %d replicas of %%d wanted", n, n)
	if n == 1 {
		text = "one node: every shard%s has one replica of %d wanted"
	}
	differs := func(c CollectionStatus) bool { return c.Replicas <= n || c.Replicas != s.Collections[0].Replicas }
	if len(s.Collections) > 0 && !slices.ContainsFunc(s.Collections, differs) {
		s.Notes = append(s.Notes, fmt.Sprintf(text, "", s.Collections[0].Replicas))
		return
	}
	for _, c := range s.Collections {
		if c.Replicas > n {
			s.Notes = append(s.Notes, fmt.Sprintf(text, " of "+c.Name, c.Replicas))
		}
	}
}

func (s *Status) addFault(format string, a ...any) {
	s.Faults = append(s.Faults, fmt.Sprintf(format, a...))
}

// collectionStatus takes down the state of a collection.
func (c *Cluster) collectionStatus(s *Status, m *Map, states replicaStates) CollectionStatus {
	out := CollectionStatus{
		Name: m.Name, Stage: collection.StageEmpty, Replicas: m.Replicas, Work: m.currentWork(), Shards: []ShardStatus{},
	}
	if m.Failed != nil {
		s.addFault("%s: the last training failed: %s", m.Name, m.Failed.Cause.Message)
	}
	if m.Current != nil {
		out.Generation, out.Stage = m.Current.Number, m.Current.Stage
	}
	for shard := range m.Shards {
		sh, bytes := s.shardStatus(m, shard, c.holders(m, shard), states)
		out.Documents, out.Bytes, out.Shards = out.Documents+sh.Documents, out.Bytes+bytes, append(out.Shards, sh)
	}
	return out
}

// shardStatus takes down the state of a shard, and the size of its largest replica.
func (s *Status) shardStatus(m *Map, shard int, holders []*Node, states replicaStates) (sh ShardStatus, bytes int64) {
	k := replicaKey{shardKey: shardKey{m.ID, shard}}
	if m.Current != nil {
		k.generation = m.Current.Number
	}
	usable := m.Current == nil || len(holders) == 0
	for _, n := range holders {
		state := states[n.Name][k]
		sh.Entry, sh.Documents = max(sh.Entry, state.Entry, state.Known), max(sh.Documents, state.Documents)
		bytes = max(bytes, state.Bytes)
	}
	for _, n := range holders {
		state, known := states[n.Name][k]
		r := ReplicaStatus{Node: n.Name, State: state.Phase, Error: state.Error}
		switch {
		case m.Current == nil:
			r.State = "empty"
		case states[n.Name] == nil:
			r.State = "silent"
		case !known:
			r.State, usable = "closed", true // the first request opens it
		case state.Phase == replica.Ready:
			usable, r.Behind = true, sh.Entry-state.Entry
		}
		if r.Error != "" {
			s.addFault("%s: shard %d on node %s: %s", m.Name, shard, n.Name, r.Error)
		}
		sh.Replicas = append(sh.Replicas, r)
	}
	if !usable {
		s.addFault("%s: no replica of shard %d is ready", m.Name, shard)
	}
	return sh, bytes
}

// currentWork names the work on a collection that is under way; "" means none.
func (m *Map) currentWork() string {
	switch {
	case m.Next != nil:
		return fmt.Sprintf("generation %d is being encoded", m.Next.Number)
	case m.Building != nil:
		return fmt.Sprintf("generation %d is being built", m.Building.Generation)
	case m.Training != nil || m.Wanted != "":
		return "a codec is being trained"
	}
	return ""
}

// Layout implements [collection.Spread].
func (c *Cluster) Layout() collection.Layout {
	s := c.Status(c.ctx)
	l := collection.Layout{Nodes: []collection.Node{}, Collections: []collection.Placement{}}
	for _, n := range s.Nodes {
		l.Nodes = append(l.Nodes, collection.Node{Name: n.Name, Heard: n.Answers})
	}
	for _, status := range s.Collections {
		p := collection.Placement{
			Name: status.Name, Generation: status.Generation, Replicas: status.Replicas, Shards: []collection.Shard{},
		}
		for _, shard := range status.Shards {
			sh := collection.Shard{Documents: shard.Documents, Replicas: []collection.Replica{}}
			for _, r := range shard.Replicas {
				sh.Replicas = append(sh.Replicas, collection.Replica{Node: r.Node, State: r.State})
			}
			p.Shards = append(p.Shards, sh)
		}
		l.Collections = append(l.Collections, p)
	}
	return l
}
