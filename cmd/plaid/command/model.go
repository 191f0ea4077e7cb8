package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/modeldir"
)

// modelReport is what `plaid model --json` prints.
type modelReport struct {
	encode.Config
	// Precisions has the fingerprint of the model in each.
	Precisions map[string]string `json:"precisions"`
	Tokenizer  struct {
		Kind       string `json:"kind"`
		Vocabulary int    `json:"vocabulary"`
	} `json:"tokenizer"`
	Bytes int64 `json:"bytes"` // of the weights' files
}

func (a *app) modelCommand() *cobra.Command {
	var enc flags.Encoder
	var device flags.Device
	cmd := &cobra.Command{
		Use:   "model DIR",
		Short: "Describe a model's folder",
		Long: `
Read the folder of a late-interaction model as encoding does, weights included,
and show how it will be used: each value with the file that it comes from, what
is doubtful, and the fingerprint, which an index keeps.

With --device, say what computes there and how much memory that takes.`,
		Example: `  plaid model answerai-colbert-small-v1
  plaid model answerai-colbert-small-v1 --precision int8 --json
  plaid model answerai-colbert-small-v1 --device auto`,
	}
	f := cmd.Flags()
	enc.RegisterFolder(f)
	enc.RegisterLength(f)
	f.Lookup("model").Hidden = true // it is the argument
	device.RegisterEncoding(f)
	threads := 0
	flags.Threads(f, &threads, 0)
	f.Bool("json", false, "print everything as JSON")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && enc.Dir != "" {
			return nil
		}
		return takes("DIR")(cmd, args)
	}
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			if enc.Dir != "" {
				return flags.Usagef("the folder is given as an argument and with --model")
			}
			enc.Dir = args[0]
		}
		dir, o, err := enc.Options(nil, threads, a.logger())
		if err != nil {
			return err
		}
		var on flags.DeviceOpener
		if f.Changed("device") {
			on = a.on(&device)
		}
		e, err := enc.OpenWith(ctx, dir, o, on)
		if err != nil {
			return err
		}
		return errors.Join(a.describeModel(e), e.Close())
	})
	return cmd
}

// precisions are all that there are, the processor's first.
var precisions = []string{encode.F32.String(), encode.Int8.String(), encode.F16.String()}

func (a *app) describeModel(e *encode.Encoder) error {
	r := modelReport{Config: e.Config(), Precisions: map[string]string{}}
	all, err := r.Config.Config.Fingerprints(precisions...)
	if err != nil {
		return err
	}
	for i, p := range precisions {
		r.Precisions[p] = all[i]
	}
	t := r.Config.Tokenizer
	r.Tokenizer.Kind, r.Tokenizer.Vocabulary = t.Kind(), t.VocabSize()
	for _, path := range r.Weights {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		r.Bytes += info.Size()
	}
	return a.report(r, func(b *bytes.Buffer) { modelText(b, &r) })
}

func modelText(b *bytes.Buffer, r *modelReport) {
	c := &r.Config.Config
	piece := func(id int32) string {
		if id < 0 {
			return "none"
		}
		return fmt.Sprintf("%s (%d)", c.Tokenizer.Piece(id), id)
	}
	k := &c.Backbone
	fmt.Fprintf(b, "%s: %s, %s of %d dimensions, %s, feed-forward %d, up to %s\n", c.Dir, k.Family, out.Plural(len(k.Layers), "layer"), k.Hidden,
		out.Plural(k.Heads, "head"), k.Intermediate, out.Plural(k.MaxPositions, "token"))
	fmt.Fprintf(b, "tokenizer:   %s, %s\n", r.Tokenizer.Kind, out.Plural(r.Tokenizer.Vocabulary, "piece"))
	fmt.Fprintf(b, "weights:     %s in %s\n", out.Bytes(r.Bytes), out.Plural(len(c.Weights), "file"))
	for _, p := range precisions {
		used := ""
		if p == r.Precision {
			used = " (in use)"
		}
		fmt.Fprintf(b, "fingerprint: %s in %s%s\n", r.Precisions[p], p, used)
	}
	if d := r.Device; d != nil {
		fmt.Fprintf(b, "runs on:     %s (%s) in %v; %s of weights, %s for batches of up to %s\n", d.Device.Name, d.Device.Model, d.Precision,
			out.Bytes(d.Weights), out.Bytes(d.Batches), out.Plural(d.Tokens, "token"))
	}
	b.WriteByte('\n')
	t := out.Table{Left: 2}
	t.Line("SETTING", "VALUE")
	t.Remark("FROM")
	line := func(name, value, origin string) {
		t.Line(name, out.Printable(value, 60))
		t.Remark(cmp.Or(c.Origin[origin], origin))
	}
	yes := map[bool]string{true: "yes", false: "no"}
	line("dimension", fmt.Sprint(c.Dim), "dim")
	for _, role := range []struct {
		name string
		r    *modeldir.Role
	}{{"query", &c.Query}, {"document", &c.Document}} {
		line(role.name+" marker", piece(role.r.Marker), role.name+".marker")
		line(role.name+" prompt", fmt.Sprintf("%q", role.r.Prompt), role.name+".prompt")
		line(role.name+" length", fmt.Sprint(role.r.Length), role.name+".length")
		line(role.name+" skips", yes[role.r.Skip], role.name+".skip")
	}
	line("expansion", yes[c.Expand.On], "expand")
	if c.Expand.On {
		line("… with", piece(c.Expand.Mask), "mask")
		line("… to length", fmt.Sprint(c.Expand.Length), "expand.length")
		line("… attended to", yes[c.Expand.Attend], "attend")
	}
	var skipped []string
	for _, id := range c.Skip {
		skipped = append(skipped, c.Tokenizer.Piece(id))
	}
	line("skipped", fmt.Sprintf("%d: %s", len(skipped), strings.Join(skipped, " ")), "skip")
	line("lower case", yes[c.LowerCase], "lower_case")
	for i, d := range c.Dense {
		line(fmt.Sprintf("head %d", i+1), fmt.Sprintf("%d to %d, %s", d.In, d.Out, d.Activation), d.Path)
	}
	t.Print(b)
	for _, w := range c.Warnings {
		fmt.Fprintf(b, "warning: %s\n", w)
	}
}
