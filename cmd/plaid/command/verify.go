package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

func (a *app) verifyCommand() *cobra.Command {
	var names indexNames
	cmd := &cobra.Command{
		Use:   "verify INDEX",
		Short: "Check every byte of an index",
		Long: `
Check the pages of the file and every checksum, that the postings match the codes, and
that ids and documents agree. The first twenty faults are printed.

` + severalHelp + ` Each file is checked.`,
		Example: `  plaid verify docs.plaid`,
		Args:    namedArgs("INDEX"),
	}
	names.register(cmd.Flags())
	cmd.Flags().Bool("json", false, "print the result as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		type result struct {
			Path     string   `json:"path"`
			OK       bool     `json:"ok"`
			Docs     int      `json:"docs"`
			Passages int      `json:"passages"`
			Tokens   uint64   `json:"tokens"`
			Faults   []string `json:"faults"`
		}
		r := result{Path: args[0], Faults: []string{}}
		paths, err := names.indexPaths(args[0])
		if err != nil {
			return err
		}
		var faults []error
		for _, path := range paths { // open each by itself, so that a damaged one does not hide the others
			faults = append(faults, a.openSnapshot(ctx, path, func(snap *index.Snapshot) error {
				r.Docs += snap.Documents()
				r.Passages += int(snap.State().Passages)
				r.Tokens += snap.State().LiveTokens
				return snap.Verify(ctx)
			}))
		}
		if err = errors.Join(faults...); err == nil { // check that they can be searched together
			err = a.openSearched(ctx, &names, args[0], func(*searchTarget) error { return nil })
		}
		r.OK = err == nil
		if !r.OK && (!errors.Is(err, storage.ErrCorrupt) || !a.json) {
			return err // the error lists the faults
		}
		if err != nil {
			r.Faults = strings.Split(err.Error(), "\n")
		}
		return errors.Join(err, a.report(r, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "%s: sound: %s, %s\n", r.Path,
				out.Documents(r.Docs, r.Passages), out.Plural(r.Tokens, "token"))
		}))
	})
	return cmd
}
