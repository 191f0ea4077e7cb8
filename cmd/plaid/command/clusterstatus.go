package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/storage/objects"
)

var errNotWell = errors.New("not all is well")

func (a *app) clusterStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether all is well, the indexes and the nodes",
		Long: `
Show whether all is well, and if not, what is wrong; then the indexes of the store, the largest
first, and its nodes. --json has all of them, and each shard. The exit code is 0 if all is well,
and 1 if not. Fewer nodes than an index is to have replicas are no fault: a note says so.`,
		Example: `  plaid cluster status --store s3://bucket/plaid`,
		Args:    takes(),
	}
	return a.ofCluster(cmd, &cluster.Config{}, func(ctx context.Context, all *cluster.Cluster, _ objects.Store, _ []string) error {
		s := all.Status(ctx)
		err := a.report(s, func(b *bytes.Buffer) { clusterText(b, s) })
		if err == nil && len(s.Faults) > 0 {
			err = fmt.Errorf("%s: %w", s.Place, errNotWell)
		}
		return err
	})
}

// mostLines is how many lines a table, or the list of faults, has at most: all are one screen.
const mostLines = 15

// clusterText shows a status.
func clusterText(b *bytes.Buffer, s *cluster.Status) {
	if len(s.Faults) == 0 {
		fmt.Fprintf(b, "all is well on %s\n", out.Plural(len(s.Nodes), "node"))
	} else {
		b.WriteString("not all is well:\n")
	}
	more := func(n int, one string, many ...string) {
		if n > mostLines {
			fmt.Fprintf(b, "  … and %s, which --json shows\n", out.Plural(n-mostLines, one, many...))
		}
	}
	for _, fault := range s.Faults[:min(len(s.Faults), mostLines)] {
		fmt.Fprintf(b, "  %s\n", fault)
	}
	more(len(s.Faults), "more fault")
	for _, note := range s.Notes[:min(len(s.Notes), mostLines)] {
		fmt.Fprintf(b, "  %s\n", note)
	}
	more(len(s.Notes), "more note")

	if len(s.Collections) > 0 {
		b.WriteByte('\n')
		t := out.Table{Indent: 2, Left: 2}
		t.Line("INDEX", "STATE", "DOCUMENTS", "SHARDS", "REPLICAS", "BYTES")
		largest := slices.SortedStableFunc(slices.Values(s.Collections), func(x, y cluster.CollectionStatus) int { return cmp.Compare(y.Bytes, x.Bytes) })
		for _, c := range largest[:min(len(largest), mostLines)] {
			state := cmp.Or(c.Work, string(c.Stage))
			if c.Fault != "" {
				state = "not touched"
			}
			late, unknown := 0, c.Fault != ""
			for _, shard := range c.Shards {
				unknown = unknown || c.Generation > 0 && !slices.ContainsFunc(shard.Replicas, func(r cluster.ReplicaStatus) bool { return r.State == "ready" })
				for _, r := range shard.Replicas {
					if c.Generation > 0 && (r.State != "ready" || r.Behind > 0) {
						late++
					}
				}
			}
			if late > 0 {
				state += fmt.Sprintf("; %s not ready or behind", out.Plural(late, "replica"))
			}
			documents, size := out.Count(c.Documents), out.Bytes(c.Bytes)
			if unknown {
				documents, size = "?", "?"
			}
			t.Line(c.Name, state, documents, out.Count(len(c.Shards)), out.Count(c.Replicas), size)
		}
		t.Print(b)
		more(len(largest), "more index", "more indexes")
	}
	if len(s.Nodes) > 0 {
		b.WriteByte('\n')
		t := out.Table{Indent: 2, Left: 4}
		t.Line("NODE", "STATE", "ADDRESS", "ZONE", "REPLICAS")
		for _, n := range s.Nodes[:min(len(s.Nodes), mostLines)] {
			state := "answers"
			if !n.Answers {
				state = "silent"
			}
			t.Line(n.Name, state, n.Address, n.Zone, out.Count(n.Replicas))
		}
		t.Print(b)
		more(len(s.Nodes), "more node")
	}
}
