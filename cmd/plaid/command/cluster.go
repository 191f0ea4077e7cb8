package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
	"github.com/plaid-ir/plaid/vectors"
)

// EnvStore is the environment variable with the address of the object store that plaid cluster
// uses.
const EnvStore = "PLAID_STORE"

func (a *app) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster COMMAND",
		Short: "Manage indexes in an object store",
		Long: `
Manage the indexes of services that share an object store (plaid serve --store). These
services are its nodes, and the store has all of their data. An index consists of shards,
and several nodes search each of them; any node answers any request (docs/cluster.md).

Indexes can also be created, changed, searched and removed over HTTP, as with one service.
--store, or else ` + EnvStore + `, is the address of the store.`,
		Example: `  plaid serve --store /mnt/plaid --listen :8080
  plaid cluster status --store /mnt/plaid
  plaid cluster create wiki --shards 16 --store /mnt/plaid`,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // a misspelt command is the error to report
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return errors.New("no command is given")
		},
	}
	cmd.AddCommand(a.clusterStatusCommand(), a.clusterCreateCommand(), a.clusterBuildCommand(),
		a.clusterRebalanceCommand(), a.clusterVerifyCommand(), a.clusterRemoveCommand())
	return cmd
}

// openedStore is an opened object store: its collections, the store itself, and the arguments of
// the command.
type openedStore struct {
	*cluster.Cluster
	store objects.Store
	args  []string
}

// storeCommand completes a command for the collections of a store: it adds the flags, opens the
// store as c says, and calls run.
func (a *app) storeCommand(cmd *cobra.Command, c *cluster.Config,
	run func(context.Context, openedStore) error) *cobra.Command {
	f := cmd.Flags()
	f.String("store", "", daemon.StoreUsage+" (default: "+EnvStore+")")
	if f.Lookup("json") == nil {
		f.Bool("json", false, "print the report as JSON")
	}
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		store := storeAddress(cmd)
		if store == "" {
			return flags.Usagef("--store is missing, and %s is not set", EnvStore)
		}
		return a.withStore(ctx, store, *c, func(collections *cluster.Cluster, s objects.Store) error {
			return run(ctx, openedStore{collections, s, args})
		})
	})
	return cmd
}

// storeAddress returns the store that a command line names, or "" if it names none.
func storeAddress(cmd *cobra.Command) string {
	f := cmd.Flags().Lookup("store")
	switch {
	case f == nil || cmd.Name() == "serve":
		return ""
	case cmd.Parent().Name() == "cluster":
		return cmp.Or(f.Value.String(), os.Getenv(EnvStore))
	}
	return f.Value.String()
}

func (a *app) clusterCreateCommand() *cobra.Command {
	var o cluster.Config
	var c collection.Config
	var maxDocuments int
	cmd := &cobra.Command{
		Use:   "create INDEX",
		Short: "Create an index without documents in a store",
		Long: `
Create an index without documents. The id of a document determines its shard, and the number of
shards never changes. --replicas nodes search each shard, in different zones if there are any;
nodes take over shards from each other when they come and go.

With --max-documents the oldest documents are deleted when there are more: each shard keeps its
share.`,
		Example: `  plaid cluster create wiki --shards 16 --replicas 2 --store s3://bucket/plaid`,
		Args:    namedArgs("INDEX"),
	}
	f := cmd.Flags()
	f.Var(flags.Int(&o.Shards, 1, 1), "shards", "number of shards")
	f.Var(flags.Int(&o.Replicas, 2, 1), "replicas", "how many nodes search each shard")
	f.Var(flags.Nbits(&c.Nbits), "nbits", "residual bits a component")
	c.Nbits, f.Lookup("nbits").DefValue = 4, "4"
	f.Var(flags.Int(&maxDocuments, 0, 0), "max-documents", "number of documents to keep, the newest ones (0: all)")
	f.Var(flags.Choice(&c.Tokenizer, collection.TokenizerUnicode, collection.TokenizerUnicode,
		collection.TokenizerTrigram), "tokenizer", "find words, or any part of a text of three characters or more")
	return a.storeCommand(cmd, &o, func(ctx context.Context, opened openedStore) error {
		if maxDocuments > 0 {
			n := uint64(maxDocuments)
			c.MaxDocuments = &n
		}
		created, err := opened.Create(ctx, opened.args[0], c)
		if err != nil {
			return err
		}
		return a.report(struct {
			Name     string            `json:"name"`
			Shards   int               `json:"shards"`
			Replicas int               `json:"replicas"`
			Config   collection.Config `json:"config"`
		}{created.Name(), o.Shards, o.Replicas, created.Config()}, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "created %s with %s, each on %s\n", created.Name(), out.Plural(o.Shards, "shard"),
				out.Plural(o.Replicas, "node"))
		})
	})
}

