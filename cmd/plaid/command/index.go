package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// indexReport is what `plaid index --json` prints.
type indexReport struct {
	Path          string  `json:"path"`
	Bytes         int64   `json:"bytes"`
	Docs          int     `json:"docs"`
	EmptyDocs     int     `json:"empty_docs"`
	Tokens        int64   `json:"tokens"`
	Pool          int     `json:"pool"`
	ZeroTokens    int64   `json:"zero_tokens"`
	ClampedTokens int     `json:"clamped_tokens"`
	Dim           int     `json:"dim"`
	Nbits         int     `json:"nbits"`
	Centroids     int     `json:"centroids"`
	Seed          uint64  `json:"seed"`
	SampleDocs    int     `json:"sample_docs"`
	SampleTokens  int     `json:"sample_tokens"`
	Iterations    int     `json:"iterations"`
	RMSE          float64 `json:"rmse"`
	NotFreed      string  `json:"not_freed,omitempty"`
	// Encoded is what became of texts; nil for vectors.
	Encoded *textsReport   `json:"encoded,omitempty"`
	Model   *storage.Model `json:"model,omitempty"`
	Seconds struct {
		Sample float64 `json:"sample"`
		Train  float64 `json:"train"`
		Encode float64 `json:"encode"`
		Total  float64 `json:"total"`
	} `json:"seconds"`
}

func (a *app) indexCommand() *cobra.Command {
	var in input
	var work flags.Resources
	var device flags.Device
	var scales []string
	o := index.BuildOptions{}
	var noNormalize bool
	cmd := &cobra.Command{
		Use:   "index INDEX {--text FILE --model DIR | --vectors FILE [--lengths FILE] [--ids FILE]}",
		Short: "Build an index from texts or token vectors",
		Long: `
Build an index file from texts, which the model in a folder encodes, or from token
vectors. A codec is trained on a sample of the documents, then all of them are
compressed, in bounded memory. The same input, options and seed give the same
index, whatever the number of threads.

` + textsHelp + `

The index keeps the fingerprint of the model, its folder and its precision: plaid
add and plaid search find it there, and refuse another one.

An index that is there is replaced only with --force, and stays as it is, and
readable, until the new one is finished.

Sizes are bytes, or have a unit: MiB or M for 2²⁰ bytes, MB for 10⁶ and so on.`,
		Example: `  plaid index docs.plaid --text corpus.jsonl --model answerai-colbert-small-v1
  plaid index notes.plaid --text notes --model answerai-colbert-small-v1 --precision int8 --window 180 --overlap 30
  plaid index docs.plaid --vectors docs.npy --lengths doclens.npy
  plaid index docs.plaid --vectors docs.npy --lengths doclens.npy --ids ids.txt --payload corpus.jsonl
  plaid index docs.plaid --vectors a.npy --lengths a-lens.npy --vectors b.npy --lengths b-lens.npy --nbits 4 --memory 512MiB`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	in.register(f)
	work.Register(f)
	device.Register(f)
	f.Var(flags.Nbits(&o.Nbits), "nbits", "residual bits a component")
	f.Var(flags.Int(&o.Centroids, 0, 0), "centroids", "number of centroids (0: by the number of tokens, at most what the sample allows)")
	f.Var(flags.Int(&o.SampleDocs, 0, 0), "sample-docs", "documents to train on (0: by their number)")
	f.Var(flags.Int(&o.Iterations, 0, 0), "iterations", "rounds of k-means (0: 4)")
	f.Uint64Var(&o.Seed, "seed", 0, "`N` that decides every random choice")
	f.StringSliceVar(&scales, "scales", []string{"dim", "centroid"}, "`LIST` of scales of residuals to fit, separated by a comma: for each dim, for each centroid, or none")
	f.Var(flags.Int(&o.Pool, 1, 1), "pool", "keep one token vector for so many of a document, each the mean of similar ones (1: all)")
	f.BoolVar(&noNormalize, "no-normalize", false, "do not scale vectors to unit length")
	f.BoolVar(&o.Force, "force", false, "replace an index that is there")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) (err error) {
		for _, s := range scales {
			if !slices.Contains([]string{"dim", "centroid", "none"}, s) || s == "none" && len(scales) > 1 {
				return flags.Usagef("--scales %s: there is dim, centroid or both, and none", strings.Join(scales, ","))
			}
		}
		o.NoDimScales, o.NoCentroidScales = !slices.Contains(scales, "dim"), !slices.Contains(scales, "centroid")
		o.Unnormalized = noNormalize
		o.Threads, o.Memory = work.Threads, work.Memory
		o.Backend, o.Logger, o.Progress = a.backend, a.logger(), a.progress()
		if err := in.check(); err != nil {
			return err
		}
		return a.openDevice(ctx, &device, func(d kernels.Device) error {
			o.Device = d
			return a.index(ctx, args[0], &in, work, o)
		})
	})
	return cmd
}

