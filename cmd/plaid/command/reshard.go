package command

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
)

func (a *app) reshardCommand() *cobra.Command {
	var o index.CopyOptions
	var shards int
	var by string
	cmd := &cobra.Command{
		Use:   "reshard OUT IN… [--shards N]",
		Short: "Merge indexes into one, or split one",
		Long: `
Merge the documents of several indexes into one, in their order, or, with --shards,
split an index into a folder of several: OUT/shard-000.plaid and so on. Encoded
documents are copied without decoding any vector, and codec, model and stored search
parameters are kept. A folder is searched as one index, and so are its files wherever
they are (docs/scale.md).

The INs must have the same codec, and ids must be unique. An IN may be a folder, which
stands for its files *.plaid. Deleted documents are not copied, and ordinals start at 0.

--by hash assigns documents by the hashes of their ids, as plaid add does with new
documents of a folder. --by range keeps their order, with about the same number of
tokens in each shard; merging these shards restores the same index, with the same
digest.

The folder must not exist, and appears when it is complete. An existing index is
replaced only with --force; until it is complete it counts as unfinished.`,
		Example: `  plaid reshard all.plaid a.plaid b.plaid
  plaid reshard all.plaid shards/
  plaid reshard shards docs.plaid --shards 4`,
		Args: namedArgs("OUT", "IN", "…"),
	}
	f := cmd.Flags()
	f.Var(flags.Int(&shards, 0, 1), "shards", "number of indexes to split into, in a folder")
	f.Var(flags.Choice(&by, "hash", "hash", "range"), "by", "how documents are assigned to --shards")
	f.Var(flags.Size(&o.Memory, index.DefaultMemory), "memory",
		"budget for buffers, such as 512MiB or 2GB; a soft limit")
	f.BoolVar(&o.Force, "force", false, "replace an existing index")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		names := indexNames{shardPaths: args[2:]}
		paths, err := names.indexPaths(args[1])
		switch {
		case err != nil:
			return err
		case shards == 0 && f.Changed("by"):
			return flags.Usagef("--by goes with --shards")
		case shards > 0 && o.Force:
			return flags.Usagef("--force does not go with --shards: an existing folder is not replaced")
		case shards > 0 && len(paths) > 1:
			return flags.Usagef("--shards splits one index, and there are %d: merge them first", len(paths))
		}
		o.LockTimeout, o.Logger, o.Progress = a.lockTimeout, a.logger(), a.progress()
		if shards > 0 {
			return a.openSnapshot(ctx, paths[0], func(snap *index.Snapshot) error {
				return a.splitIndex(ctx, args[0], snap, shards, index.SplitBy(by), &o)
			})
		}
		return a.openSearched(ctx, &names, args[1],
			func(target *searchTarget) error { return a.mergeIndexes(ctx, args[0], target.shards, &o) })
	})
	return cmd
}

// mergeIndexes copies the documents of several indexes into one.
func (a *app) mergeIndexes(ctx context.Context, path string, shards []*index.Snapshot, o *index.CopyOptions) error {
	var sources []index.CopyFrom
	for _, p := range shards {
		sources = append(sources, index.CopyFrom{Snapshot: p})
	}
	r, err := index.Copy(ctx, path, sources, o)
	if err != nil {
		return err
	}
	return a.report(struct {
		*index.CopyReport
		Files int `json:"files"`
	}{r, len(shards)}, func(b *bytes.Buffer) {
		fmt.Fprintf(b, "%s: %s, %s, from %s\n", r.Path, out.Documents(r.Docs, r.Passages),
			out.Plural(int64(r.Tokens), "token"), out.Plural(len(shards), "file"))
	})
}

// splitIndex copies the documents of an index into a folder of several.
func (a *app) splitIndex(ctx context.Context, dir string, snap *index.Snapshot, shards int, by index.SplitBy,
	o *index.CopyOptions) error {
	reports, err := index.Split(ctx, snap, dir, shards, by, o)
	if err != nil {
		return err
	}
	return a.report(struct {
		Path  string             `json:"path"`
		Parts []index.CopyReport `json:"shards"`
	}{dir, reports}, func(b *bytes.Buffer) {
		t := out.Table{LeftColumns: 1}
		t.Line("FILE", "DOCUMENTS", "PASSAGES", "TOKENS")
		for _, p := range reports {
			t.Line(p.Path, out.Count(p.Docs), out.Count(p.Passages), out.Count(p.Tokens))
		}
		t.Print(b)
	})
}
