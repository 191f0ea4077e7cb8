// Package topology says what a collection of a cluster consists of and where it is:
// the [Map]. A map is never edited in place: a change makes the next version of it,
// which is written to the object store and then shown to everybody; see [Store].
package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Slots is how many classes the ids of documents fall into. A shard has a run of them.
const Slots = 4096

// MaxReplicas bounds the replicas of a shard.
const MaxReplicas = 16

var (
	// ErrMap: a map that contradicts itself, or is of another format.
	ErrMap = errors.New("bad map")
	// ErrNoCollection: no map has the name.
	ErrNoCollection = errors.New("no such collection")
	// ErrExists: a collection with the name is there already.
	ErrExists = errors.New("the collection is there already")
)

// Map describes a collection.
type Map struct {
	Format     int    `json:"format"` // 1
	Collection string `json:"collection"`
	// Incarnation tells the collection from others that had or will have its name; see
	// [Map.ID].
	Incarnation string `json:"incarnation,omitempty"`
	// Removed: the collection is no more, and the map keeps its place until the name is used
	// again. Former are the identities of those that had the name before, the last one first.
	Removed bool     `json:"removed,omitempty"`
	Former  []string `json:"former,omitempty"`
	// Settings are of whoever made the collection, and mean nothing here.
	Settings json.RawMessage `json:"settings,omitempty"`
	// Version counts the changes of the map, from 1.
	Version uint64 `json:"version"`
	// Replicas is how many nodes are to have each shard, Acks how many must have a change in
	// their files, durable, before it counts as made.
	Replicas int `json:"replicas"`
	Acks     int `json:"acks"`
	// First slot of each shard; a shard has the slots up to the first of the next.
	First []int `json:"first_slots"`
	// Members are the nodes that shards may be given to.
	Members []Member `json:"members"`
	// Assigned has the names of the nodes of each shard.
	Assigned [][]string `json:"assigned"`
	// Current is what is searched; nil: nothing yet. Next is what is built to take its
	// place. Their numbers only grow, and Last is the largest that was given out.
	Current *Generation `json:"current,omitempty"`
	Next    *Generation `json:"next,omitempty"`
	Last    uint64      `json:"last_generation"`
	// Reserved are generations that are being made and are not in the map yet: as long as
	// there are any, no log is cut off, since they begin with entries that are there now.
	Reserved []Reservation `json:"reserved,omitempty"`
}

// ReservedFor is how long a reservation counts: one that is older was left by a process
// that has died.
const ReservedFor = 7 * 24 * time.Hour

// Reservation is the number of a generation that somebody makes.
type Reservation struct {
	Number uint64    `json:"number"`
	Since  time.Time `json:"since"`
}

// Reserve takes the next number of a generation; see [Map.Reserved].
func (m *Map) Reserve(now time.Time) (number uint64) {
	m.Last++
	m.Reserved = append(m.Holding(now), Reservation{m.Last, now.UTC().Truncate(time.Second)})
	return m.Last
}

// Holding are the reservations that count.
func (m *Map) Holding(now time.Time) []Reservation {
	return slices.DeleteFunc(slices.Clone(m.Reserved), func(r Reservation) bool { return now.Sub(r.Since) > ReservedFor })
}

// Holds tells whether a number is reserved.
func (m *Map) Holds(number uint64) bool {
	return slices.ContainsFunc(m.Reserved, func(r Reservation) bool { return r.Number == number })
}

// Release gives up the reservation of a number.
func (m *Map) Release(number uint64) {
	m.Reserved = slices.DeleteFunc(m.Reserved, func(r Reservation) bool { return r.Number == number })
}

// Enter makes a generation, which was reserved, the next one. What others have reserved
// is given up: there is one next generation.
func (m *Map) Enter(g *Generation) { m.Next, m.Reserved = g, nil }

// Member is a node.
type Member struct {
	Name string `json:"name"`
	// Zone is what may fail as a whole: replicas are spread over zones.
	Zone string `json:"zone,omitempty"`
}

