package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

func (a *app) compactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compact INDEX",
		Short: "Rewrite an index without its deleted documents",
		Long: `
Rewrite an index without its deleted documents and with its segments merged into
one, and replace the old file with the new one. Meanwhile this needs as much free
space as the index takes. Searches return the same results as before.

With --salvage, the index may be damaged, and it is not changed: each live document
that can still be read is copied to a new index, with its id and metadata, and the
losses are listed. If one of the two meta pages of the file is damaged, the commit of
the other one is used. The exit code is 3 if anything is lost or in doubt. It is 5, and
nothing is written, if the header, the codec, or every document is lost, or if it is
unknown which documents were deleted; --with-deleted then copies the documents in
doubt and lists them.`,
		Example: `  plaid compact docs.plaid
  plaid compact damaged.plaid --salvage rescued.plaid`,
		Args: namedArgs("INDEX"),
	}
	cmd.Flags().Bool("json", false, "print the report as JSON")
	salvagePath := cmd.Flags().String("salvage", "", "copy the readable documents of a damaged index to a new `FILE`")
	withDeleted := cmd.Flags().Bool("with-deleted", false,
		"with --salvage: also copy documents that may have been deleted")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		switch {
		case *salvagePath != "":
			return a.salvage(ctx, args[0], *salvagePath, *withDeleted)
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
			docs, passages := snap.Documents(), int(snap.State().Passages)
			if err := snap.Close(); err != nil {
				return err
			}
			return a.report(struct {
				Path        string `json:"path"`
				Docs        int    `json:"docs"`
				Passages    int    `json:"passages"`
				BytesBefore int64  `json:"bytes_before"`
				BytesAfter  int64  `json:"bytes_after"`
			}{args[0], docs, passages, before.Size(), after.Size()}, func(b *bytes.Buffer) {
				fmt.Fprintf(b, "%s: %s, %s before, %s now\n", args[0], out.Documents(docs, passages),
					out.Bytes(before.Size()),
					out.Bytes(after.Size()))
			})
		})
	})
	return cmd
}

// salvageResult is what `plaid compact --salvage --json` prints.
type salvageResult struct {
	Path     string `json:"path"`
	Out      string `json:"out"`
	Complete bool   `json:"complete"`
	*index.SalvageReport
}

// salvage writes the readable documents of a damaged index to a new file.
func (a *app) salvage(ctx context.Context, path, to string, withDeleted bool) error {
	if err := checkSingleFile(path); err != nil {
		return err
	}
	r, err := index.Salvage(ctx, path, to, &index.SalvageOptions{
		WithDeleted: withDeleted,
		LockTimeout: a.lockTimeout,
		Logger:      a.logger(),
		Progress:    a.progress(),
	})
	a.console.ClearStatus()
	if r == nil {
		return err
	}
	if !a.json {
		for _, fault := range r.Faults {
			a.printWarning("%s: %s", path, fault)
		}
		if err != nil {
			return err // nothing was written
		}
	} else if err != nil && !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	complete := err == nil && r.Complete()
	err = errors.Join(err, a.reportTyped("salvage", salvageResult{path, to, complete, r},
		func(b *bytes.Buffer) { salvageText(b, to, r) }))
	if err != nil || complete {
		return err
	}
	return fmt.Errorf("%w: not all of %s could be salvaged", errPartial, path)
}

// salvageText lists the documents that were saved and those that were lost.
func salvageText(b *bytes.Buffer, to string, r *index.SalvageReport) {
	fmt.Fprintf(b, "%s: %s, %s\n", to, out.Documents(r.Docs, r.Passages), out.Plural(r.Tokens, "token"))
	if tx := r.Transaction; tx.DamagedMeta {
		fmt.Fprintf(b, "as of transaction %d: the other meta page is damaged", tx.ID)
		if tx.Claimed > 0 {
			fmt.Fprintf(b, ", and says %d", tx.Claimed)
		}
		b.WriteString("; later changes are lost\n")
	}
	if r.StateLost {
		b.WriteString("the counters are lost: documents at the end whose ids are lost are not listed\n")
	}
	for _, l := range r.Lost {
		for _, id := range l.IDs {
			fmt.Fprintf(b, "lost: %q: %s\n", id, l.Why)
		}
		if n := l.Docs - int64(len(l.IDs)); n > 0 {
			fmt.Fprintf(b, "lost: %s of ordinals %d to %d whose ids are lost too: %s\n", out.Plural(n, "document"),
				l.First, l.Last, l.Why)
		}
	}
	for _, id := range r.LostPayloads {
		fmt.Fprintf(b, "without metadata: %q\n", id)
	}
	if n := r.UnknownPayloads; n > 0 {
		fmt.Fprintf(b, "lost: metadata of %s whose ids are unknown\n", out.Plural(n, "document"))
	}
	for _, id := range r.UncertainPayloads {
		fmt.Fprintf(b, "may have had metadata: %q\n", id)
	}
	for _, id := range r.Uncertain {
		fmt.Fprintf(b, "may have been deleted: %q\n", id)
	}
}
