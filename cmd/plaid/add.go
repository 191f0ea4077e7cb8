package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/internal/cli/out"
)

func (a *app) addCommand() *cobra.Command {
	var docs flags.Documents
	var work flags.Resources
	var replace bool
	cmd := &cobra.Command{
		Use:   "add INDEX --vectors FILE --lengths FILE --ids FILE",
		Short: "Add documents to an index",
		Long: withExitStatus(`
Add documents to an index, all of them or none. They are encoded with the codec
that the index has; the error that is reported tells, beside that of the build,
whether they are too unlike the documents that the codec was trained on.

An id that is in the index already is an error, or with --replace the document
takes the place of the old one.`),
		Example: `  plaid add docs.plaid --vectors more.npy --lengths more-lens.npy --ids more-ids.txt
  plaid add docs.plaid --vectors new.jsonl --replace`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	docs.Register(f)
	work.Register(f)
	f.BoolVar(&replace, "replace", false, "replace documents that have the same id")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) (err error) {
		defer work.Limit()()
		src, err := docs.Open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, src.Close()) }()
		return a.open(ctx, args[0], true, func(ix *index.Index) error {
			r, err := ix.Add(ctx, src, &index.AddOptions{
				Replace: replace, Threads: work.Threads, Memory: work.Memory, Progress: a.progress(),
			})
			if err != nil {
				return err
			}
			built, err := buildRMSE(ix)
			if err != nil {
				return err
			}
			return a.report(struct {
				Path          string  `json:"path"`
				Docs          int     `json:"docs"`
				EmptyDocs     int     `json:"empty_docs"`
				Replaced      int     `json:"replaced"`
				Tokens        int64   `json:"tokens"`
				ClampedTokens int     `json:"clamped_tokens"`
				RMSE          float64 `json:"rmse"`
				BuildRMSE     float64 `json:"build_rmse"` // 0: not known, as of an import
			}{args[0], r.Docs, r.Empty, r.Replaced, r.Tokens, r.Clamped, r.RMSE, built}, func(b *bytes.Buffer) {
				fmt.Fprintf(b, "added %s (%d empty, %d replaced), %s; root mean square error %.4f",
					out.Plural(r.Docs, "document"), r.Empty, r.Replaced, out.Plural(r.Tokens, "token"), r.RMSE)
				if built > 0 {
					fmt.Fprintf(b, " (%.4f when the index was built)", built)
				}
				b.WriteByte('\n')
			})
		})
	})
	return cmd
}

// buildRMSE is the error that the codec had on the documents of the build.
func buildRMSE(ix *index.Index) (float64, error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return 0, err
	}
	return snap.Header().Build.RMSE, snap.Close()
}
