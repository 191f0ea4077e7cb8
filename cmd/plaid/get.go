package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/vectors"
)

func (a *app) getCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "get INDEX ID",
		Short: "Show one document",
		Long: withExitStatus(`
Show what an index holds of a document: its place in the order of insertion, the
number of its tokens, its payload, and with --vectors the decoded token vectors
as a NumPy array of float32 [tokens, dim].`),
		Example: `  plaid get docs.plaid doc17
  plaid get docs.plaid doc17 --vectors doc17.npy`,
		Args: takes("INDEX", "ID"),
	}
	f := cmd.Flags()
	f.StringVar(&out, "vectors", "", ".npy `FILE` to write the decoded vectors to")
	f.Bool("json", false, "print the document as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		path, id := args[0], args[1]
		return a.openSnapshot(ctx, path, func(_ *index.Index, snap *index.Snapshot) error {
			ordinal, ok, err := snap.Ordinal(id)
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("%s: %w: %q", path, index.ErrNotFound, id)
			}
			chunk, doc, _ := snap.Locate(ordinal)
			_, offsets := snap.ChunkDocs(chunk)
			tokens := offsets[doc+1] - offsets[doc]
			payload, err := snap.Payload(ordinal)
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeVectors(out, snap, ordinal, int(tokens)); err != nil {
					return err
				}
			}
			return a.report(struct {
				ID      string `json:"id"`
				Ordinal uint32 `json:"ordinal"`
				Tokens  uint32 `json:"tokens"`
				Dim     int    `json:"dim"`
				Payload any    `json:"payload,omitempty"`
			}{id, ordinal, tokens, snap.Dim(), payloadJSON(payload)}, func(b *bytes.Buffer) {
				fmt.Fprintf(b, "id:      %s\n", printable(id, math.MaxInt))
				fmt.Fprintf(b, "ordinal: %d\n", ordinal)
				fmt.Fprintf(b, "tokens:  %d\n", tokens)
				if payload != nil {
					fmt.Fprintf(b, "payload: %s\n", printable(string(payload), math.MaxInt))
				}
			})
		})
	})
	return cmd
}

func writeVectors(path string, snap *index.Snapshot, ordinal uint32, tokens int) error {
	v, err := snap.Vectors(ordinal)
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err == nil {
		if source, err := os.Stat(snap.Path()); err != nil {
			return err
		} else if os.SameFile(there, source) {
			return usagef("--vectors names the index itself")
		}
	}
	tmp := path + ".tmp"
	w, err := vectors.CreateNPY(tmp, "<f4", tokens, snap.Dim())
	if err != nil {
		return err
	}
	if err := errors.Join(w.Float32s(v), w.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
