// Package command is the commands of a cluster: plaid cluster ….
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	plaid "github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
)

// Extension is the commands, for [plaid.Main].
func Extension() plaid.Extension {
	return plaid.Extension{
		Name:  "cluster",
		Title: "Several machines",
		Commands: func(a plaid.App) []*cobra.Command {
			x := &cli{App: a}
			cmd := &cobra.Command{
				Use: "cluster COMMAND", Short: "Several machines as one",
				Long: a.Help(`
Run nodes that share collections too large for one machine, or that must outlive
one, and make, search, change and check those collections. docs/cluster.md explains
all of it.`),
				RunE: func(*cobra.Command, []string) error { return errors.New("no command is given") },
			}
			for _, group := range []struct {
				id, title string
				commands  []*cobra.Command
			}{
				{"nodes", "Nodes:", []*cobra.Command{x.nodeCommand(), x.statusCommand(), x.drainCommand(), x.rebalanceCommand(), x.maintenanceCommand()}},
				{"collections", "Collections:", []*cobra.Command{
					x.createCommand(), x.buildCommand(), x.promoteCommand(), x.discardCommand(), x.describeCommand(), x.removeCommand()}},
				{"documents", "Documents:", []*cobra.Command{x.searchCommand(), x.addCommand(), x.deleteCommand()}},
				{"care", "Care:", []*cobra.Command{x.verifyCommand(), x.checkpointCommand(), x.restoreCommand(), x.rejoinCommand(), x.tidyCommand()}},
			} {
				cmd.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
				for _, c := range group.commands {
					c.GroupID = group.id
				}
				cmd.AddCommand(group.commands...)
			}
			return []*cobra.Command{cmd}
		},
		Serve:   serve,
		Instead: instead(),
		Exit:    exit,
	}
}

// instead are the commands of plaid that are those of a cluster with --cluster.
func instead() (all []plaid.Instead) {
	for _, name := range []string{"search", "add", "delete"} {
		all = append(all, plaid.Instead{
			Command: name, Flag: "cluster", To: []string{"cluster", name}, As: "servers",
			Usage: "`ADDRESSES` of nodes of a cluster, with commas between: as plaid cluster " + name + ", whose flags go with it",
		})
	}
	return all
}

func exit(err error) int {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case is(client.ErrUnacknowledged):
		return plaid.ExitUnknown
	case is(operate.ErrDiffer, objects.ErrDamaged):
		return plaid.ExitCorrupt
	case is(client.ErrPartial):
		return plaid.ExitFailed
	case is(errSomeMissing):
		return plaid.ExitPartial
	case is(errAllMissing, topology.ErrNoCollection, objects.ErrNotFound):
		return plaid.ExitNotFound
	case is(node.ErrConfig, objects.ErrName):
		return plaid.ExitUsage
	}
	return 0
}

type cli struct{ plaid.App }

// place is how a command reaches a cluster.
type place struct {
	servers string
	tls     tlsFlags
	wait    time.Duration
	x       *cli
}

func (x *cli) place(f *pflag.FlagSet, wait time.Duration) *place {
	return x.placeFor(f, wait, "`TIME` after which the command gives up")
}

func (x *cli) placeFor(f *pflag.FlagSet, wait time.Duration, usage string) *place {
	p := &place{x: x}
	f.StringVar(&p.servers, "servers", "nats://127.0.0.1:4222", "`ADDRESSES` of nodes, with commas between")
	p.tls.register(f)
	f.DurationVar(&p.wait, "timeout", wait, usage)
	return p
}

func (p *place) within(ctx context.Context, use func(ctx context.Context, b *bus.Bus) error) error {
	if err := p.check(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, p.wait)
	defer stop()
	reaching, end := context.WithTimeout(ctx, reachWithin)
	defer end()
	conn, b, err := p.connect(ctx, reaching)
	if err != nil {
		return err
	}
	defer conn.Close()
	return use(ctx, b)
}

func (p *place) check() error {
	if p.wait <= 0 {
		return flags.Usagef("--timeout: %v is no time to wait", p.wait)
	}
	return nil
}

