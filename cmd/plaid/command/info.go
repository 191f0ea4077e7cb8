package command

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cpu"
)

func (a *app) infoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info {INDEX | --cpu | --devices}",
		Short: "Describe an index",
		Long: `
Describe an index: how it was made, its content, and how its bytes are used. The whole
file is read. Two indexes with the same digest have the same content. Each document or
passage that was ever added has its own ordinal. The number of ordinals is limited, and
compact does not reuse them. New documents fill free pages; compact removes these.

` + severalHelp + ` There is a line
for each file then, and with --json the whole description of each.

With --cpu, describe the processor instead: its features, and the kernels that each
stage uses. The environment variable PLAID_CPU selects other kernels; they return the
same results to the bit, at another speed.

With --devices, list the devices that --device of other commands accepts; as JSON, the
model of the cpu is its architecture, and its capability is the name of the kernels.`,
		Example: `  plaid info docs.plaid
  plaid info docs.plaid --json
  plaid info --cpu
  plaid info --devices`,
	}
	var names indexNames
	names.register(cmd.Flags())
	cmd.Flags().Bool("json", false, "print everything as JSON")
	processor := cmd.Flags().Bool("cpu", false, "describe the processor and the kernels in use; takes no INDEX")
	devices := cmd.Flags().Bool("devices", false, "list the devices that can compute; takes no INDEX")
	cmd.MarkFlagsMutuallyExclusive("cpu", "devices")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *processor || *devices {
			return namedArgs()(cmd, args)
		}
		return namedArgs("INDEX")(cmd, args)
	}
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		if *processor {
			r, err := cpu.Describe("")
			if err != nil {
				return err
			}
			return a.reportTyped("cpu", r, func(b *bytes.Buffer) { b.WriteString(r.String()) })
		}
		if *devices {
			return a.listDevices()
		}
		return a.openSearched(ctx, &names, args[0], func(target *searchTarget) error {
			if target.hasSeveralFiles() {
				return a.reportShards(ctx, args[0], target.shards)
			}
			info, err := target.snap.Info(ctx)
			if err != nil {
				return err
			}
			return a.report(info, func(b *bytes.Buffer) { infoText(b, info, collection.Undecided(target.snap)) })
		})
	})
	return cmd
}

// reportShards describes several indexes that are searched as one.
func (a *app) reportShards(ctx context.Context, path string, shards []*index.Snapshot) error {
	r := struct {
		Path     string        `json:"path"`
		Codec    string        `json:"codec_digest"`
		Docs     int64         `json:"docs"` // without deleted ones
		Passages int64         `json:"passages"`
		Tokens   uint64        `json:"tokens"`
		Bytes    int64         `json:"file_bytes"`
		Files    []*index.Info `json:"files"`
	}{Path: path}
	for _, p := range shards {
		info, err := p.Info(ctx)
		if err != nil {
			return err
		}
		r.Codec = info.CodecDigest
		r.Docs += int64(info.Docs)
		r.Passages += int64(info.Passages)
		r.Tokens += info.Tokens
		r.Bytes += info.Pages.Size
		r.Files = append(r.Files, info)
	}
	return a.report(r, func(b *bytes.Buffer) {
		fmt.Fprintf(b, "codec: %s\n\n", r.Codec)
		t := out.Table{LeftColumns: 1}
		t.Line("FILE", "DOCUMENTS", "PASSAGES", "DELETED", "TOKENS", "SEGMENTS", "BYTES")
		for _, info := range r.Files {
			t.Line(info.Path, out.Count(info.Docs), out.Count(info.Passages), out.Count(info.Deleted),
				out.Count(info.Tokens), out.Count(info.Segments), out.Count(info.Pages.Size))
		}
		t.Line("all", out.Count(r.Docs), out.Count(r.Passages), "", out.Count(r.Tokens), "", out.Count(r.Bytes))
		t.Print(b)
	})
}