func (a *app) clusterBuildCommand() *cobra.Command {
	var b buildFlags
	var scratch string
	cmd := &cobra.Command{
		Use:   "build INDEX {--text FILE --model MODEL | --vectors FILE [--lengths FILE] [--ids FILE]}",
		Short: "Build an index of a store from texts or token vectors",
		Long: `
Replace all documents of an index in a store: this machine trains one codec, compresses the
documents as plaid index does, and writes one file for each shard to the store. Searches find the
old documents until all shards are written. Changes that are made meanwhile are applied to the new
documents.

` + textsRead + ` Titles and texts are stored as metadata; --drop-text leaves them out.

The files take twice their size in --scratch until they are in the store. The vectors of texts are
kept there in INDEX.spool: repeat the command to resume an interrupted run. --resume resumes a
build from vectors.`,
		Example: `  plaid cluster build wiki --text corpus.jsonl --model lightonai/LateOn --store /mnt/plaid
  plaid cluster build wiki --vectors docs.npy --lengths doclens.npy --ids ids.txt --store /mnt/plaid`,
		Args: namedArgs("INDEX"),
	}
	f := cmd.Flags()
	b.register(f)
	b.input.registerStored(f)
	f.StringVar(&scratch, "scratch", "", "`DIR` for files before they are in the store; it is created if necessary "+
		"(default: that of temporary files, and the current one for the spool)")
	f.BoolVar(&b.options.Resume, "resume", false,
		"continue an interrupted build from the same files in the same --scratch")
	for _, name := range []string{"nbits", "seed"} {
		f.Lookup(name).Usage += " (default: as for the index)"
		f.Lookup(name).DefValue = ""
	}
	return a.storeCommand(cmd, &cluster.Config{}, func(ctx context.Context, opened openedStore) error {
		name := opened.args[0]
		storeIndex, err := findStoreIndex(opened.Cluster, name)
		if err != nil {
			return fmt.Errorf("%w (plaid cluster create makes one)", err)
		}
		if err := b.finishOptions(a, f); err != nil {
			return err
		}
		if b.options.Resume && scratch == "" {
			return flags.Usagef("--resume needs --scratch, the folder of the interrupted build")
		}
		if scratch != "" {
			if err := os.MkdirAll(scratch, 0o777); err != nil {
				return err
			}
		}
		c := storeIndex.Config()
		if !f.Changed("nbits") {
			if b.options.Nbits = c.Nbits; c.Binary {
				b.options.Nbits = 1
			}
		}
		if !f.Changed("seed") && c.Seed != nil {
			b.options.Seed = *c.Seed
		}
		b.options.Force = true // replace the files of an earlier build
		use := func(src vectors.Source, texts *textsReport, o index.BuildOptions) error {
			build := cluster.BuildOptions{Train: o, Dir: scratch, Logger: a.logger()}
			if show := a.progress(); show != nil {
				build.Progress = func(done, total int) {
					show(index.Progress{
						Stage: "store",
						Done:  int64(done),
						Total: int64(total),
						Unit:  "shards",
					})
				}
			}
			r, err := cluster.Build(ctx, opened.store, name, build, src)
			if err != nil {
				return err
			}
			return a.reportClusterBuild(name, r, src.Dim(), texts, &o)
		}
		return a.openAndBuild(ctx, filepath.Join(scratch, name), &b, func(*index.BuildOptions) error { return nil },
			use)
	})
}

// reportClusterBuild reports what plaid cluster build did.
func (a *app) reportClusterBuild(name string, r *index.BuildReport, dim int, texts *textsReport,
	o *index.BuildOptions) error {
	return a.report(struct {
		Name      string         `json:"name"`
		Docs      int            `json:"docs"`
		Passages  int            `json:"passages"`
		EmptyDocs int            `json:"empty_docs"`
		Tokens    int64          `json:"tokens"`
		Dim       int            `json:"dim"`
		Nbits     int            `json:"nbits"`
		Centroids int            `json:"centroids"`
		RMSE      float64        `json:"rmse"`
		Encoded   *textsReport   `json:"encoded,omitempty"`
		Model     *storage.Model `json:"model,omitempty"`
	}{
		name, r.Docs, r.Passages, r.Empty, r.Tokens, dim, o.Nbits, r.Train.K, r.RMSE, texts, o.Model,
	}, func(text *bytes.Buffer) {
		if texts != nil {
			texts.writeLine(text)
		}
		fmt.Fprintf(text, "%s: %s (%d empty), %s of dimension %d at %s\n", name, out.Documents(r.Docs, r.Passages),
			r.Empty, out.Plural(r.Tokens, "token"), dim, out.Plural(o.Nbits, "bit"))
	})
}

