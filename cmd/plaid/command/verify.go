package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/storage"
)

func (a *app) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify INDEX",
		Short: "Check every byte of an index that is in use",
		Long: `
Check the pages of the file, every checksum, that the postings are those of the
codes, and that ids and documents agree. The first
twenty faults are printed.`,
		Example: `  plaid verify docs.plaid`,
		Args:    takes("INDEX"),
	}
	cmd.Flags().Bool("json", false, "print the result as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		type result struct {
			Path   string   `json:"path"`
			OK     bool     `json:"ok"`
			Docs   int      `json:"docs"`
			Tokens uint64   `json:"tokens"`
			Faults []string `json:"faults"`
		}
		r := result{Path: args[0], Faults: []string{}}
		err := a.openSnapshot(ctx, args[0], func(_ *index.Index, snap *index.Snapshot) error {
			r.Docs, r.Tokens = snap.Len(), snap.State().LiveTokens
			return snap.Verify(ctx)
		})
		r.OK = err == nil
		if !r.OK && (!errors.Is(err, storage.ErrCorrupt) || !a.json) {
			return err // the faults are the message
		}
		if err != nil {
			r.Faults = strings.Split(err.Error(), "\n")
		}
		return errors.Join(err, a.report(r, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "%s: sound: %s, %s\n", r.Path, out.Plural(r.Docs, "document"), out.Plural(r.Tokens, "token"))
		}))
	})
	return cmd
}
