package command

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/internal/cli/out"
)

// status is what plaid cluster status prints.
type status struct {
	Nodes       []*topology.Lease  `json:"nodes"`
	Collections []collectionStatus `json:"collections"`
}

type collectionStatus struct {
	Collection string `json:"collection"`
	Version    uint64 `json:"version"`
	Generation uint64 `json:"generation"`     // 0: nothing is searched
	Next       uint64 `json:"next,omitempty"` // being built, or built and not promoted
	Built      int    `json:"next_shards_built,omitempty"`
	Shards     int    `json:"shards"`
	Replicas   int    `json:"replicas"`
	Documents  uint64 `json:"documents"`
	// Short are shards with fewer replicas that answer than the map wants; Silent have none.
	Short  []int `json:"short"`
	Silent []int `json:"silent"`
}

func (x *cli) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show nodes, collections and what is amiss",
		Long: x.Help("Show the nodes that were heard of lately, what each has, and the state of the collections."),
		Args: x.Takes(),
	}
	p := x.place(cmd.Flags(), time.Minute)
	cmd.Flags().Bool("json", false, "print it as JSON")
	cmd.RunE = x.RunE(func(ctx context.Context, _ []string) error {
		return p.within(ctx, func(ctx context.Context, b *bus.Bus) error {
			w, err := topology.Watch(ctx, b)
			if err != nil {
				return err
			}
			defer w.Close()
			s := look(w)
			return x.Report(s, s.print)
		})
	})
	return cmd
}

func look(w *topology.Watcher) *status {
	s := &status{Nodes: w.Leases(), Collections: []collectionStatus{}}
	for _, m := range w.Maps() {
		s.Collections = append(s.Collections, collectionOf(w, m))
	}
	return s
}

func collectionOf(w *topology.Watcher, m *topology.Map) collectionStatus {
	c := collectionStatus{Collection: m.Collection, Version: m.Version, Shards: m.Shards(), Replicas: m.Replicas, Short: []int{}, Silent: []int{}}
	if m.Next != nil {
		c.Next = m.Next.Number
		for _, shard := range m.Next.Shards {
			if shard.Object.Name != "" {
				c.Built++
			}
		}
	}
	if m.Current == nil {
		return c
	}
	c.Generation = m.Current.Number
	for i := range m.Shards() {
		ready, documents := 0, m.Current.Shards[i].Documents
		for _, r := range w.Replicas(m.ID(), m.Current.Number, i) {
			if r.Ready {
				ready, documents = ready+1, r.Documents
			}
		}
		c.Documents += documents
		switch {
		case ready == 0:
			c.Silent = append(c.Silent, i)
		case ready < m.Replicas:
			c.Short = append(c.Short, i)
		}
	}
	return c
}

func (s *status) print(b *bytes.Buffer) {
	t := out.Table{}
	t.Line("NODE", "ZONE", "SHARDS", "READY", "STATE")
	for _, l := range s.Nodes {
		ready := 0
		var faults []string
		for _, r := range l.Shards {
			if r.Ready {
				ready++
			}
			for _, f := range []string{r.Fault, r.Log} {
				if f != "" && !slices.Contains(faults, f) {
					faults = append(faults, f)
				}
			}
		}
		state := "ok"
		if l.Draining {
			state = "leaving"
		}
		if faults != nil {
			state = strings.Join(faults, "; ")
		}
		t.Line(l.Node, l.Zone, fmt.Sprint(len(l.Shards)), fmt.Sprint(ready), state)
	}
	t.Print(b)
	for _, c := range s.Collections {
		b.WriteByte('\n')
		c.print(b)
	}
}

func (c *collectionStatus) print(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s: %s in %s, generation %d", c.Collection, out.Plural(int(c.Documents), "document"), out.Plural(c.Shards, "shard"), c.Generation)
	if c.Next > 0 {
		fmt.Fprintf(b, "; generation %d has %d of %d built", c.Next, c.Built, c.Shards)
	}
	b.WriteByte('\n')
	for _, w := range []struct {
		shards []int
		what   string
	}{{c.Silent, "without a replica that answers"}, {c.Short, "with fewer replicas than wanted"}} {
		if len(w.shards) > 0 {
			fmt.Fprintf(b, "  shards %s: %v\n", w.what, w.shards)
		}
	}
}
