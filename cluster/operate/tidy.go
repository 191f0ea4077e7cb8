package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/topology"
)

// Grace is how old an object must be at least before it may be taken for left over. Whoever
// makes one enters it in a map within minutes; what takes longer is reserved there.
const Grace = 24 * time.Hour

// TidyReport says what Tidy has removed.
type TidyReport struct {
	Objects   int      `json:"objects"`           // which no map named
	Bytes     int64    `json:"bytes"`             // of them
	Versions  int      `json:"versions"`          // of maps, which others have followed
	Leftovers int      `json:"leftovers"`         // of interrupted writes
	Strange   []string `json:"strange,omitempty"` // objects of no collection, which stay
}

// Tidy removes what no map names and nobody is about to enter in one: shards of earlier
// checkpoints and generations, their codecs and inputs, what an interrupted build has put,
// and what is left of interrupted writes; nothing that is younger than grace (0: [Grace]),
// and nothing of what a generation that is reserved may be made of.
// Of maps the last versions stay. Any number of processes may tidy at a time.
func (o *Operator) Tidy(ctx context.Context, grace time.Duration) (*TidyReport, error) {
	if grace == 0 {
		grace = Grace
	}
	before := time.Now().Add(-grace)
	report := &TidyReport{}
	candidates := map[string][]objects.Entry{} // of a collection's identity
	for _, kind := range []string{"inputs/", "codecs/", "shards/"} {
		entries, err := o.store.List(ctx, kind)
		if err != nil {
			return report, err
		}
		for _, e := range entries {
			id, _, _ := strings.Cut(strings.TrimPrefix(e.Name, kind), "/")
			if e.Made.Before(before) {
				candidates[id] = append(candidates[id], e)
			}
		}
	}
	for id, entries := range candidates {
		// The map is read after the list: what is entered from now on is younger.
		named, err := o.named(ctx, id)
		if errors.Is(err, topology.ErrNoCollection) && !errors.Is(err, topology.ErrRemoved) {
			for _, e := range entries { // a map may have been lost, and come back
				report.Strange = append(report.Strange, e.Name)
			}
			continue
		}
		if err != nil {
			return report, err
		}
		for _, e := range entries {
			if named(e.Name) {
				continue
			}
			if err := o.store.Delete(ctx, e.Name); err != nil {
				return report, err
			}
			report.Objects++
			report.Bytes += e.Size
		}
	}
	var err error
	if report.Versions, err = o.maps.DropOld(ctx, before); err != nil {
		return report, err
	}
	report.Leftovers, err = o.store.RemoveLeftovers(ctx, before)
	return report, err
}

// named tells of the objects of a collection which the newest map names, or may be about
// to name.
func (o *Operator) named(ctx context.Context, id string) (func(object string) bool, error) {
	if err := topology.CheckID(id); err != nil {
		return nil, fmt.Errorf("%w: %w", topology.ErrNoCollection, err)
	}
	m, err := o.maps.Newest(ctx, topology.NameOf(id))
	if err != nil {
		return nil, err
	}
	switch {
	case m.Removes(id):
		return func(string) bool { return false }, nil
	case m.ID() != id:
		return nil, fmt.Errorf("%w: %s", topology.ErrNoCollection, id)
	}
	names := map[string]bool{}
	for _, g := range []*topology.Generation{m.Current, m.Next} {
		if g == nil {
			continue
		}
		names[g.Codec.Name] = true
		for _, input := range g.Inputs {
			names[input.Name] = true
		}
		for _, shard := range g.Shards {
			names[shard.Object.Name] = true
		}
	}
	var reserved []string
	for _, r := range m.Holding(time.Now()) {
		reserved = append(reserved, fmt.Sprintf("codecs/%s/g%d.", id, r.Number), fmt.Sprintf("inputs/%s/g%d/", id, r.Number), fmt.Sprintf("shards/%s/g%d/", id, r.Number))
		if m.Current != nil {
			// It may be made of what is searched, from objects that a checkpoint has replaced
			// since. It is given up when another generation is searched meanwhile.
			reserved = append(reserved, fmt.Sprintf("shards/%s/g%d/", id, m.Current.Number))
		}
	}
	return func(object string) bool {
		if names[object] {
			return true
		}
		for _, prefix := range reserved {
			if strings.HasPrefix(object, prefix) {
				return true
			}
		}
		return false
	}, nil
}
