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

func (a *app) exportCommand() *cobra.Command {
	var format string
	var where flags.Where
	cmd := &cobra.Command{
		Use:   "export INDEX DIR",
		Short: "Write an index as arrays or for another engine",
		Long: `
Write the documents of an index to a folder, which must be empty or not exist.

Format npy writes the files that plaid index reads: docs.npy, the decoded vectors as
float32, doclens.npy, ids.txt and, if there is metadata, metadata.jsonl. Format
fast-plaid writes an index folder that fast-plaid and next-plaid load, and ids.txt
with the ids; it does not decode vectors. With --where, only the documents that meet
the condition are written (docs/conditions.md).`,
		Example: `  plaid export docs.plaid folder
  plaid export docs.plaid folder --format fast-plaid
  plaid export docs.plaid folder --where "year >= 2020"`,
		Args: namedArgs("INDEX", "DIR"),
	}
	f := cmd.Flags()
	f.Var(flags.Choice(&format, "npy", "npy", "fast-plaid"), "format", "what to write")
	where.Register(f, "write no other documents")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		path, dir := args[0], args[1]
		c, err := where.Condition()
		if err != nil {
			return err
		}
		return a.openSnapshot(ctx, path, func(snap *index.Snapshot) error {
			export := snap.Export
			if format == "fast-plaid" {
				export = snap.ExportEngine
			}
			r, err := export(ctx, dir, &index.ExportOptions{Where: c, Progress: a.progress()})
			if err != nil {
				return err
			}
			return a.report(struct {
				Path     string `json:"path"`
				Dir      string `json:"dir"`
				Format   string `json:"format"`
				Docs     int    `json:"docs"`
				Passages int    `json:"passages"`
				Tokens   int64  `json:"tokens"`
			}{path, dir, format, r.Docs, r.Passages, r.Tokens}, func(b *bytes.Buffer) {
				fmt.Fprintf(b, "%s: %s, %s\n", dir, out.Documents(r.Docs, r.Passages), out.Plural(r.Tokens, "token"))
			})
		})
	})
	return cmd
}
