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

// newsRequest announces a version of a map, or new objects of its next generation.
type newsRequest struct {
	Name    string `json:"collection"`
	Version uint64 `json:"version"`
}

// doNews reads the announced map if it is newer, and wakes the loop.
func (c *Cluster) doNews(ctx context.Context, in *newsRequest) (*emptyAnswer, error) {
	if m := c.knownMap(in.Name); m == nil || m.Version < in.Version {
		if _, err := c.rereadMap(ctx, in.Name); err != nil {
			return &emptyAnswer{}, nil // the next beat reports the error
		}
	}
	c.wakeLoop()
	return &emptyAnswer{}, nil
}

// statusRequest asks for the open replicas of collections, by id. Nil IDs mean all collections.
type statusRequest struct {
	IDs   []string `json:"ids"`
	Stats bool     `json:"stats,omitempty"`
}

type statusAnswer struct {
	Replicas []replicaStatus `json:"replicas"`
	Twin     string          `json:"twin,omitempty"` // address of another process with the name of the node
}

type replicaStatus struct {
	ID         string            `json:"id"`
	Shard      int               `json:"shard"`
	Generation uint64            `json:"generation"`
	State      replica.State     `json:"state"`
	Stats      *collection.Stats `json:"stats,omitempty"`
}

// doStatus describes the replicas that are open on this node.
func (c *Cluster) doStatus(ctx context.Context, in *statusRequest) (*statusAnswer, error) {
	answer := &statusAnswer{Replicas: []replicaStatus{}}
	c.mu.Lock()
	if c.twin != nil {
		answer.Twin = c.twin.Address
	}
	c.mu.Unlock()
	isRequested := func(k replicaKey) bool { return in.IDs == nil || slices.Contains(in.IDs, k.id) }
	for _, r := range c.openReplicas(isRequested) {
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

// askStatus asks all living nodes for their open replicas. Nodes that do not answer soon are missing.
func (c *Cluster) askStatus(ctx context.Context, in *statusRequest) map[*Node]*statusAnswer {
	answers, _ := c.askStatusWithErrors(ctx, in)
	return answers
}

// askStatusWithErrors is askStatus, with the reasons why nodes have not answered.
func (c *Cluster) askStatusWithErrors(ctx context.Context,
	in *statusRequest) (answers map[*Node]*statusAnswer, silent map[*Node]error) {
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

// sampleRequest asks for a sample of the tokens of a shard, for a training.
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

// doSample returns a sample of about the requested number of tokens. It refuses to send much more than maxSample bytes.
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
	const maxValues = maxSample / 4
	if len(sample) > maxValues+maxValues/4 { // the last document may exceed the request, within reason
		return nil, fmt.Errorf("%w: a sample of %d values", collection.ErrTooLarge, len(sample))
	}
	return &sampleAnswer{sample}, nil
}

// Status is the state of a cluster, as this process sees it.
type Status struct {
	StoreAddress string             `json:"place"`
	Nodes        []NodeStatus       `json:"nodes"`
	Collections  []CollectionStatus `json:"collections"`
	// Faults are sentences about faults. None means that all is well.
	Faults []string `json:"faults"`
	// Notes are sentences about harmless deviations from the configuration, such as fewer nodes than replicas.
	Notes []string `json:"notes"`
}

// NodeStatus describes a living node.
type NodeStatus struct {
	Node
	Answers  bool `json:"answers"`
	Replicas int  `json:"replicas"` // open ones
}

// CollectionStatus describes a collection.
type CollectionStatus struct {
	Name       string           `json:"name"`
	Generation uint64           `json:"generation"` // 0 means that nothing is searched yet
	Stage      collection.Stage `json:"stage"`
	Documents  uint64           `json:"documents"`
	Bytes      int64            `json:"bytes"` // of one replica of each shard
	Replicas   int              `json:"replicas"`
	Shards     []ShardStatus    `json:"shards"`
	// Work names the running work, such as a training. "" means none.
	Work string `json:"work,omitempty"`
	// Fault says why nothing of the collection is read or changed. "" means that all is well.
	Fault string `json:"fault,omitempty"`
}

// ShardStatus describes a shard. Replicas are in the order of its holders: the first one gathers the changes.
type ShardStatus struct {
	Entry     uint64          `json:"entry"` // newest known entry of its log
	Documents uint64          `json:"documents"`
	Replicas  []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus describes the replica of a shard on a holder.
type ReplicaStatus struct {
	Node string `json:"node"`
	// State is the phase of the replica: "fetching", "catching up", "ready" or "failed"; or "empty" (the collection has
	// no documents), "closed" (it has not been opened yet), or "silent" (the node does not answer).
	State  string `json:"state"`
	Behind uint64 `json:"behind"` // entries that it has not applied yet
	Error  string `json:"error,omitempty"`
}

// replicaStates are the states of open replicas by node. Nodes that have not answered have no map.
type replicaStates map[string]map[replicaKey]replica.State

// Status describes the cluster. It asks all nodes.
func (c *Cluster) Status(ctx context.Context) *Status {
	answers, silent := c.askStatusWithErrors(ctx, &statusRequest{})
	s := &Status{
		StoreAddress: c.cfg.StoreAddress, Nodes: []NodeStatus{}, Collections: []CollectionStatus{},
		Faults: []string{}, Notes: []string{},
	}
	if err := c.Ready(); err != nil {
		s.addFault("%v", err)
	}
	c.mu.Lock()
	nodes := c.nodes
	for _, name := range slices.Sorted(maps.Keys(c.lostMaps)) {
		s.addFault("%s: the store has lost its map: nothing of it is changed or deleted", name)
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

// nodeStatus describes a node by its answer, and adds the states of its replicas.
func (s *Status) nodeStatus(n *Node, answer *statusAnswer, silent error, states replicaStates) NodeStatus {
	if answer == nil {
		if e, ok := errors.AsType[*url.Error](silent); ok { // it would repeat the address
			silent = e.Err
		}
		s.addFault("node %s does not answer at %s: %v", n.Name, n.Address, silent)
		return NodeStatus{Node: *n}
	}
	if answer.Twin != "" {
		s.addFault("node %s at %s: another process, at %s, has the same name: give each node its own name",
			n.Name, n.Address, answer.Twin)
	}
	states[n.Name] = map[replicaKey]replica.State{}
	for _, r := range answer.Replicas {
		states[n.Name][replicaKey{shardKey{r.ID, r.Shard}, r.Generation}] = r.State
	}
	return NodeStatus{*n, true, len(answer.Replicas)}
}

// noteVersions adds a note if nodes run different versions.
func (s *Status) noteVersions() {
	nodes := map[string][]string{} // by version
	for _, n := range s.Nodes {
		nodes[n.Version] = append(nodes[n.Version], n.Name)
	}
	if len(nodes) < 2 {
		return
	}
	var versions []string
	for _, version := range slices.Sorted(maps.Keys(nodes)) {
		names := nodes[version]
		if len(names) > 3 {
			names = append(names[:3:3], "…")
		}
		versions = append(versions, fmt.Sprintf("%s on %s", version, strings.Join(names, ", ")))
	}
	s.Notes = append(s.Notes, fmt.Sprintf("nodes run different versions and may not understand each other: %s",
		strings.Join(versions, "; ")))
}

// noteFewNodes adds notes about collections with fewer replicas than configured, because there are fewer nodes.
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
	// One note is enough if all collections lack replicas and want the same number of them.
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

// addFault adds a fault.
func (s *Status) addFault(format string, a ...any) {
	s.Faults = append(s.Faults, fmt.Sprintf(format, a...))
}

// collectionStatus describes a collection, and adds its faults to s.
func (c *Cluster) collectionStatus(s *Status, m *Map, states replicaStates) CollectionStatus {
	out := CollectionStatus{
		Name:     m.Name,
		Stage:    collection.StageEmpty,
		Replicas: m.Replicas,
		Work:     m.currentWork(),
		Shards:   []ShardStatus{},
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

// shardStatus describes a shard, and adds its faults to s. bytes is the size of its largest replica.
func (s *Status) shardStatus(m *Map, shard int, holders []*Node, states replicaStates) (sh ShardStatus, bytes int64) {
	k := replicaKey{shardKey: shardKey{m.ID, shard}}
	if m.Current != nil {
		k.generation = m.Current.Number
	}
	usable := m.Current == nil || len(holders) == 0 // without documents or nodes, no replica can be ready
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
			r.State, usable = "closed", true // the first request will open it
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

// currentWork names the running work on a collection. "" means none.
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

// Layout implements [collection.Distributed].
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
