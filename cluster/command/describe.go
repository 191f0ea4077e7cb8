package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
)

// description is what plaid cluster describe prints.
type description struct {
	ID  string        `json:"id"`
	Map *topology.Map `json:"map"`
	// Replicas are all that nodes say they have of the collection.
	Replicas []replica `json:"replicas"`
	status   collectionStatus
}

type replica struct {
	Node string `json:"node"`
	Zone string `json:"zone,omitempty"`
	topology.Serving
}

func (x *cli) describeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "describe COLLECTION", Short: "Show a collection and its replicas",
		Long: x.Help("Show the identity of a collection, how it is made, and each of its replicas: where it is,\nhow much of its log it has, and what is amiss."),
		Args: x.Takes("COLLECTION"),
	}
	p := x.place(cmd.Flags(), time.Minute)
	cmd.Flags().Bool("json", false, "print it as JSON")
	cmd.RunE = x.RunE(func(ctx context.Context, args []string) error {
		return p.within(ctx, func(ctx context.Context, b *bus.Bus) error {
			w, err := topology.Watch(ctx, b)
			if err != nil {
				return err
			}
			defer w.Close()
			m, err := w.Map(args[0])
			if err != nil {
				return err
			}
			d := describe(w, m)
			return x.Report(d, d.print)
		})
	})
	return cmd
}

func describe(w *topology.Watcher, m *topology.Map) *description {
	d := &description{ID: m.ID(), Map: m, Replicas: []replica{}, status: collectionOf(w, m)}
	for _, l := range w.Leases() {
		for _, s := range l.Shards {
			if s.Collection == d.ID {
				d.Replicas = append(d.Replicas, replica{l.Node, l.Zone, s})
			}
		}
	}
	slices.SortFunc(d.Replicas, func(a, b replica) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Node, b.Node))
	})
	return d
}

func (d *description) print(b *bytes.Buffer) {
	m := d.Map
	fmt.Fprintf(b, "%s, version %d of its map\n", d.ID, m.Version)
	fmt.Fprintf(b, "%s, of which %d are to acknowledge a change, on %s\n", out.Plural(m.Replicas, "replica"), m.Acks, out.Plural(len(m.Members), "node"))
	d.status.print(b)
	for _, w := range d.status.amiss() {
		fmt.Fprintln(b, w)
	}
	b.WriteByte('\n')
	t := out.Table{}
	t.Line("GENERATION", "SHARD", "NODE", "ZONE", "ENTRY", "DOCUMENTS", "STATE")
	for _, r := range d.Replicas {
		state := cmp.Or(r.Fault, r.Log, "ok")
		if state == "ok" && !r.Ready {
			state = "being made"
		}
		t.Line(fmt.Sprint(r.Generation), fmt.Sprint(r.Shard), r.Node, r.Zone, fmt.Sprint(r.Applied), fmt.Sprint(r.Documents), state)
	}
	t.Print(b)
}
