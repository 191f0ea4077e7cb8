package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func (a *app) getCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "get INDEX ID",
		Short: "Show one document",
		Long: withExitStatus(`
Show what an index holds of a document: its place in the order of insertion, the
number of its tokens, its payload, and with --vectors the decoded token vectors
as a NumPy array of float32 [tokens, dim]. A file that is there is replaced when
the new one is complete. If --vectors is /dev/stdout, nothing else goes there.`),
		Example: `  plaid get docs.plaid doc17
  plaid get docs.plaid doc17 --vectors doc17.npy`,
		Args: takes("INDEX", "ID"),
	}
	f := cmd.Flags()
	f.StringVar(&file, "vectors", "", ".npy `FILE` to write the decoded vectors to")
	f.Bool("json", false, "print the document as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		path, id := args[0], args[1]
		return a.openSnapshot(ctx, path, func(_ *index.Index, snap *index.Snapshot) error {
			ordinal, ok, err := snap.Ordinal(id)
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("%s: %w: %s", path, index.ErrNotFound, out.Quoted(id))
			}
			chunk, doc, _ := snap.Locate(ordinal)
			_, offsets := snap.ChunkDocs(chunk)
			tokens := offsets[doc+1] - offsets[doc]
			payload, err := snap.Payload(ordinal)
			if err != nil {
				return err
			}
			if file != "" {
				v, err := snap.Vectors(ordinal)
				if err != nil {
					return err
				}
				err = a.writeFile(ctx, "vectors", file, snap.Path(), func(w io.Writer) error {
					return vectors.WriteNPY(w, "<f4", []int{int(tokens), snap.Dim()}, v)
				})
				if err != nil || a.isStdout(file) { // text would spoil the array there
					return err
				}
			}
			return a.report(struct {
				ID      string         `json:"id"`
				Ordinal uint32         `json:"ordinal"`
				Tokens  uint32         `json:"tokens"`
				Dim     int            `json:"dim"`
				Payload search.Payload `json:"payload,omitzero"`
			}{id, ordinal, tokens, snap.Dim(), payload}, func(b *bytes.Buffer) {
				fmt.Fprintf(b, "id:      %s\n", out.Printable(id, math.MaxInt))
				fmt.Fprintf(b, "ordinal: %d\n", ordinal)
				fmt.Fprintf(b, "tokens:  %d\n", tokens)
				if payload != nil {
					fmt.Fprintf(b, "payload: %s\n", out.Printable(string(payload), math.MaxInt))
				}
			})
		})
	})
	return cmd
}
