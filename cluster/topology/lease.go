package topology

import "time"

// Lease is what a node says of itself, again and again: a node that no longer does is
// forgotten after [bus.Bus.Lease], as those who watch measure it.
type Lease struct {
	Node string `json:"node"`
	Zone string `json:"zone,omitempty"`
	// Started tells one life of a node from the next.
	Started string `json:"started"`
	// Builds: it takes orders from the queue. Draining: it is about to leave.
	Builds   bool   `json:"builds,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	Counts   Counts `json:"counts,omitzero"`
	// Failing are builds that this node has tried last, in vain.
	Failing []FailedBuild `json:"failing_builds,omitempty"`
	// Uncompared are shards whose replicas this node was to compare and could not, the last time.
	Uncompared []Uncompared `json:"uncompared,omitempty"`
	Shards     []Serving    `json:"shards"`
}

// Uncompared is a shard whose replicas were not compared.
type Uncompared struct {
	Collection string `json:"collection"`
	Shard      int    `json:"shard"`
	Why        string `json:"why"`
}

// FailedBuild is a build of a shard that has failed, and is tried again.
type FailedBuild struct {
	Collection string    `json:"collection"` // its identity
	Generation uint64    `json:"generation"`
	Shard      int       `json:"shard"`
	Error      string    `json:"error"`
	Tries      uint64    `json:"tries"`
	Again      time.Time `json:"again"` // when it is tried next, by the clock of the node
}

// Awaited tells whether the collection still waits for the build.
func (f *FailedBuild) Awaited(m *Map) bool {
	g := m.Next
	return m.ID() == f.Collection && g != nil && g.Number == f.Generation && f.Shard < len(g.Shards) && g.Shards[f.Shard].Object.Name == ""
}

// Counts are of what should not happen, since the node was started.
type Counts struct {
	// Panics are faults of the program that have ended a query, an order or a change,
	// Rebuilds replicas that were made again of the object store and the log, Differences
	// replicas that were found to differ from their log or from others.
	Panics      uint64 `json:"panics,omitempty"`
	Rebuilds    uint64 `json:"rebuilds,omitempty"`
	Differences uint64 `json:"differences,omitempty"`
}

// Serving is a replica.
type Serving struct {
	// Collection is the identity of the collection; see [Map.ID].
	Collection string `json:"collection"`
	Generation uint64 `json:"generation"`
	Shard      int    `json:"shard"`
	// Ready: it answers queries. Otherwise Fault says why not, "" if it is being made.
	Ready bool   `json:"ready"`
	Fault string `json:"fault,omitempty"`
	// Applied is the last entry of its log that is in its file.
	Applied   uint64 `json:"applied"`
	Documents uint64 `json:"documents"`
	// Behind is how many entries its log had beyond that when the replica heard of it last.
	Behind uint64 `json:"behind,omitempty"`
	// Log says why the replica follows no log; "": it does. Lost: the log lacks entries that
	// replicas have, so that the shard takes no changes.
	Log  string `json:"log,omitempty"`
	Lost bool   `json:"lost,omitempty"`
}

// States are those of a replica. Only the first is as it should be, and the first two answer.
var States = []string{"ready", "without_log", "catching_up", "failed", "lost"}

// State is one of [States]: ready; without_log, it answers and cannot follow its log;
// catching_up; failed, it does not answer and says why; lost, its log is another one, and
// the shard takes no changes.
func (s *Serving) State() string {
	switch {
	case s.Lost:
		return "lost"
	case s.Ready && s.Log != "":
		return "without_log"
	case s.Ready:
		return "ready"
	case s.Fault != "" || s.Log != "":
		return "failed"
	}
	return "catching_up"
}