func (a *app) clusterRebalanceCommand() *cobra.Command {
	var replicas int
	cmd := &cobra.Command{
		Use:   "rebalance INDEX --replicas N",
		Short: "Change how many nodes search each shard of an index",
		Long: `
Change how many nodes search each shard. Shards are assigned to nodes without a command: new nodes
take over shards, and other nodes take over the shards of nodes that have gone.`,
		Example: `  plaid cluster rebalance wiki --replicas 3 --store /mnt/plaid`,
		Args:    namedArgs("INDEX"),
	}
	cmd.Flags().Var(flags.Int(&replicas, 0, 1), "replicas", "how many nodes search each shard")
	return a.storeCommand(cmd, &cluster.Config{}, func(ctx context.Context, opened openedStore) error {
		switch {
		case replicas == 0:
			return flags.Usagef("--replicas is missing")
		case replicas > cluster.MaxReplicas:
			return flags.Usagef("--replicas is %d; at most %d are possible", replicas, cluster.MaxReplicas)
		}
		if _, err := findStoreIndex(opened.Cluster, opened.args[0]); err != nil {
			return err
		}
		if err := opened.SetReplicas(ctx, opened.args[0], replicas); err != nil {
			return err
		}
		return a.report(struct {
			Name     string `json:"name"`
			Replicas int    `json:"replicas"`
		}{opened.args[0], replicas}, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "each shard of %s is now searched by %s\n", opened.args[0], out.Plural(replicas, "node"))
		})
	})
}

func (a *app) clusterVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [INDEX]",
		Short: "Check every byte that a store has of its indexes",
		Long: `
Check every byte that a store has of one index, or of all: its logs, which must be complete, and
its files. Nodes need not run. Objects that belong to no index, such as those of an interrupted
training, are listed; they do no harm.`,
		Example: `  plaid cluster verify wiki --store s3://bucket/plaid`,
		Args:    namedArgs("[INDEX]"),
	}
	return a.storeCommand(cmd, &cluster.Config{}, func(ctx context.Context, opened openedStore) error {
		var o cluster.VerifyOptions
		subject := opened.Location()
		if len(opened.args) > 0 {
			if _, err := findStoreIndex(opened.Cluster, opened.args[0]); err != nil {
				return err
			}
			o.Name, subject = opened.args[0], opened.args[0]
		}
		r, err := cluster.Verify(ctx, opened.store, o)
		if err != nil {
			return err
		}
		if n := len(r.Faults); n > 0 {
			err = fmt.Errorf("%s: %w: %s", subject, storage.ErrCorrupt, out.Plural(n, "fault"))
		}
		return errors.Join(a.report(r, func(b *bytes.Buffer) {
			if len(r.Faults) == 0 {
				fmt.Fprintf(b, "%s: sound: ", subject)
			}
			fmt.Fprintf(b, "%s, %s, %s\n", out.Plural(r.Collections, "index", "indexes"),
				out.Plural(r.Objects, "object"), out.Bytes(r.Bytes))
			for _, fault := range r.Faults {
				fmt.Fprintln(b, fault)
			}
			for _, object := range r.Unclaimed {
				fmt.Fprintf(b, "unclaimed: %s\n", object)
			}
		}), err)
	})
}

func (a *app) clusterRemoveCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "remove INDEX",
		Short: "Remove an index of a store, with all its documents",
		Long: `
Remove an index with all its documents. On a terminal you are asked first; elsewhere --yes is
needed. Nodes delete its objects within two hours. The name can be used again at once.`,
		Example: `  plaid cluster remove wiki --yes --store s3://bucket/plaid`,
		Args:    namedArgs("INDEX"),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return a.storeCommand(cmd, &cluster.Config{}, func(ctx context.Context, opened openedStore) error {
		name := opened.args[0]
		if _, err := findStoreIndex(opened.Cluster, name); err != nil {
			return err
		}
		switch {
		case yes:
		case !a.interactive:
			return flags.Usagef("%s would be removed with all its documents: --yes confirms that", name)
		default:
			question := fmt.Sprintf("This removes %s of %s with all its documents.", name, opened.Location())
			if err := a.confirm(ctx, question); err != nil {
				return err
			}
		}
		existed, err := opened.Remove(ctx, name)
		if err != nil {
			return err
		}
		if !existed { // another process has removed it
			return fmt.Errorf("%w: %s", collection.ErrUnknown, name)
		}
		return a.report(struct {
			Name string `json:"name"`
		}{name}, func(b *bytes.Buffer) { fmt.Fprintf(b, "removed %s\n", name) })
	})
}