// infoText describes an index. undecided reports that it has no dimension yet: the first vectors
// decide it.
func infoText(b *bytes.Buffer, info *index.Info, undecided bool) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-11s "+format+"\n", append([]any{name + ":"}, args...)...)
	}
	h := info.Header
	line("file", "%s, %s, format %d, features %d", info.Path, out.Bytes(info.Pages.Size), info.FormatVersion,
		info.FeatureVersion)
	line("digest", "%s", info.Digest)
	if info.Built != nil {
		line("built", "%s by plaid %s", info.Built.Time.Format("2006-01-02 15:04:05 MST"), info.Built.Version)
	}
	passages := ""
	if info.Passages > 0 {
		passages = fmt.Sprintf(" in %s", out.Plural(info.Passages, "passage"))
	}
	line("documents", "%s%s", out.Count(info.Docs), passages)
	line("ordinals", "%s of %s used, %s of them deleted since",
		out.Count(info.Ordinals), out.Count(info.MaxOrdinals), out.Count(info.Deleted))
	deleted, scaling := "", "taken as they are"
	if info.DeletedTokens > 0 {
		deleted = fmt.Sprintf("; %s of deleted documents (plaid compact frees their space)",
			out.Count(info.DeletedTokens))
	}
	if h.Normalize {
		scaling = "scaled to unit length"
	}
	line("tokens", "%s, %s clamped%s", out.Count(info.Tokens), out.Count(info.Clamped), deleted)
	if undecided {
		line("vectors", "none yet: the first ones determine the dimension")
	} else {
		line("vectors", "dimension %d, %s a component, %s", h.Dim, out.Plural(h.Nbits, "bit"), scaling)
	}
	line("codec", "%s", info.CodecDigest)
	line("centroids", "%s, %s", out.Count(h.Centroids), h.CentroidType)
	if info.Applied > 0 {
		line("log", "the last applied entry is %d", info.Applied)
	}
	if h.Build.Source == "vectors" {
		line("training", "seed %d, %s of k-means on %s of %s; root mean square error %.4f", h.Build.Seed,
			out.Plural(h.Build.Iterations, "iteration"), out.Plural(h.Build.SampleRows, "token"),
			out.Ordinals(h.Build.SampleDocs, info.Passages > 0), h.Build.RMSE)
	} else {
		line("imported", "from %s; bucket weights moved by %.3g at most", h.Build.Source, h.Build.WeightChange)
	}
	if m := h.Model; m != nil {
		text := m.String()
		if m.Precision != "" {
			text += ", " + m.Precision
		}
		if m.Settings != "" {
			text += ", " + m.Settings
		}
		line("made by", "%s", text)
	}
	if h.Build.Pool > 1 {
		method := ""
		if h.Build.PoolBy != "" {
			method = ", by " + h.Build.PoolBy
		}
		line("pooling", "one token for %d of a document%s", h.Build.Pool, method)
	}
	driftText(line, info.Drift)
	line("layout", "generation %d, %s, %s", info.Generation, out.Plural(info.Segments, "segment"),
		out.Plural(info.Chunks, "chunk"))
	defaultsText(line, info.Defaults, info.Docs)
	fmt.Fprintln(b)
	sizesText(b, info)
}

// sizesText writes a table of the bytes of the file: first the parts of the tokens and their sum,
// then the other parts and the whole file.
func sizesText(b *bytes.Buffer, info *index.Info) {
	s := info.Sizes
	storedTokens := info.Tokens + info.DeletedTokens
	t := out.Table{Indent: 2}
	t.Line("", "bytes", "a token")
	sizeLine := func(name string, n int64) {
		t.Line(name, out.Count(n), fmt.Sprintf("%.2f", float64(n)/float64(max(storedTokens, 1))))
	}
	sizeLine("codes", s.Codes)
	sizeLine("residuals", s.Residuals)
	sizeLine("factors", s.Factors)
	sizeLine("lengths and ids", s.Docs)
	sizeLine("documents by id", s.IDs)
	sizeLine("postings", s.Postings)
	sizeLine("bitmaps of documents", s.Tombstones)
	sizeLine("tokens, all in", s.Total()-s.Codec-s.Payload-s.Fields)
	sizeLine("codec", s.Codec)
	sizeLine("metadata", s.Payload)
	sizeLine("fields of metadata", s.Fields)
	free := int64(info.Pages.Free+info.Pages.Pending) * int64(info.Pages.Page)
	sizeLine("free pages", free)
	sizeLine("rest of pages", info.Pages.Size-s.Total()-free)
	sizeLine("file", info.Pages.Size)
	t.Print(b)
}

// driftText says how well the codec fits the documents that were added since it was trained.
func driftText(line func(name, format string, args ...any), d index.Drift) {
	if d.Added == 0 {
		return
	}
	text := ""
	if d.Ratio > 0 {
		text = fmt.Sprintf(", %.2f times that of the training", d.Ratio)
	}
	if d.Wanted > d.Centroids {
		text += fmt.Sprintf("; for all tokens %s centroids would be trained now", out.Count(d.Wanted))
	}
	line("drift", "%s added since the training, root mean square error %.4f%s", out.Plural(int64(d.Added), "token"),
		d.AddedRMSE, text)
}

// deviceReport is what `plaid info --devices --json` prints.
type deviceReport struct {
	Devices []kernels.DeviceInfo `json:"devices"`
	// Absent says, for each kind of device that this machine does not have, why.
	Absent []string `json:"absent"`
}

// listDevices prints the processor and the devices of this machine.
func (a *app) listDevices() error {
	processor, err := cpu.Describe("")
	if err != nil {
		return err
	}
	r := deviceReport{Devices: []kernels.DeviceInfo{{Name: "cpu", Model: processor.Arch,
		Capability: processor.Selected}}, Absent: []string{}}
	found, reasons := kernels.Devices()
	r.Devices = append(r.Devices, found...)
	for _, err := range reasons {
		r.Absent = append(r.Absent, err.Error())
	}
	return a.reportTyped("devices", r, func(b *bytes.Buffer) {
		t := out.Table{LeftColumns: 1}
		t.Line("cpu")
		t.Remark(fmt.Sprintf("the processor, %s, kernels %s (plaid info --cpu)", processor.Arch, processor.Selected))
		for _, d := range r.Devices[1:] {
			text := fmt.Sprintf("%s, compute capability %s, %s, PCI %s, driver for CUDA %s", d.Model, d.Capability,
				out.Bytes(int64(d.Memory)), d.PCI, d.Driver)
			if d.Unusable != "" {
				text += "; not usable: " + d.Unusable
			}
			t.Line(d.Name)
			t.Remark(text)
		}
		t.Print(b)
		for _, reason := range r.Absent {
			fmt.Fprintln(b, reason)
		}
	})
}
