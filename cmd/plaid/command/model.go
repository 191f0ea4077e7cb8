package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modeldir"
)

// modelReport is what `plaid model MODEL --json` prints.
type modelReport struct {
	encode.Config
	// Precisions has the fingerprint of the model in each precision.
	Precisions map[string]string `json:"precisions,omitempty"`
	Tokenizer  struct {
		Kind       string `json:"kind"`
		Vocabulary int    `json:"vocabulary"`
	} `json:"tokenizer"`
	// Bytes is the size of the weights; only of the missing files if some are missing.
	Bytes int64 `json:"bytes"`
	// Missing are the files of a hub's model that must be fetched before it can be used.
	Missing []hub.File `json:"missing,omitempty"`
}

func (a *app) modelCommand() *cobra.Command {
	var enc flags.Encoder
	var device flags.Device
	cmd := &cobra.Command{
		Use:   "model [MODEL]",
		Short: "Describe a model, or list models",
		Long: `
Read a late-interaction model as encoding does, including its weights, and show how it
will be used: each value with the file that it comes from, doubtful values, and the
fingerprint that an index stores.

MODEL is a folder, or the name of a model at the Hugging Face hub, ORG/NAME or
ORG/NAME@REVISION. If the model is not in the hub's cache, its settings and tokenizer
are fetched, and the command says whether they can be read and how large the weights
are. --fetch also fetches the weights, and asks the hub for the newest commit of a
branch.

Without MODEL, list models that are known to work.

With --device, show how the device runs the model, and how much memory that takes.`,
		Example: `  plaid model
  plaid model answerdotai/answerai-colbert-small-v1
  plaid model lightonai/GTE-ModernColBERT-v1 --fetch
  plaid model ./colbert --precision int8 --json
  plaid model ./colbert --device auto`,
	}
	f := cmd.Flags()
	enc.RegisterFolder(f)
	enc.RegisterLength(f)
	f.Lookup("model").Hidden = true // the model is an argument
	device.RegisterEncoding(f)
	threads, fetch, settingsOnly := 0, false, false
	flags.Threads(f, &threads, 0)
	f.BoolVar(&fetch, "fetch", false, "also fetch the weights, of the newest commit")
	f.BoolVar(&settingsOnly, "no-weights", false, "describe only settings and tokenizer, which is faster")
	f.Bool("json", false, "print everything as JSON")
	cmd.MarkFlagsMutuallyExclusive("fetch", "no-weights")
	cmd.MarkFlagsMutuallyExclusive("device", "no-weights")
	cmd.Args, cmd.ValidArgsFunction = namedArgs("[MODEL]"), completeModel
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			if enc.Dir != "" {
				return flags.Usagef("the model is given as an argument and with --model")
			}
			enc.Dir = args[0]
		}
		switch {
		case enc.Dir == "" && len(args) > 0:
			return flags.Usagef("MODEL is empty")
		case enc.Dir == "":
			return a.listModels()
		}
		dir, o, err := enc.Options(nil, threads, a.logger())
		if err != nil {
			return err
		}
		if o.Hub = a.modelHub(); fetch {
			o.Hub.Refresh = true
		}
		if _, named := hub.ParseUnlessPath(dir); settingsOnly || named && !fetch {
			r, err := readModelSettings(ctx, dir, o)
			if err != nil {
				return enc.Explain(err)
			}
			if settingsOnly || r.Missing != nil {
				return a.report(r, func(b *bytes.Buffer) { modelText(b, r) })
			}
		}
		var openDevice flags.DeviceOpener
		if f.Changed("device") {
			openDevice = a.deviceOpener(&device)
		}
		e, err := enc.OpenWith(ctx, dir, o, openDevice)
		if err != nil {
			return err
		}
		return errors.Join(a.describeModel(e), e.Close())
	})
	return cmd
}

// listModels prints the models that are known to work.
func (a *app) listModels() error {
	models := modeldir.KnownModels()
	return a.report(struct {
		Models []modeldir.Known `json:"models"`
	}{models}, func(b *bytes.Buffer) {
		t := out.Table{LeftColumns: 2}
		t.Line("MODEL", "FAMILY", "LAYERS", "WIDTH", "DIM", "PARAMETERS")
		t.Remark("CHECKED BY")
		for _, m := range models {
			t.Line(m.Name, string(m.Family), fmt.Sprint(m.Layers), fmt.Sprint(m.Hidden), fmt.Sprint(m.Dim),
				fmt.Sprintf("%dM", m.Parameters/1_000_000))
			t.Remark("its " + string(m.CheckedBy))
		}
		t.Print(b)
		b.WriteString("\nplaid model MODEL shows whether any other model can be read.\n")
	})
}

