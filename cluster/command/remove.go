package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/internal/files"
)

func (x *cli) removeCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "remove COLLECTION", Short: "Remove a collection and all that is in it",
		Long: x.Help(`
Remove a collection for good: its documents on all nodes, its logs, and its objects.
The name has to be typed a second time, or --yes given. Searches and changes that are
under way end with an error; nodes drop their files, those that are away when they come
back. It returns when no node that is there has any. A removal that was interrupted is
finished by another one. The name may be used again at once, for another collection.`),
		Example: "  plaid cluster remove wiki --store /mnt/plaid",
		Args:    x.Takes("COLLECTION"),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for the name a second time")
	ask := func(ctx context.Context, p *place, args []string) error {
		if yes {
			return nil
		}
		return confirm(ctx, cmd, p, args[0])
	}
	return x.operatorAfter(cmd, time.Minute, ask, func(ctx context.Context, o *operate.Operator, args []string) error {
		name := args[0]
		m, existed, err := o.Remove(ctx, name)
		if err == nil {
			err = o.Gone(ctx, m)
		}
		if err != nil {
			return err
		}
		what := "%s is removed"
		if !existed {
			what = "%s was removed before; nothing of it is left"
		}
		return x.said(m, what, name)
	})
}

// confirm has somebody type the name of a collection that is to be removed.
func confirm(ctx context.Context, cmd *cobra.Command, p *place, name string) error {
	err := p.within(ctx, func(ctx context.Context, b *bus.Bus) error {
		w, err := topology.Watch(ctx, b)
		if err != nil {
			return err
		}
		defer w.Close()
		if m, err := w.Map(name); err == nil {
			c := collectionOf(w, m)
			fmt.Fprintf(cmd.ErrOrStderr(), "%s has %s in %s\n", name, out.Plural(int(c.Documents), "document"), out.Plural(c.Shards, "shard"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprint(cmd.ErrOrStderr(), "type its name again to remove it: ")
	line, err := bufio.NewReader(files.ContextReader(ctx, io.LimitReader(cmd.InOrStdin(), 1024))).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if typed := strings.TrimSpace(line); typed != name {
		return flags.Usagef("%q is not %q: nothing is removed (--yes does not ask)", typed, name)
	}
	return nil
}