// Generation is one codec and what is encoded with it.
type Generation struct {
	Number uint64         `json:"number"`
	Codec  objects.Ref    `json:"codec"`
	Dim    int            `json:"dim"`
	Model  *storage.Model `json:"model,omitempty"`
	Pool   int            `json:"pool,omitempty"` // tokens of a document that one vector stands for; 0: each has its own
	// Start has, for each shard, how much of its log there was when the input was read: the
	// file of a fresh build stands for that much.
	Start []uint64 `json:"log_start"`
	// Inputs are the documents of the shards while they are built; an empty reference: none.
	Inputs []objects.Ref `json:"inputs,omitempty"`
	// Shards are their files; an empty reference: it is not built.
	Shards []Shard `json:"shards"`
}

// Shard is the file that a replica begins with. It goes on from there by the log.
type Shard struct {
	Object objects.Ref `json:"object,omitzero"`
	// Digest is that of the index in it, Applied the last entry of the log that is in it.
	Digest    string `json:"digest,omitempty"`
	Documents uint64 `json:"documents"`
	Tokens    uint64 `json:"tokens"`
	Applied   uint64 `json:"applied"`
}

// Built tells whether every shard has its file.
func (g *Generation) Built() bool {
	return g != nil && !slices.ContainsFunc(g.Shards, func(s Shard) bool { return s.Object.Name == "" })
}

// Bare tells whether the generation is a codec and no documents: the file of each shard
// is that of the codec.
func (g *Generation) Bare() bool {
	return !slices.ContainsFunc(g.Shards, func(s Shard) bool { return s.Object != g.Codec })
}

// Shards is how many there are.
func (m *Map) Shards() int { return len(m.First) }

// New returns the map of a collection without documents.
func New(collection string, shards, replicas, acks int, members []Member) (*Map, error) {
	m := &Map{Format: 1, Collection: collection, Version: 1, Replicas: replicas, Acks: acks, Members: members}
	for s := range max(shards, 0) {
		m.First = append(m.First, s*Slots/shards)
	}
	m.Assign()
	return m, m.Check()
}

// Slot is the class of an id.
func Slot(id string) int { return index.Place(id, Slots) }

// mixed spreads the bits of a hash (the finalizer of splitmix64).
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Whole is the id of the document that the id of a passage names; another id gives itself. That
// a document has the id of a passage does not make it one, and changes no more than its place.
func Whole(id string) string {
	for {
		of, number := vectors.SplitPassageID(id)
		if number < 0 || of == "" {
			return id
		}
		id = of
	}
}

// ShardOf is the shard that a document belongs to. Passages lie in that of their document.
func (m *Map) ShardOf(id string) int {
	n, found := slices.BinarySearch(m.First, Slot(Whole(id)))
	if !found {
		n--
	}
	return n
}

// Share is the part of all slots that is in some shards.
func (m *Map) Share(shards []int) float64 {
	n := 0
	for _, s := range shards {
		end := Slots
		if s+1 < len(m.First) {
			end = m.First[s+1]
		}
		n += end - m.First[s]
	}
	return float64(n) / Slots
}

// Generation returns that of a number, current or next; nil if it is neither.
func (m *Map) Generation(number uint64) *Generation {
	for _, g := range []*Generation{m.Current, m.Next} {
		if g != nil && g.Number == number {
			return g
		}
	}
	return nil
}

// CheckName refuses names that do not fit subjects and objects: 1 to 64 small
// letters, digits, - and _.
func CheckName(name string) error {
	ok := name != "" && len(name) <= 64
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}
	if !ok {
		return fmt.Errorf("%w: the name %q: 1 to 64 of a-z, 0-9, - and _ are allowed", ErrMap, name)
	}
	return nil
}

