package main

import (
	"bytes"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
)

func (a *app) infoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info INDEX",
		Short: "Describe an index",
		Long: withExitStatus(`
Describe an index: how it was made, what is in it, and where its bytes are. The
whole file is read. Two indexes of the same digest have the same content.

With --cpu, describe the processor instead: what it offers, and which inner
loops each stage uses. The environment variable PLAID_CPU, or --backend, names
others; they give the same results to the bit, at another speed.

With --devices, list what --device of other commands can name.`),
		Example: `  plaid info docs.plaid
  plaid info docs.plaid --json
  plaid info --cpu
  plaid info --devices`,
	}
	cmd.Flags().Bool("json", false, "print everything as JSON")
	cpu := cmd.Flags().Bool("cpu", false, "describe the processor and the kernels in use; takes no INDEX")
	devices := cmd.Flags().Bool("devices", false, "list the devices that can compute; takes no INDEX")
	cmd.MarkFlagsMutuallyExclusive("cpu", "devices")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *cpu || *devices {
			return takes()(cmd, args)
		}
		return takes("INDEX")(cmd, args)
	}
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if *cpu {
			r, err := kernels.CPU()
			if err != nil {
				return err
			}
			return a.report(r, func(b *bytes.Buffer) { b.WriteString(r.String()) })
		}
		if *devices {
			return a.listDevices()
		}
		return a.openSnapshot(ctx, args[0], func(_ *index.Index, snap *index.Snapshot) error {
			in, err := snap.Info(ctx)
			if err != nil {
				return err
			}
			return a.report(in, func(b *bytes.Buffer) { infoText(b, in) })
		})
	})
	return cmd
}

func infoText(b *bytes.Buffer, in *index.Info) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-11s "+format+"\n", append([]any{name + ":"}, args...)...)
	}
	h := in.Header
	line("file", "%s, %s, format %d, features %d", in.Path, formatBytes(in.Pages.Size), in.FormatVersion, in.FeatureVersion)
	line("digest", "%s", in.Digest)
	if in.Built != nil {
		line("built", "%s by plaid %s", in.Built.Time.Format("2006-01-02 15:04:05 MST"), in.Built.Version)
	}
	line("documents", "%s live, %s deleted", formatCount(in.Docs), formatCount(in.Deleted))
	line("tokens", "%s live, %s deleted, %s clamped", formatCount(in.Tokens), formatCount(in.DeletedTokens), formatCount(in.Clamped))
	line("vectors", "dimension %d, %s a component, %s", h.Dim, plural(h.Nbits, "bit"), normalized(h.Normalize))
	line("centroids", "%s, %s", formatCount(h.Centroids), h.CentroidType)
	if h.Build.Source == "vectors" {
		line("training", "seed %d, %s of k-means on %s of %s; root mean square error %.4f", h.Build.Seed, plural(h.Build.Iterations, "iteration"),
			plural(h.Build.SampleRows, "token"), plural(h.Build.SampleDocs, "document"), h.Build.RMSE)
	} else {
		line("imported", "from %s; bucket weights moved by %.3g at most", h.Build.Source, h.Build.WeightChange)
	}
	if h.Build.Pool > 1 {
		line("pooling", "one token for %d of a document", h.Build.Pool)
	}
	line("layout", "generation %d, %s, %s", in.Generation, plural(in.Segments, "segment"), plural(in.Chunks, "chunk"))
	defaultsText(line, in.Defaults, in.Docs)
	fmt.Fprintln(b)

	s := in.Sizes
	stored := in.Tokens + in.DeletedTokens
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\tbytes\ta token\t\n")
	row := func(name string, n int64) {
		fmt.Fprintf(w, "%s\t%s\t%.2f\t\n", name, formatCount(n), float64(n)/float64(max(stored, 1)))
	}
	row("codes", s.Codes)
	row("residuals", s.Residuals)
	row("factors", s.Factors)
	row("lengths and ids", s.Docs)
	row("documents by id", s.IDs)
	row("postings", s.Postings)
	row("tombstones", s.Tombstones)
	row("tokens, all in", s.Total()-s.Codec-s.Payload)
	row("codec", s.Codec)
	row("payload", s.Payload)
	row("free and pages", in.Pages.Size-s.Total())
	row("file", in.Pages.Size)
	_ = w.Flush() // to memory
}

func normalized(yes bool) string {
	if yes {
		return "scaled to unit length"
	}
	return "taken as they are"
}
