package command

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
)

func (a *app) compactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compact INDEX",
		Short: "Rewrite an index without what was deleted",
		Long: `
Rewrite an index without its deleted documents and with its segments merged into
one, and replace the old file by the new one. Until then, this needs as much free
space as the index takes. Searches give the same results as before.

With --salvage, the index may be damaged, and nothing of it is changed: each live
document that can still be read goes into a new index as it is, with its id and
payload, and what is lost is listed. If one of the two meta pages of the file is
damaged, the commit that the other one shows is taken. The exit status is 3 if
anything is lost or in doubt. It is 5, and nothing is written, if the header, the
codec, or every document is lost, or if it cannot be told any more what was
deleted; --with-deleted then takes the documents in doubt and lists them.`,
		Example: `  plaid compact docs.plaid
  plaid compact damaged.plaid --salvage rescued.plaid`,
		Args: takes("INDEX"),
	}
	cmd.Flags().Bool("json", false, "print the report as JSON")
	rescued := cmd.Flags().String("salvage", "", "write what can be read of a damaged index to a new `FILE`")
	withDeleted := cmd.Flags().Bool("with-deleted", false, "with --salvage: take documents that may have been deleted as well")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		switch {
		case *rescued != "":
			return a.salvage(ctx, args[0], *rescued, *withDeleted)
		case cmd.Flags().Changed("salvage"):
			return flags.Usagef("--salvage names no file")
		case *withDeleted:
			return flags.Usagef("--with-deleted is for --salvage")
		}
		return a.open(ctx, args[0], true, func(ix *index.Index) error {
			before, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			err = ix.Compact(ctx, a.progress())
			if err != nil {
				return err
			}
			after, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			snap, err := ix.Snapshot()
			if err != nil {
				return err
			}
			docs := snap.Len()
			if err := snap.Close(); err != nil {
				return err
			}
			return a.report(struct {
				Path        string `json:"path"`
				Docs        int    `json:"docs"`
				BytesBefore int64  `json:"bytes_before"`
				BytesAfter  int64  `json:"bytes_after"`
			}{args[0], docs, before.Size(), after.Size()}, func(b *bytes.Buffer) {
				fmt.Fprintf(b, "%s: %s, %s before, %s now\n", args[0], out.Plural(docs, "document"), out.Bytes(before.Size()), out.Bytes(after.Size()))
			})
		})
	})
	return cmd
}
