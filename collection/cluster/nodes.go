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

// Node is a process that has shards. Its beat is the object nodes/NAME@STARTED, which it replaces every
// [Config.Beat] by one of another size: so a list shows that it lives, even if the clock of the store stands still.
type Node struct {
	Name    string    `json:"name"`
	Address string    `json:"address"`
	Zone    string    `json:"zone,omitempty"`
	Started string    `json:"started"` // tells processes of one name apart
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
}

const (
	nodesPrefix = "nodes/"
	maxBeat     = 1 << 16 // bytes
	// beatsToDie is after how many beats that did not come a node counts as dead.
	beatsToDie = 4
)

var errNoNode = errors.New("no node runs: start plaid serve --store on a machine")

func (n *Node) object() string { return nodesPrefix + n.Name + "@" + n.Started }

// validate refuses names that no node may have.
func (n *Node) validate() error {
	for _, part := range []string{n.Name, n.Started} {
		if part == "" || len(part) > 200 || strings.ContainsAny(part, "/@") || objects.CheckName(part) != nil {
			return fmt.Errorf("%w: %q is no name of a node", objects.ErrName, part)
		}
	}
	return nil
}

// putBeat says for the n-th time that a node lives.
func putBeat(ctx context.Context, s objects.Store, n *Node, count uint64) (made time.Time, err error) {
	text, err := json.Marshal(n)
	if err != nil {
		return made, err
	}
	return s.Replace(ctx, n.object(), append(text, strings.Repeat(" ", int(count%16))...))
}

// readNode reads a beat.
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

// reachableNodes leaves out nodes that no other machine reaches, unless all are such: they ask the others, as a
// client does.
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

// beatTracker has the beats of nodes as one observer sees them, by its own monotonic clock. It decides about
// placement alone (I9).
type beatTracker struct {
	ttl      time.Duration
	stale    time.Duration        // a beat that is older than the newest by more than this counts as dead at the first look
	byObject map[string]*nodeBeat // by the name of the object
}

type nodeBeat struct {
	node      *Node // nil: not read yet
	size      int64
	made      time.Time
	changedAt time.Time // when the observer saw that the object had changed
}

// update takes over a list of the beats. All that are listed count as alive at first, but for those
// that were old already by the clock of the store.
func (l *beatTracker) update(now time.Time, listed []objects.Entry, read func(object string) (*Node, error)) error {
	first := l.byObject == nil
	before := l.byObject
	l.byObject = map[string]*nodeBeat{}
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
			if old := newest.Sub(e.Made); first && old > l.stale {
				b.changedAt = now.Add(-old)
			}
		case b.size != e.Size || !b.made.Equal(e.Made):
			b.changedAt = now
		}
		b.size, b.made = e.Size, e.Made
		l.byObject[e.Name] = b
		if b.node == nil && l.isAlive(b, now) {
			var err error
			if b.node, err = read(e.Name); !errors.Is(err, objects.ErrNotFound) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (l *beatTracker) isAlive(b *nodeBeat, now time.Time) bool { return now.Sub(b.changedAt) < l.ttl }

// otherProcess returns another living process of a node's name; nil means that there is none.
func (l *beatTracker) otherProcess(n *Node, now time.Time) *Node {
	for _, b := range l.byObject {
		if b.node != nil && b.node.Name == n.Name && b.node.Started != n.Started && l.isAlive(b, now) {
			return b.node
		}
	}
	return nil
}

// livingNodes are the nodes that live, by name: of one that has started again the newer process.
func (l *beatTracker) livingNodes(now time.Time) []*Node {
	living := []*Node{}
	for _, b := range l.byObject {
		if b.node != nil && l.isAlive(b, now) {
			living = append(living, b.node)
		}
	}
	slices.SortFunc(living, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), b.Since.Compare(a.Since), cmp.Compare(a.Started, b.Started))
	})
	return slices.CompactFunc(living, func(a, b *Node) bool { return a.Name == b.Name })
}
