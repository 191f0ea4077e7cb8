// Package command is the commands of a cluster: plaid cluster ….
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/node"
	"github.com/plaid-ir/plaid/cluster/objects"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	plaid "github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
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
			cmd.AddCommand(
				x.nodeCommand(), x.createCommand(), x.buildCommand(), x.promoteCommand(), x.discardCommand(), x.statusCommand(), x.describeCommand(),
				x.searchCommand(), x.addCommand(), x.deleteCommand(), x.drainCommand(), x.rebalanceCommand(), x.verifyCommand(), x.checkpointCommand(), x.restoreCommand(), x.removeCommand(),
			)
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
	case is(topology.ErrNoCollection, objects.ErrNotFound):
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
	p := &place{x: x}
	f.StringVar(&p.servers, "servers", "nats://127.0.0.1:4222", "`ADDRESSES` of nodes, with commas between")
	p.tls.register(f)
	f.DurationVar(&p.wait, "timeout", wait, "`TIME` after which the command gives up")
	return p
}

func (p *place) within(ctx context.Context, use func(ctx context.Context, b *bus.Bus) error) error {
	if p.wait <= 0 {
		return flags.Usagef("--timeout: %v is no time to wait", p.wait)
	}
	t, err := p.tls.config()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, p.wait)
	defer stop()
	conn, err := bus.Connect(p.servers, "plaid", t)
	if err != nil {
		return err
	}
	defer conn.Close()
	b, err := bus.Open(ctx, conn)
	if err != nil {
		return err
	}
	return use(ctx, b)
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

func (x *cli) buildCommand() *cobra.Command {
	var store, scratch string
	var train index.BuildOptions
	var resume bool
	cmd := &cobra.Command{
		Use: "build COLLECTION --vectors FILE…", Short: "Build the next generation of a collection",
		Long: x.Help(`
Train one codec on a sample of all documents, give each shard its documents, and have
the nodes that build make the files of the shards. Nothing changes for searches: plaid
cluster promote does that. With --resume a build that was interrupted goes on.`),
		Example: "  plaid cluster build wiki --vectors docs.npy --lengths doclens.npy --ids ids.txt --store /mnt/plaid",
		Args:    x.Takes("COLLECTION"),
	}
	f := cmd.Flags()
	p := x.place(f, 24*time.Hour)
	f.StringVar(&store, "store", "", "object store: a `FOLDER` or s3://BUCKET/PREFIX")
	f.StringVar(&scratch, "scratch", "", "`FOLDER` for what is uploaded (default: that of temporary files)")
	f.BoolVar(&resume, "resume", false, "go on with the build that was interrupted")
	f.Bool("json", false, "print the map as JSON")
	f.IntVar(&train.Nbits, "nbits", 2, "bits of a residual component: 1, 2, 4 or 8")
	f.IntVar(&train.Centroids, "centroids", 0, "how many (default: derived from the tokens)")
	f.IntVar(&train.Pool, "pool", 0, "replace so many similar tokens of a document by one (default: none)")
	f.Uint64Var(&train.Seed, "seed", 0, "of the training")
	options := func() operate.BuildOptions {
		b := operate.BuildOptions{Train: train, Dir: scratch, Progress: x.progress()}
		b.Train.Backend, b.Train.Logger = x.Backend(), x.Logger()
		return b
	}
	report := func(m *topology.Map) error {
		docs := uint64(0)
		for _, s := range m.Next.Shards {
			docs += s.Documents
		}
		return x.said(m, "built generation %d of %s, %s; plaid cluster promote %s lets searches see it", m.Next.Number, m.Collection, out.Plural(int(docs), "document"), m.Collection)
	}
	x.Vectors(cmd, func(ctx context.Context, name string, src vectors.Source, model *storage.Model) error {
		return x.operating(ctx, p, store, func(ctx context.Context, o *operate.Operator) error {
			b := options()
			b.Train.Model = model
			m, err := o.Build(ctx, name, src, b)
			if err != nil {
				return err
			}
			return report(m)
		})
	})
	fresh := cmd.RunE
	again := x.RunE(func(ctx context.Context, args []string) error {
		return x.operating(ctx, p, store, func(ctx context.Context, o *operate.Operator) error {
			m, err := o.Resume(ctx, args[0], options())
			if err != nil {
				return err
			}
			return report(m)
		})
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if resume {
			return again(cmd, args)
		}
		return fresh(cmd, args)
	}
	return cmd
}

// progress tells of stages in the program's way.
func (x *cli) progress() func(string, int, int) {
	show := x.Progress()
	if show == nil {
		return nil
	}
	return func(stage string, done, total int) {
		unit := "shards"
		if stage == "split" {
			unit = "documents"
		}
		show(index.Progress{Stage: stage, Done: int64(done), Total: int64(total), Unit: unit})
	}
}

func (x *cli) promoteCommand() *cobra.Command {
	return x.operator(&cobra.Command{
		Use: "promote COLLECTION", Short: "Let searches see what was built",
		Long: x.Help(`
Wait until every replica of the generation that was built answers, and let it take the
place of the one that is searched. No query sees both.`),
		Args: x.Takes("COLLECTION"),
	}, time.Hour, func(ctx context.Context, o *operate.Operator, args []string) error {
		m, err := o.Promote(ctx, args[0])
		if err != nil {
			return err
		}
		return x.said(m, "%s is searched in generation %d", args[0], m.Current.Number)
	})
}

func (x *cli) discardCommand() *cobra.Command {
	return x.operator(&cobra.Command{
		Use: "discard COLLECTION", Short: "Give up what was built and not promoted",
		Long: x.Help("Give up the generation that is being built, or was built and not promoted."),
		Args: x.Takes("COLLECTION"),
	}, time.Minute, func(ctx context.Context, o *operate.Operator, args []string) error {
		m, err := o.Discard(ctx, args[0])
		if err != nil {
			return err
		}
		return x.said(m, "%s has no generation that waits", args[0])
	})
}

func (x *cli) drainCommand() *cobra.Command {
	return x.operator(&cobra.Command{
		Use: "drain COLLECTION NODE", Short: "Move the shards of a node to others",
		Long: x.Help("Give the shards of a node to others, and wait until these answer. The node may then be\nstopped for good."),
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
	return x.operator(&cobra.Command{
		Use: "checkpoint COLLECTION", Short: "Put shards as they are now into the object store",
		Long: x.Help("Make objects of the shards as they are now, so that new replicas begin there, and drop\nthe part of the logs that every replica has."),
		Args: x.Takes("COLLECTION"),
	}, time.Hour, func(ctx context.Context, o *operate.Operator, args []string) error {
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
entries, go on after what the replicas have.`),
		Args: x.Takes("COLLECTION"),
	}, time.Hour, func(ctx context.Context, o *operate.Operator, args []string) error {
		m, err := o.Restore(ctx, args[0])
		if err != nil {
			return err
		}
		return x.said(m, "%s is there again, version %d of its map", args[0], m.Version)
	})
}