// readModelSettings reads the settings of a model, and finds the files of its weights that are not
// fetched yet.
func readModelSettings(ctx context.Context, dir string, o *encode.Options) (*modelReport, error) {
	m, err := encode.FindModel(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	r := &modelReport{Config: encode.Config{Config: *m.Config, Name: m.Name}}
	r.Tokenizer.Kind, r.Tokenizer.Vocabulary = m.Tokenizer.Kind(), m.Tokenizer.VocabSize()
	weights, err := m.WeightFiles(ctx)
	if err != nil {
		return nil, err
	}
	if weights == nil {
		return r, r.addWeightBytes()
	}
	fetched := int64(0)
	for _, f := range weights {
		if f.Cached {
			fetched += f.Bytes
			continue
		}
		r.Missing = append(r.Missing, f)
		r.Bytes += f.Bytes
	}
	if r.Missing == nil {
		r.Bytes = fetched
	}
	return r, nil
}

// addWeightBytes adds up the sizes of the files with weights.
func (r *modelReport) addWeightBytes() error {
	for _, path := range r.Tensors() {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		r.Bytes += info.Size()
	}
	return nil
}

// precisions are all precisions, beginning with those of the processor.
var precisions = []string{encode.F32.String(), encode.Int8.String(), encode.F16.String()}

// describeModel prints a model that was loaded.
func (a *app) describeModel(e *encode.Encoder) error {
	r := modelReport{Config: e.Config(), Precisions: map[string]string{}}
	fingerprints, err := r.Config.Config.Fingerprints(precisions...)
	if err != nil {
		return err
	}
	for i, p := range precisions {
		r.Precisions[p] = fingerprints[i]
	}
	t := r.Config.Tokenizer
	r.Tokenizer.Kind, r.Tokenizer.Vocabulary = t.Kind(), t.VocabSize()
	if err := r.addWeightBytes(); err != nil {
		return err
	}
	return a.report(r, func(b *bytes.Buffer) { modelText(b, &r) })
}

// modelText formats the description of a model for reading.
func modelText(b *bytes.Buffer, r *modelReport) {
	c := &r.Config.Config
	tokenName := func(id int32) string {
		if id < 0 {
			return "none"
		}
		return fmt.Sprintf("%s (%d)", c.Tokenizer.Piece(id), id)
	}
	backbone := &c.Backbone
	fmt.Fprintf(b, "%s: %s, %s of %d dimensions, %s, feed-forward %d, up to %s\n", cmp.Or(r.Name, c.Dir),
		backbone.Family,
		out.Plural(len(backbone.Layers), "layer"), backbone.Hidden, out.Plural(backbone.Heads, "head"),
		backbone.Intermediate, out.Plural(backbone.MaxPositions, "token"))
	fmt.Fprintf(b, "tokenizer:   %s, %s\n", r.Tokenizer.Kind, out.Plural(r.Tokenizer.Vocabulary, "piece"))
	if r.Missing != nil {
		fmt.Fprintf(b, "weights:     not fetched, %s in %s:", out.Bytes(r.Bytes), out.Plural(len(r.Missing), "file"))
		for _, f := range r.Missing {
			fmt.Fprintf(b, " %s", f.Path)
		}
		fmt.Fprint(b, "\nreadable:    settings and tokenizer, yes; --fetch fetches the weights\n")
	} else {
		fmt.Fprintf(b, "weights:     %s in %s\n", out.Bytes(r.Bytes), out.Plural(len(c.Tensors()), "file"))
	}
	for _, p := range precisions {
		if r.Precisions == nil {
			break
		}
		used := ""
		if p == r.Precision {
			used = " (in use)"
		}
		fmt.Fprintf(b, "fingerprint: %s in %s%s\n", r.Precisions[p], p, used)
	}
	if d := r.Device; d != nil {
		fmt.Fprintf(b, "runs on:     %s (%s) in %v; %s of weights, %s for batches of up to %s\n", d.Device.Name,
			d.Device.Model, d.Precision,
			out.Bytes(d.Weights), out.Bytes(d.Batches), out.Plural(d.Tokens, "token"))
	}
	b.WriteByte('\n')
	t := out.Table{LeftColumns: 2}
	t.Line("SETTING", "VALUE")
	t.Remark("FROM")
	line := func(name, value, origin string) {
		t.Line(name, out.Printable(value, 60))
		t.Remark(cmp.Or(c.Origin[origin], origin))
	}
	yesNo := map[bool]string{true: "yes", false: "no"}
	line("dimension", fmt.Sprint(c.Dim), "dim")
	for _, role := range []struct {
		name string
		r    *modeldir.Role
	}{{"query", &c.Query}, {"document", &c.Document}} {
		line(role.name+" marker", tokenName(role.r.Marker), role.name+".marker")
		line(role.name+" prompt", fmt.Sprintf("%q", role.r.Prompt), role.name+".prompt")
		line(role.name+" length", fmt.Sprint(role.r.Length), role.name+".length")
		line(role.name+" skips", yesNo[role.r.Skip], role.name+".skip")
	}
	line("expansion", yesNo[c.Expand.On], "expand")
	if c.Expand.On {
		line("… with", tokenName(c.Expand.Mask), "mask")
		line("… to length", fmt.Sprint(c.Expand.Length), "expand.length")
		line("… attended to", yesNo[c.Expand.Attend], "attend")
	}
	var skipped []string
	for _, id := range c.Skip {
		skipped = append(skipped, c.Tokenizer.Piece(id))
	}
	line("skipped", fmt.Sprintf("%d: %s", len(skipped), strings.Join(skipped, " ")), "skip")
	if len(c.Keep) > 0 {
		var keptPieces []string
		for _, id := range c.Keep {
			keptPieces = append(keptPieces, c.Tokenizer.Piece(id))
		}
		line("kept of documents", fmt.Sprintf("%d: %s", len(keptPieces), strings.Join(keptPieces, " ")), "keep")
	}
	if p := c.Pooling; p != nil {
		line("pooling", fmt.Sprintf("one vector for %g, after the first %d", p.Factor, p.Protected), "pooling")
	}
	line("lower case", yesNo[c.LowerCase], "lower_case")
	for i, d := range c.Dense {
		path, err := filepath.Rel(c.Dir, d.Path)
		if err != nil {
			path = d.Path
		}
		line(fmt.Sprintf("head %d", i+1), fmt.Sprintf("%d to %d, %s", d.In, d.Out, d.Activation),
			filepath.ToSlash(path))
	}
	t.Print(b)
	for _, w := range c.Warnings {
		fmt.Fprintf(b, "warning: %s\n", w)
	}
}
