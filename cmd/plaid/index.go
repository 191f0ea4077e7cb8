package main

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
)

// indexReport is what `plaid index --json` prints.
type indexReport struct {
	Path          string  `json:"path"`
	Bytes         int64   `json:"bytes"`
	Docs          int     `json:"docs"`
	EmptyDocs     int     `json:"empty_docs"`
	Tokens        int64   `json:"tokens"`
	Pool          int     `json:"pool"`
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
	Seconds       struct {
		Sample float64 `json:"sample"`
		Train  float64 `json:"train"`
		Encode float64 `json:"encode"`
		Total  float64 `json:"total"`
	} `json:"seconds"`
}

func (a *app) indexCommand() *cobra.Command {
	var docs flags.Documents
	var work flags.Resources
	var device flags.Device
	var scales []string
	o := index.BuildOptions{}
	var noNormalize bool
	cmd := &cobra.Command{
		Use:   "index INDEX --vectors FILE --lengths FILE",
		Short: "Build an index from token vectors",
		Long: withExitStatus(`
Build an index file from token vectors. A codec is trained on a sample of the
documents, then all of them are encoded, in bounded memory. The same input,
options and seed give the same index, whatever the number of threads.

An index that is there is replaced only with --force, and stays as it is, and
readable, until the new one is finished.

Sizes are bytes, or have a unit: MiB or M for 2²⁰ bytes, MB for 10⁶ and so on.`),
		Example: `  plaid index docs.plaid --vectors docs.npy --lengths doclens.npy
  plaid index docs.plaid --vectors docs.npy --lengths doclens.npy --ids ids.txt --payload corpus.jsonl
  plaid index docs.plaid --vectors a.npy --lengths a-lens.npy --vectors b.npy --lengths b-lens.npy --nbits 4 --memory 512MiB`,
		Args: takes("INDEX"),
	}
	f := cmd.Flags()
	docs.Register(f)
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
		return a.openDevice(ctx, &device, func(d kernels.Device) error {
			o.Device = d
			return a.buildIndex(ctx, args[0], &docs, work, o)
		})
	})
	return cmd
}

func (a *app) buildIndex(ctx context.Context, path string, docs *flags.Documents, work flags.Resources, o index.BuildOptions) (err error) {
	defer work.Limit()()
	start := a.now()
	src, err := docs.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	var r *index.BuildReport
	err = a.locked(ctx, func(wait time.Duration) (err error) {
		o.LockTimeout = wait
		r, err = index.Build(ctx, path, src, &o)
		return err
	})
	if err != nil {
		return docs.Named(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	rep := indexReport{
		Path: path, Bytes: info.Size(), Docs: r.Docs, EmptyDocs: r.Empty, Tokens: r.Tokens, Pool: o.Pool, ClampedTokens: r.Clamped,
		Dim: src.Dim(), Nbits: o.Nbits, Centroids: r.Train.K, Seed: o.Seed,
		SampleDocs: r.SampleDocs, SampleTokens: r.Train.Vectors, Iterations: r.Train.Iterations, RMSE: r.RMSE,
	}
	rep.Seconds.Sample, rep.Seconds.Train, rep.Seconds.Encode = r.Seconds.Sample, r.Seconds.Train, r.Seconds.Encode
	rep.Seconds.Total = a.now().Sub(start).Seconds()
	if o.Centroids > rep.Centroids {
		a.warn("%d centroids were asked for, the sample of %s allows %d", o.Centroids, out.Plural(rep.SampleTokens, "token"), rep.Centroids)
	}
	rep.NotFreed = a.notFreed(path, r.NotFreed)
	return a.report(rep, func(b *bytes.Buffer) {
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