func (a *app) index(ctx context.Context, path string, in *input, work flags.Resources, o index.BuildOptions) error {
	defer work.Limit()()
	start := a.now()
	if !in.texts.Given() {
		return in.openVectors(ctx, a.in, func(src vectors.Source, m *storage.Model) error {
			o.Model = m
			return in.docs.Named(a.buildIndex(ctx, path, src, nil, o, start))
		})
	}
	err := a.locked(ctx, func(wait time.Duration) error {
		try := o
		try.LockTimeout = wait
		return index.CanBuild(ctx, path, &try)
	})
	if err != nil {
		return err
	}
	enc, m, err := in.encoder.Open(ctx, nil, work.Threads, a.logger())
	if err != nil {
		return err
	}
	o.Model = m
	s := &spooling{app: a, encoder: enc, texts: &in.texts, path: in.texts.Spool, temporary: path + ".spool"}
	err = s.run(ctx, func(src *vectors.Spool, r *textsReport) error {
		return in.texts.Named(a.buildIndex(ctx, path, src, r, o, start))
	})
	return errors.Join(err, enc.Close())
}

func (a *app) buildIndex(ctx context.Context, path string, src vectors.Source, texts *textsReport, o index.BuildOptions, start time.Time) error {
	var r *index.BuildReport
	err := a.locked(ctx, func(wait time.Duration) (err error) {
		o.LockTimeout = wait
		r, err = index.Build(ctx, path, src, &o)
		return err
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	rep := indexReport{
		Path: path, Bytes: info.Size(), Docs: r.Docs, EmptyDocs: r.Empty, Tokens: r.Tokens, Pool: o.Pool, ZeroTokens: r.Zero, ClampedTokens: r.Clamped,
		Dim: src.Dim(), Nbits: o.Nbits, Centroids: r.Train.K, Seed: o.Seed,
		SampleDocs: r.SampleDocs, SampleTokens: r.Train.Vectors, Iterations: r.Train.Iterations, RMSE: r.RMSE,
		Encoded: texts, Model: o.Model,
	}
	rep.Seconds.Sample, rep.Seconds.Train, rep.Seconds.Encode = r.Seconds.Sample, r.Seconds.Train, r.Seconds.Encode
	rep.Seconds.Total = a.now().Sub(start).Seconds()
	if o.Centroids > rep.Centroids {
		a.warn("%d centroids were asked for, the sample of %s allows %d", o.Centroids, out.Plural(rep.SampleTokens, "token"), rep.Centroids)
	}
	a.warnOfZeros(r.Zero, r.Tokens)
	rep.NotFreed = a.notFreed(path, r.NotFreed)
	return a.report(rep, func(b *bytes.Buffer) {
		if texts != nil {
			texts.line(b)
		}
		fmt.Fprintf(b, "%s: %s (%d empty), %s of dimension %d at %s\n",
			path, out.Plural(rep.Docs, "document"), rep.EmptyDocs, out.Plural(rep.Tokens, "token"), rep.Dim, out.Plural(rep.Nbits, "bit"))
		fmt.Fprintf(b, "codec: %s, trained on %s of %s; root mean square error %.4f\n",
			out.Plural(rep.Centroids, "centroid"), out.Plural(rep.SampleTokens, "token"), out.Plural(rep.SampleDocs, "document"), rep.RMSE)
		fmt.Fprintf(b, "file:  %s\n", out.Bytes(rep.Bytes))
		fmt.Fprintf(b, "time:  %s (sample %s, train %s, encode %s)\n", out.Seconds(rep.Seconds.Total),
			out.Seconds(rep.Seconds.Sample), out.Seconds(rep.Seconds.Train), out.Seconds(rep.Seconds.Encode))
	})
}

// notFreed warns of an index that is larger than it need be.
func (a *app) notFreed(path string, err error) string {
	if err == nil {
		return ""
	}
	a.warn("the index is complete, but the space of the one before it was not freed (plaid compact %s): %v", path, err)
	return err.Error()
}
