package main

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
)

func (a *app) compactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compact INDEX",
		Short: "Rewrite an index without what was deleted",
		Long: withExitStatus(`
Write an index anew, without deleted documents and with its segments merged into
one, and put the new file in the place of the old. Until then as much free space
as the index takes is needed. Searches give the same results as before.`),
		Example: `  plaid compact docs.plaid`,
		Args:    takes("INDEX"),
	}
	cmd.Flags().Bool("json", false, "print the report as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
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
				fmt.Fprintf(b, "%s: %s, %s before, %s now\n", args[0], plural(docs, "document"), formatBytes(before.Size()), formatBytes(after.Size()))
			})
		})
	})
	return cmd
}
