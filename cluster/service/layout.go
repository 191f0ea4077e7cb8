package service

import (
	"slices"

	"github.com/plaid-ir/plaid/collection"
)

var _ collection.Spread = (*Front)(nil)

// Layout implements [collection.Spread], by what the nodes last said of themselves.
func (f *Front) Layout() collection.Layout {
	l := collection.Layout{Nodes: []collection.Node{}, Collections: []collection.Placement{}}
	node := func(name string, heard bool) {
		if !slices.ContainsFunc(l.Nodes, func(n collection.Node) bool { return n.Name == name }) {
			l.Nodes = append(l.Nodes, collection.Node{Name: name, Heard: heard})
		}
	}
	for _, lease := range f.watch.Leases() {
		node(lease.Node, true)
	}
	for _, m := range f.watch.Maps() {
		p := collection.Placement{Name: m.Collection, Replicas: m.Replicas, Shards: []collection.Shard{}}
		for i, names := range m.Assigned {
			s := collection.Shard{Replicas: []collection.Replica{}}
			states := map[string]string{}
			if m.Current != nil {
				p.Generation, s.Documents = m.Current.Number, m.Current.Shards[i].Documents
				for _, r := range f.watch.Replicas(m.ID(), m.Current.Number, i) {
					states[r.Node] = r.State()
					if r.Ready {
						s.Documents = r.Documents
					}
				}
			}
			for _, name := range names {
				node(name, false)
				state := states[name]
				if state == "" {
					state = "silent"
				}
				s.Replicas = append(s.Replicas, collection.Replica{Node: name, State: state})
			}
			p.Shards = append(p.Shards, s)
		}
		l.Collections = append(l.Collections, p)
	}
	return l
}
