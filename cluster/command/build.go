package command

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/topology"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func (x *cli) buildCommand() *cobra.Command {
	var store, scratch string
	var train index.BuildOptions
	var resume bool
	cmd := &cobra.Command{
		Use: "build COLLECTION --vectors FILE…", Short: "Build the next generation of a collection",
		Long: x.Help(`
Train one codec on a sample of all documents, give each shard its documents, and have
the nodes that build make the files of the shards. Nothing changes for searches: plaid
cluster promote does that. With --resume it continues an interrupted build.`),
		Example: "  plaid cluster build wiki --vectors docs.npy --lengths doclens.npy --ids ids.txt --store /mnt/plaid",
		Args:    x.Takes("COLLECTION"),
	}
	f := cmd.Flags()
	p := x.place(f, 24*time.Hour)
	f.StringVar(&store, "store", "", "object store: a `FOLDER` or s3://BUCKET/PREFIX")
	f.StringVar(&scratch, "scratch", "", "`FOLDER` for what is uploaded (default: that of temporary files)")
	f.BoolVar(&resume, "resume", false, "continue the build that was interrupted")
	f.Bool("json", false, "print the map as JSON")
	f.IntVar(&train.Nbits, "nbits", 2, "bits of a residual component: 1, 2, 4 or 8")
	f.IntVar(&train.Centroids, "centroids", 0, "how many (default: derived from the tokens)")
	f.IntVar(&train.Pool, "pool", 0, "merge about this many similar tokens of a document into one (default: none)")
	f.Uint64Var(&train.Seed, "seed", 0, "of the training")
	options := func() operate.BuildOptions {
		b := operate.BuildOptions{Train: train, Dir: scratch, Progress: x.progress()}
		b.Train.Logger = x.Logger()
		return b
	}
	report := func(m *topology.Map) error {
		g := cmp.Or(m.Next, m.Current) // which others may have promoted already
		docs := uint64(0)
		for _, s := range g.Shards {
			docs += s.Documents
		}
		what := fmt.Sprintf("built generation %d of %s, %s", g.Number, m.Collection, out.Plural(int(docs), "document"))
		if g == m.Next {
			what += fmt.Sprintf("; plaid cluster promote %s lets searches see it", m.Collection)
		}
		return x.said(m, "%s", what)
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
Wait until enough replicas of the generation that was built answer, and let it take the
place of the one that is searched: as many of each shard as acknowledge a change. Others
that are about to answer are waited for, a minute at most. No query sees both generations.`),
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
