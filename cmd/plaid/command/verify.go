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
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

func (a *app) verifyCommand() *cobra.Command {
	var names indexes
	cmd := &cobra.Command{
		Use:   "verify INDEX",
		Short: "Check every byte of an index that is in use",
		Long: `
Check the pages of the file, every checksum, that the postings are those of the
codes, and that ids and documents agree. The first
twenty faults are printed.

` + severalHelp + ` Each is checked.`,
		Example: `  plaid verify docs.plaid`,
		Args:    takes("INDEX"),
	}
	names.register(cmd.Flags())
	cmd.Flags().Bool("json", false, "print the result as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		type result struct {
			Path   string   `json:"path"`
			OK     bool     `json:"ok"`
			Docs   int      `json:"docs"`
			Tokens uint64   `json:"tokens"`
			Faults []string `json:"faults"`
			Notes  []string `json:"notes,omitempty"`
		}
		r := result{Path: args[0], Faults: []string{}}
		err := a.openSearched(ctx, &names, args[0], func(x *searched) error {
			var faults []error
			for _, p := range x.snapshots() {
				r.Docs += p.Len()
				r.Tokens += p.State().LiveTokens
				note, err := verified(ctx, p)
				if note != "" {
					r.Notes = append(r.Notes, note)
				}
				faults = append(faults, err)
			}
			return errors.Join(faults...)
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
			for _, note := range r.Notes {
				fmt.Fprintln(b, note)
			}
		}))
	})
	return cmd
}

// verified verifies an index. The note names what is sound, but makes conditions slow.
func verified(ctx context.Context, snap *index.Snapshot) (note string, err error) {
	if err := snap.Verify(ctx); err != nil {
		return "", err
	}
	former, err := snap.FormerDocs()
	if err != nil || former == 0 {
		return "", err
	}
	note = fmt.Sprintf("%s: a former version has derived the fields of %s, more than it could keep", snap.Path(), out.Plural(former, "document"))
	fields, docs, err := snap.LostFields(ctx)
	if err != nil {
		return "", err
	}
	if len(fields) > 0 {
		note += fmt.Sprintf(", and lost %s of %s: %s", out.Plural(len(fields), "field"), out.Plural(docs, "document"), someOf(fields))
	}
	return note + ". Conditions read their payloads instead; plaid compact makes them fast again", nil
}

// someOf are the first of many fields.
func someOf(fields []condition.Field) string {
	const most = 10
	var names []string
	for _, f := range fields[:min(most, len(fields))] {
		names = append(names, string(f))
	}
	if len(fields) > most {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