// Check tells what is wrong with a map ([ErrMap]).
func (m *Map) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s, version %d: %s", ErrMap, m.Collection, m.Version, fmt.Sprintf(format, args...))
	}
	if err := CheckName(m.Collection); err != nil {
		return err
	}
	n := m.Shards()
	switch {
	case m.Format != 1:
		return bad("format %d", m.Format)
	case m.Version == 0:
		return bad("versions count from 1")
	case n == 0 || n > Slots || m.First[0] != 0 || m.First[n-1] >= Slots:
		return bad("%d shards", n)
	case m.Replicas < 1 || m.Replicas > MaxReplicas || m.Acks < 1 || m.Acks > m.Replicas:
		return bad("%d replicas of which %d acknowledge", m.Replicas, m.Acks)
	case len(m.Assigned) != n:
		return bad("%d of %d shards are assigned", len(m.Assigned), n)
	}
	if err := m.checkIdentity(); err != nil {
		return bad("%v", err)
	}
	for s := 1; s < n; s++ {
		if m.First[s] <= m.First[s-1] {
			return bad("shard %d has no slots", s-1)
		}
	}
	zones := map[string]bool{}
	for _, node := range m.Members {
		if err := CheckName(node.Name); err != nil {
			return bad("member: %v", err)
		}
		if zones[node.Name] {
			return bad("member %s is there twice", node.Name)
		}
		zones[node.Name] = true
	}
	for s, nodes := range m.Assigned {
		for i, node := range nodes {
			if err := CheckName(node); err != nil || slices.Contains(nodes[:i], node) {
				return bad("shard %d is assigned to %q", s, nodes)
			}
		}
	}
	for _, g := range []*Generation{m.Current, m.Next} {
		if err := m.checkGeneration(g); err != nil {
			return bad("%v", err)
		}
	}
	for _, r := range m.Reserved {
		if r.Number == 0 || r.Number > m.Last {
			return bad("generation %d of %d is reserved", r.Number, m.Last)
		}
	}
	if m.Current != nil && m.Next != nil && m.Next.Number <= m.Current.Number {
		return bad("generation %d is to follow %d", m.Next.Number, m.Current.Number)
	}
	return nil
}

func (m *Map) checkGeneration(g *Generation) error {
	switch {
	case g == nil:
		return nil
	case g.Number == 0 || g.Number > m.Last:
		return fmt.Errorf("generation %d of %d", g.Number, m.Last)
	case g.Dim < 1:
		return fmt.Errorf("generation %d: dimension %d", g.Number, g.Dim)
	case len(g.Shards) != m.Shards() || len(g.Start) != m.Shards() || g.Inputs != nil && len(g.Inputs) != m.Shards():
		return fmt.Errorf("generation %d has %d shards", g.Number, len(g.Shards))
	case g == m.Current && !g.Built():
		return fmt.Errorf("generation %d is searched and not built", g.Number)
	}
	refs := []objects.Ref{g.Codec}
	for _, input := range g.Inputs {
		if input.Name != "" {
			refs = append(refs, input)
		}
	}
	for s, shard := range g.Shards {
		if shard.Object.Name == "" {
			continue
		}
		if shard.Applied < g.Start[s] {
			return fmt.Errorf("generation %d: shard %d has applied %d, its log starts after %d", g.Number, s, shard.Applied, g.Start[s])
		}
		refs = append(refs, shard.Object)
	}
	for _, ref := range refs {
		if err := ref.Check(); err != nil {
			return fmt.Errorf("generation %d: %w", g.Number, err)
		}
	}
	return nil
}

// Encode is the map as JSON.
func (m *Map) Encode() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// Decode reads a map and checks it. A field that is not known is an error: whoever
// does not understand a map must not act on it.
func Decode(text []byte) (*Map, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	m := &Map{}
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMap, err)
	}
	if d.More() {
		return nil, fmt.Errorf("%w: something follows it", ErrMap)
	}
	return m, m.Check()
}

// clone is a copy that shares nothing.
func (m *Map) clone() (*Map, error) {
	text, err := m.Encode()
	if err != nil {
		return nil, err
	}
	return Decode(text)
}
