package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
)

func (a *app) mergeCommand() *cobra.Command {
	var o index.CopyOptions
	cmd := &cobra.Command{
		Use:   "merge OUT IN…",
		Short: "Make one index of several that have the same codec",
		Long: `
Make an index of all documents of others, in their order, as they are encoded: no
vector is decoded, and the codec stays. The others must have one codec, and no two
documents one id. An IN may be a folder, which stands for its files *.plaid. Deleted
documents stay behind, and ordinals start at 0.

What plaid split --by range took apart is the same index again, to the digest.
An index that is there is replaced only with --force. Who opens OUT before it is
complete is told that it is unfinished.`,
		Example: `  plaid merge all.plaid a.plaid b.plaid
  plaid merge all.plaid shards/`,
		Args: takes("OUT", "IN", "…"),
	}
	f := cmd.Flags()
	f.Var(flags.Size(&o.Memory, index.DefaultMemory), "memory", "budget for buffers, such as 512MiB or 2GB; a soft limit")
	f.BoolVar(&o.Force, "force", false, "replace an index that is there")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		names := indexes{more: args[2:]}
		paths, err := names.paths(args[1])
		if err != nil {
			return err
		}
		return a.openSet(ctx, paths, false, func(set *index.Set) (err error) {
			snap, err := set.Snapshot()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, snap.Close()) }()
			var from []index.CopyFrom
			for _, p := range snap.Parts() {
				from = append(from, index.CopyFrom{Snapshot: p})
			}
			o.Logger, o.Progress = a.logger(), a.progress()
			var r *index.CopyReport
			err = a.locked(ctx, func(wait time.Duration) (err error) {
				o.LockTimeout = wait
				r, err = index.Copy(ctx, args[0], from, &o)
				return err
			})
			if err != nil {
				return err
			}
			return a.report(struct {
				*index.CopyReport
				Files int `json:"files"`
			}{r, len(paths)}, func(b *bytes.Buffer) {
				fmt.Fprintf(b, "%s: %s, %s, of %s\n", r.Path, out.Plural(r.Docs, "document"), out.Plural(int64(r.Tokens), "token"), out.Plural(len(paths), "file"))
			})
		})
	})
	return cmd
}

func (a *app) splitCommand() *cobra.Command {
	var o index.CopyOptions
	var shards int
	var by string
	cmd := &cobra.Command{
		Use:   "split INDEX DIR --shards N",
		Short: "Make several indexes of one, which are searched as one",
		Long: `
Make a folder of indexes, part-000.plaid and so on, of one: documents are copied as
they are encoded, and the codec, the model and stored search parameters come along.
The folder is searched as one index, and so are its files wherever they are
(docs/scale.md). It must not exist, and appears when it is complete.

--by hash puts documents where the hashes of their ids say, as plaid add does with
new ones of a folder. --by range keeps their order, and gives each part about as many
tokens.`,
		Example: `  plaid split docs.plaid shards --shards 4
  plaid search shards 'what makes cells divide?'`,
		Args: takes("INDEX", "DIR"),
	}
	f := cmd.Flags()
	f.Var(flags.Int(&shards, 0, 1), "shards", "number of indexes")
	f.Var(flags.Choice(&by, "hash", "hash", "range"), "by", "which documents are together")
	f.Var(flags.Size(&o.Memory, index.DefaultMemory), "memory", "budget for buffers, such as 512MiB or 2GB; a soft limit")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if shards == 0 {
			return flags.Usagef("--shards is missing")
		}
		return a.openSnapshot(ctx, args[0], func(_ *index.Index, snap *index.Snapshot) error {
			o.Logger, o.Progress = a.logger(), a.progress()
			parts, err := index.Split(ctx, snap, args[1], shards, index.SplitBy(by), &o)
			if err != nil {
				return err
			}
			return a.report(struct {
				Path  string             `json:"path"`
				Parts []index.CopyReport `json:"parts"`
			}{args[1], parts}, func(b *bytes.Buffer) {
				t := out.Table{Left: 1}
				t.Line("FILE", "DOCUMENTS", "TOKENS")
				for _, p := range parts {
					t.Line(p.Path, out.Count(p.Docs), out.Count(p.Tokens))
				}
				t.Print(b)
			})
		})
	})
	return cmd
}
