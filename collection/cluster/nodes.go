package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

// Node is a process that has shards. Its beat is the object nodes/NAME@STARTED. The node replaces the object every
// [Config.Beat], each time with another size: so lists show that it is alive even if the clock of the store stands
// still.
type Node struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Zone    string    `json:"zone,omitempty"`
	Started string    `json:"started"` // random; distinguishes processes with one name
	Version string    `json:"version"`
	Since   time.Time `json:"since"` // when it started, by its clock
}

const (
	nodesPrefix = "nodes/"
	maxBeat     = 1 << 16 // bytes of a beat
	// beatsToDie is the number of missed beats after which a node counts as dead.
	beatsToDie = 4
)

var errNoNode = errors.New("no node runs: start plaid serve --store on a machine")

// object returns the name of the node's beat.
func (n *Node) object() string { return nodesPrefix + n.Name + "@" + n.Started }

// validate refuses names that a node cannot have.
func (n *Node) validate() error {
	for _, part := range []string{n.Name, n.Started} {
		if part == "" || len(part) > 200 || strings.ContainsAny(part, "/@") || objects.CheckName(part) != nil {
			return fmt.Errorf("%w: %q is not a name of a node", objects.ErrName, part)
		}
	}
	return nil
}

// putBeat says that a node is alive. count is the number of the beat, which determines its size.
func putBeat(ctx context.Context, s objects.Store, n *Node, count uint64) (made time.Time, err error) {
	text, err := json.Marshal(n)
	if err != nil {
		return made, err
	}
	return s.Replace(ctx, n.object(), append(text, strings.Repeat(" ", int(count%16))...))
}

// readNode reads the beat of a node.
func readNode(ctx context.Context, s objects.Store, object string) (*Node, error) {
	text, _, err := objects.Read(ctx, s, object, maxBeat)
	if err != nil {
		return nil, err
	}
	n := &Node{}
	if err = json.Unmarshal(text, n); err == nil {
		err = n.validate()
	}
	if err == nil && n.object() != object {
		err = fmt.Errorf("it is the beat of %s", n.object())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object, err)
	}
	return n, nil
}

// reachableNodes drops nodes with a loopback address, which other machines cannot reach, unless all have one. Dropped
// nodes get no shards and ask the others, as a client does.
func reachableNodes(nodes []*Node) []*Node {
	reachable := slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool {
		u, err := url.Parse(n.Address)
		if err != nil {
			return false
		}
		ip, err := netip.ParseAddr(u.Hostname())
		return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	})
	if len(reachable) == 0 {
		return nodes
	}
	return reachable
}

// beatTracker tracks the beats of nodes as this process sees them, by its own monotonic clock. It is used for placing
// shards only, never for deciding who may write (I9: living nodes).
type beatTracker struct {
	ttl      time.Duration        // a node whose beat has not changed for this time counts as dead
	stale    time.Duration        // at the first look, a beat that is this much older than the newest counts as dead
	byObject map[string]*nodeBeat // by the name of the object
}

// nodeBeat is the beat of a node as it was last seen.
type nodeBeat struct {
	node      *Node // nil if it has not been read yet
	size      int64
	made      time.Time
	changedAt time.Time // when this process saw that the object had changed, by its own clock
}

// update compares a list of the beats with the last one. At first all of them count as alive, except those that were
// stale by the clock of the store. read reads the node of a new beat.
func (t *beatTracker) update(now time.Time, listed []objects.Entry, read func(object string) (*Node, error)) error {
	first := t.byObject == nil
	before := t.byObject
	t.byObject = map[string]*nodeBeat{}
	var newest time.Time
	for _, e := range listed {
		if e.Made.After(newest) {
			newest = e.Made
		}
	}
	var errs []error
	for _, e := range listed {
		b := before[e.Name]
		switch {
		case b == nil:
			b = &nodeBeat{changedAt: now}
			if old := newest.Sub(e.Made); first && old > t.stale {
				b.changedAt = now.Add(-old)
			}
		case b.size != e.Size || !b.made.Equal(e.Made):
			b.changedAt = now
		}
		b.size, b.made = e.Size, e.Made
		t.byObject[e.Name] = b
		if b.node == nil && t.isAlive(b, now) {
			var err error
			if b.node, err = read(e.Name); !errors.Is(err, objects.ErrNotFound) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// isAlive reports whether the beat of a node has changed recently.
func (t *beatTracker) isAlive(b *nodeBeat, now time.Time) bool { return now.Sub(b.changedAt) < t.ttl }

// otherProcess returns another living process with the name of a node, or nil.
func (t *beatTracker) otherProcess(n *Node, now time.Time) *Node {
	for _, b := range t.byObject {
		if b.node != nil && b.node.Name == n.Name && b.node.Started != n.Started && t.isAlive(b, now) {
			return b.node
		}
	}
	return nil
}

// livingNodes returns the living nodes by name. If a node was restarted, it returns the newer process.
func (t *beatTracker) livingNodes(now time.Time) []*Node {
	living := []*Node{}
	for _, b := range t.byObject {
		if b.node != nil && t.isAlive(b, now) {
			living = append(living, b.node)
		}
	}
	slices.SortFunc(living, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), b.Since.Compare(a.Since), cmp.Compare(a.Started, b.Started))
	})
	return slices.CompactFunc(living, func(a, b *Node) bool { return a.Name == b.Name })
}
