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
)

// errNotWell is the error of plaid cluster status if the store has faults.
var errNotWell = errors.New("not all is well")

func (a *app) clusterStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show faults, indexes and nodes of a store",
		Long: `
Show whether all is well, and the faults if not; then the indexes of the store, the largest first,
and its nodes. --json lists all of them, with each shard. The exit code is 0 if all is well, and 1
if not. It is not a fault, but a note, if there are fewer nodes than an index shall have replicas,
or if nodes have different versions.`,
		Example: `  plaid cluster status --store s3://bucket/plaid`,
		Args:    namedArgs(),
	}
	return a.storeCommand(cmd, &cluster.Config{}, func(ctx context.Context, opened openedStore) error {
		s := opened.Status(ctx)
		err := a.report(s, func(b *bytes.Buffer) { clusterStatusText(b, s) })
		if err == nil && len(s.Faults) > 0 {
			err = fmt.Errorf("%s: %w", s.StoreAddress, errNotWell)
		}
		return err
	})
}

// maxLines is the maximum number of lines of a table, or of the list of faults, so that all of them
// fit on one screen.
const maxLines = 15

// clusterStatusText formats a status for reading.
func clusterStatusText(b *bytes.Buffer, s *cluster.Status) {
	if len(s.Faults) == 0 {
		fmt.Fprintf(b, "all is well on %s\n", out.Plural(len(s.Nodes), "node"))
	} else {
		b.WriteString("not all is well:\n")
	}
	for _, fault := range firstLines(s.Faults) {
		fmt.Fprintf(b, "  %s\n", fault)
	}
	moreLines(b, len(s.Faults), "more fault")
	for _, note := range firstLines(s.Notes) {
		fmt.Fprintf(b, "  %s\n", note)
	}
	moreLines(b, len(s.Notes), "more note")

	if len(s.Collections) > 0 {
		b.WriteByte('\n')
		t := out.Table{Indent: 2, LeftColumns: 2}
		t.Line("INDEX", "STATE", "DOCUMENTS", "SHARDS", "REPLICAS", "BYTES")
		largest := slices.SortedStableFunc(slices.Values(s.Collections), func(x, y cluster.CollectionStatus) int {
			return cmp.Compare(y.Bytes, x.Bytes)
		})
		for _, c := range firstLines(largest) {
			state, sizesKnown := collectionState(&c)
			documents, size := out.Count(c.Documents), out.Bytes(c.Bytes)
			if !sizesKnown {
				documents, size = "?", "?"
			}
			t.Line(c.Name, state, documents, out.Count(len(c.Shards)), out.Count(c.Replicas), size)
		}
		t.Print(b)
		moreLines(b, len(largest), "more index", "more indexes")
	}
	if len(s.Nodes) > 0 {
		b.WriteByte('\n')
		t := out.Table{Indent: 2, LeftColumns: 4}
		t.Line("NODE", "STATE", "ADDRESS", "ZONE", "REPLICAS")
		for _, n := range firstLines(s.Nodes) {
			state := "answers"
			if !n.Answers {
				state = "silent"
			}
			t.Line(n.Name, state, n.Address, n.Zone, out.Count(n.Replicas))
		}
		t.Print(b)
		moreLines(b, len(s.Nodes), "more node")
	}
}

// collectionState names the stage of a collection and the work on it. sizesKnown reports whether the
// sizes of all shards are known.
func collectionState(c *cluster.CollectionStatus) (state string, sizesKnown bool) {
	if c.Fault != "" {
		return "not touched", false
	}
	state, sizesKnown = cmp.Or(c.Work, string(c.Stage)), true
	if c.Generation == 0 {
		return state, true
	}
	notReady := 0
	for _, shard := range c.Shards {
		ready := 0
		for _, r := range shard.Replicas {
			if r.State == "ready" {
				ready++
			}
			if r.State != "ready" || r.Behind > 0 {
				notReady++
			}
		}
		sizesKnown = sizesKnown && ready > 0
	}
	if notReady > 0 {
		state += fmt.Sprintf("; %s not ready or behind", out.Plural(notReady, "replica"))
	}
	return state, sizesKnown
}

// firstLines returns the items that are shown.
func firstLines[T any](items []T) []T { return items[:min(len(items), maxLines)] }

// moreLines says how many of n lines are left out, if any.
func moreLines(b *bytes.Buffer, n int, singular string, plural ...string) {
	if n > maxLines {
		fmt.Fprintf(b, "  … and %s, which --json shows\n", out.Plural(n-maxLines, singular, plural...))
	}
}