// open is within for as long as it takes.
func (p *place) open(ctx context.Context, use func(ctx context.Context, b *bus.Bus) error) error {
	conn, b, err := p.connect(ctx, ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return use(ctx, b)
}

// connect waits for a server as long as within says, and for a quorum, and says so if that
// takes long.
func (p *place) connect(ctx, within context.Context) (*nats.Conn, *bus.Bus, error) {
	t, err := p.tls.config()
	if err != nil {
		return nil, nil, err
	}
	conn, err := reach(within, p.servers, "plaid", t, func() { p.x.Hint(waitingFor, p.servers) })
	if err != nil {
		return nil, nil, err
	}
	b, err := openBus(ctx, conn, func() { p.x.Hint("waiting: %s", noQuorum) })
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, b, nil
}

// operator is a command of an operator, which needs the object store too.
func (x *cli) operator(cmd *cobra.Command, wait time.Duration, use func(ctx context.Context, o *operate.Operator, args []string) error) *cobra.Command {
	return x.operatorAfter(cmd, wait, func(context.Context, *place, []string) error { return nil }, use)
}

// operatorAfter is an operator that does something before its time begins.
func (x *cli) operatorAfter(cmd *cobra.Command, wait time.Duration, before func(ctx context.Context, p *place, args []string) error,
	use func(ctx context.Context, o *operate.Operator, args []string) error) *cobra.Command {
	p := x.place(cmd.Flags(), wait)
	var store string
	cmd.Flags().StringVar(&store, "store", "", "object store: a `FOLDER` or s3://BUCKET/PREFIX")
	cmd.Flags().Bool("json", false, "print the report as JSON")
	cmd.RunE = x.RunE(func(ctx context.Context, args []string) error {
		if err := storeGiven(store); err != nil {
			return err
		}
		if err := before(ctx, p, args); err != nil {
			return err
		}
		return x.operating(ctx, p, store, func(ctx context.Context, o *operate.Operator) error { return use(ctx, o, args) })
	})
	return cmd
}

func storeGiven(store string) error {
	if store == "" {
		return flags.Usagef("--store is missing")
	}
	return nil
}

func (x *cli) operating(ctx context.Context, p *place, store string, use func(context.Context, *operate.Operator) error) error {
	if err := storeGiven(store); err != nil {
		return err
	}
	s, err := objects.Open(store)
	if err != nil {
		return err
	}
	return p.within(ctx, func(ctx context.Context, b *bus.Bus) error {
		o, err := operate.New(ctx, b, s, x.Logger())
		if err != nil {
			return err
		}
		defer o.Close()
		o.Waiting = func(what string) { x.Hint("waiting: %s", what) }
		return use(ctx, o)
	})
}

func (x *cli) said(m *topology.Map, what string, args ...any) error {
	return x.Report(m, func(b *bytes.Buffer) { fmt.Fprintf(b, what+"\n", args...) })
}

func (x *cli) createCommand() *cobra.Command {
	var c operate.CreateOptions
	cmd := &cobra.Command{
		Use: "create COLLECTION", Short: "Make a collection without documents",
		Long: x.Help(`
Make a collection on the nodes that there are. Its documents are spread over the
shards by their ids, once and for all; each shard gets its replicas on different
nodes, in different zones where there are some. A change is acknowledged when so many
replicas have it on their disks. A name may be used again when the collection that had it
was removed; nothing of that is in the new one.`),
		Example: "  plaid cluster create wiki --shards 16 --replicas 2 --store /mnt/plaid",
		Args:    x.Takes("COLLECTION"),
	}
	f := cmd.Flags()
	f.IntVar(&c.Shards, "shards", 1, "how many")
	f.IntVar(&c.Replicas, "replicas", 1, "of each shard")
	f.IntVar(&c.Acks, "acks", 0, "replicas that must have a change (default: more than half)")
	return x.operator(cmd, time.Minute, func(ctx context.Context, o *operate.Operator, args []string) error {
		m, err := o.Create(ctx, args[0], c)
		if err != nil {
			return err
		}
		return x.said(m, "made %s with %s, %d replicas each", args[0], out.Plural(m.Shards(), "shard"), m.Replicas)
	})
}

func (x *cli) drainCommand() *cobra.Command {
	return x.operator(&cobra.Command{
		Use: "drain COLLECTION NODE", Short: "Move the shards of a node to others",
		Long: x.Help("Give the shards of a node to others, and wait until these answer and have all that the\nnode has. The node may then be stopped for good."),
		Args: x.Takes("COLLECTION", "NODE"),
	}, time.Hour, func(ctx context.Context, o *operate.Operator, args []string) error {
		m, err := o.Drain(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return x.said(m, "%s has no shard of %s", args[1], args[0])
	})
}

func (x *cli) rebalanceCommand() *cobra.Command {
	return x.operator(&cobra.Command{
		Use: "rebalance COLLECTION", Short: "Give shards to nodes that have come",
		Long: x.Help("Spread the shards of a collection over the nodes that there are now, moving as few as\nthat takes, and wait until all replicas answer."),
		Args: x.Takes("COLLECTION"),
	}, time.Hour, func(ctx context.Context, o *operate.Operator, args []string) error {
		m, err := o.Rebalance(ctx, args[0])
		if err != nil {
			return err
		}
		return x.said(m, "%s is on %s", args[0], out.Plural(len(m.Members), "node"))
	})
}

func (x *cli) verifyCommand() *cobra.Command {
	return x.operator(&cobra.Command{
		Use: "verify COLLECTION", Short: "Read all replicas and compare them",
		Long: x.Help("Have every node read all of its replicas, and compare the digests of those of one shard\nat the same entry of its log."),
		Args: x.Takes("COLLECTION"),
	}, time.Hour, func(ctx context.Context, o *operate.Operator, args []string) error {
		checks, err := o.Verify(ctx, args[0])
		if checks == nil {
			return err
		}
		return errors.Join(err, x.Report(struct {
			Shards []operate.Check `json:"shards"`
		}{checks}, func(b *bytes.Buffer) {
			t := out.Table{}
			t.Line("SHARD", "NODE", "ENTRY", "DOCUMENTS", "DIGEST")
			for _, c := range checks {
				for _, r := range c.Replicas {
					digest := r.Digest
					if r.Error != "" {
						digest = r.Error
					}
					t.Line(fmt.Sprint(c.Shard), r.Node, fmt.Sprint(r.Applied), fmt.Sprint(r.Documents), digest)
				}
			}
			t.Print(b)
		}))
	})
}

func (x *cli) checkpointCommand() *cobra.Command {
	var trust string
	cmd := &cobra.Command{
		Use: "checkpoint COLLECTION", Short: "Put shards as they are now into the object store",
		Long: x.Help(`
Make objects of the shards as they are now, so that new replicas begin there, and drop
the part of the logs that every replica has. The replicas of a shard are compared first: more
than half of them have to have the same documents. Where they differ and nobody can tell which
are right, --trust names the node whose replicas you take for right; let the others rejoin
then.`),
		Args: x.Takes("COLLECTION"),
	}
	cmd.Flags().StringVar(&trust, "trust", "", "`NODE` whose replicas are right, whatever others have")
	return x.operator(cmd, time.Hour, func(ctx context.Context, o *operate.Operator, args []string) error {
		if trust != "" {
			m, err := o.Trust(ctx, args[0], trust)
			if err != nil {
				return err
			}
			return x.said(m, "what %s has of %s is in the object store", trust, args[0])
		}
		m, err := o.Checkpoint(ctx, args[0])
		if err != nil {
			return err
		}
		return x.said(m, "the shards of %s are in the object store", args[0])
	})
}

func (x *cli) restoreCommand() *cobra.Command {
	return x.operator(&cobra.Command{
		Use: "restore COLLECTION", Short: "Bring back what NATS has lost",
		Long: x.Help(`
Show the newest map of the object store again, and let logs that are gone, or have lost
entries, go on after what the replicas have. Every node that the map gives shards to has to
be there and say what it has; --timeout says for how long they are waited for.`),
		Args: x.Takes("COLLECTION"),
	}, 2*time.Minute, func(ctx context.Context, o *operate.Operator, args []string) error {
		m, err := o.Restore(ctx, args[0])
		if err != nil {
			return err
		}
		return x.said(m, "%s is there again, version %d of its map", args[0], m.Version)
	})
}

func (x *cli) rejoinCommand() *cobra.Command {
	return x.operator(&cobra.Command{
		Use: "rejoin COLLECTION NODE", Short: "Let a node begin again with the objects and logs",
		Long: x.Help(`
Have a node put its files of a collection aside and make them again of the object store and
the logs. That is for a replica that has applied other entries than its log has now, which
plaid cluster status says: the log was lost and has grown again. What the replica alone had
is in the file with .aside at the end of its name.`),
		Args: x.Takes("COLLECTION", "NODE"),
	}, time.Hour, func(ctx context.Context, o *operate.Operator, args []string) error {
		if err := o.Rejoin(ctx, args[0], args[1]); err != nil {
			return err
		}
		return x.Report(struct {
			Collection string `json:"collection"`
			Node       string `json:"node"`
		}{args[0], args[1]}, func(b *bytes.Buffer) { fmt.Fprintf(b, "%s has what the logs of %s have\n", args[1], args[0]) })
	})
}

func (x *cli) tidyCommand() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use: "tidy", Short: "Remove objects that no collection needs",
		Long: x.Help(`
Remove from the object store what no map names: shards of earlier checkpoints and
generations, what interrupted builds and writes have left. What is younger than --older stays,
since somebody may be about to name it. Nodes do the same by themselves (plaid cluster node
--tidy-every).`),
		Args: x.Takes(),
	}
	cmd.Flags().DurationVar(&grace, "older", operate.Grace, "least `AGE` of what is removed")
	return x.operator(cmd, time.Hour, func(ctx context.Context, o *operate.Operator, _ []string) error {
		if grace < time.Hour {
			return flags.Usagef("--older: at least 1h, for what is being written now")
		}
		report, err := o.Tidy(ctx, grace)
		if err != nil {
			return err
		}
		return x.Report(report, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "removed %s, %s", out.Plural(report.Objects, "object"), out.Bytes(report.Bytes))
			if report.Versions > 0 {
				fmt.Fprintf(b, ", %s of maps", out.Plural(report.Versions, "old version"))
			}
			if report.Leftovers > 0 {
				fmt.Fprintf(b, ", and %s of interrupted writes", out.Plural(report.Leftovers, "file"))
			}
			b.WriteByte('\n')
			if n := len(report.Strange); n > 0 {
				fmt.Fprintf(b, "%s of collections that no map knows stay: %s …\n", out.Plural(n, "object"), report.Strange[0])
			}
		})
	})
}
