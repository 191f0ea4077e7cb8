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
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// indexReport is what `plaid index --json` prints.
type indexReport struct {
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"`
	Docs      int    `json:"docs"`
	Passages  int    `json:"passages"`
	EmptyDocs int    `json:"empty_docs"`
	Tokens    int64  `json:"tokens"`
	Pool      int    `json:"pool"`
	// PoolBy is the method of pooling, if it is not that of similar tokens.
	PoolBy        string  `json:"pool_by,omitempty"`
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
	// Defaults are the search parameters that the self-check has stored, or nil without a check.
	Defaults *storage.Defaults `json:"search_defaults,omitempty"`
	// Codec is the file whose codec was used. "" means that one was trained.
	Codec string `json:"codec,omitempty"`
	// Encoded reports on the encoding of texts, or nil for vectors.
	Encoded *textsReport `json:"encoded,omitempty"`
	// Resumed is the number of documents that an interrupted build had encoded.
	Resumed int            `json:"resumed_docs,omitempty"`
	Model   *storage.Model `json:"model,omitempty"`
	Seconds buildSeconds   `json:"seconds"`
}

// buildSeconds are the times of the stages of a build. Open is the time to open devices, files and
// models, Check that of the self-check, and Other the rest of Total.
type buildSeconds struct {
	Open   float64 `json:"open"`
	Texts  float64 `json:"texts"`
	Sample float64 `json:"sample"`
	Train  float64 `json:"train"`
	Encode float64 `json:"encode"`
	Check  float64 `json:"check"`
	Other  float64 `json:"other"`
	Total  float64 `json:"total"`
}

// writeLine writes: time: 4.8s (open 700ms, texts 500ms, sample 400ms, train 2.6s, compress 500ms,
// check 100ms).
func (s *buildSeconds) writeLine(b *bytes.Buffer) {
	var parts []string
	for _, stage := range []struct {
		name    string
		seconds float64
	}{{"open", s.Open}, {"texts", s.Texts}, {"sample", s.Sample}, {"train", s.Train}, {"compress", s.Encode},
		{"check", s.Check}, {"other", s.Other}} {
		if stage.seconds >= s.Total/200 { // half a percent
			parts = append(parts, stage.name+" "+out.Seconds(stage.seconds))
		}
	}
	fmt.Fprintf(b, "time:  %s (%s)\n", out.Seconds(s.Total), strings.Join(parts, ", "))
}

// buildFlags holds the flags of commands that train a codec and build an index with it.
type buildFlags struct {
	input       input
	work        flags.Resources
	device      flags.Device
	options     index.BuildOptions
	scales      []string
	noNormalize bool
	// codec is the file whose codec is used. "" means that one is trained.
	codec     string
	trainOnly bool
	noCheck   bool
	// begin is when the build began, and opened when its inputs were open.
	begin, opened time.Time
}

func (b *buildFlags) register(f *pflag.FlagSet) {
	o := &b.options
	b.input.register(f)
	b.work.Register(f)
	b.device.Register(f)
	f.Var(flags.Nbits(&o.Nbits), "nbits", "residual bits a component")
	f.Var(flags.Int(&o.Centroids, 0, 0), "centroids",
		"number of centroids (0: by the number of tokens, at most what the sample allows)")
	f.Var(flags.Int(&o.SampleDocs, 0, 0), "sample-docs", "documents to train on (0: by their number)")
	f.Uint64Var(&o.Seed, "seed", 0, "`N` that decides every random choice")
	f.StringSliceVar(&b.scales, "scales", []string{"dim", "centroid"},
		"`LIST` of scales of residuals to fit, separated by a comma: for each dim, for each centroid, or none")
	f.Lookup("scales").DefValue = strings.Join(b.scales, ",")
	f.Var(flags.Int(&o.Pool, 1, 1), "pool", "merge about this many similar token vectors of a document into their "+
		"mean (1: keep all)")
	var methods []string
	for _, m := range pool.Methods() {
		methods = append(methods, string(m))
	}
	f.Var(flags.Choice((*string)(&o.PoolBy), string(pool.Similar), methods...), "pool-by",
		"`METHOD` of --pool: similar tokens; of pages of pictures tiles, cells in squares (4: 2 × 2), or "+
			"neighbours, similar cells that touch")
	f.BoolVar(&b.noNormalize, "no-normalize", false, "do not scale vectors to unit length")
	f.Bool("json", false, "print the report as JSON")
}

// codecFlags are the flags that determine the codec.
var codecFlags = []string{"nbits", "centroids", "sample-docs", "seed", "scales", "pool", "pool-by", "no-normalize"}

// finishOptions checks the flags and derives the options from them.
func (b *buildFlags) finishOptions(a *app, f *pflag.FlagSet) error {
	for _, s := range b.scales {
		if !slices.Contains([]string{"dim", "centroid", "none"}, s) || s == "none" && len(b.scales) > 1 {
			return flags.Usagef("--scales %s: there is dim, centroid or both, and none", strings.Join(b.scales, ","))
		}
	}
	if b.codec != "" {
		for _, name := range codecFlags {
			if f.Changed(name) {
				return flags.Usagef("--%s goes with a codec that is trained, not with --codec", name)
			}
		}
		b.options.Nbits = 0
	}
	o := &b.options
	o.NoDimScales, o.NoCentroidScales = !slices.Contains(b.scales, "dim"), !slices.Contains(b.scales, "centroid")
	o.Unnormalized = b.noNormalize
	o.Threads, o.Memory = b.work.Threads, b.work.Memory
	o.LockTimeout, o.Logger, o.Progress = a.lockTimeout, a.logger(), a.progress()
	if b.trainOnly {
		for _, name := range []string{"codec", "resume", "no-check", "drop-text", "metadata"} {
			if f.Changed(name) {
				return flags.Usagef("--%s does not go with --codec-only", name)
			}
		}
	}
	if o.Resume && b.input.texts.Given() {
		return flags.Usagef("--resume is for vectors: with texts, repeat the command and it resumes")
	}
	return b.input.checkFlags()
}

func (a *app) indexCommand() *cobra.Command {
	var b buildFlags
	var starter starterFlags
	cmd := &cobra.Command{
		Use:   "index INDEX {--text FILE --model MODEL | --vectors FILE [--lengths FILE] [--ids FILE]}",
		Short: "Build an index from texts or token vectors",
		Long: `
Build an index file from texts, which a model encodes, or from token vectors. A codec
is trained on a sample of the documents, then all of them are compressed, in bounded
memory. The same input, options and seed give the same index, whatever the number of
threads.

` + textsHelp + buildsOnDevice + `

The index stores the fingerprint of the model, its folder and its precision: plaid
add and plaid search open that model, and refuse another one.

With --codec-only, INDEX is a codec alone, an index without documents. Train it on
documents that are like those to come. --codec uses it, or the codec of another index,
instead of training one; texts are then encoded by the model that it names. Indexes of
one codec, built on any number of machines, are searched as one, and plaid reshard
merges them (docs/scale.md).

A build from vectors that was killed, or interrupted with --resume, leaves the documents
that it has encoded: with --resume, the same command continues from there and makes the
same index, as long as the files have the same size and time, and the options, such as
--memory, are the same. Without --resume, it starts over.

Finally plaid makes test questions from the documents and measures recall@10 and
recall@100 against exhaustive search. The result is stored, with the effort that searches
need, and plaid info shows it. These questions are about as hard as real ones; plaid
tune measures those of your users. Small indexes are not checked, and --no-check skips
the check.

An existing index is replaced only with --force, and can be read until the new one is
complete. With --until-eof, the build ends when stdin does. That is for a program that
starts the build and holds the other end of a pipe, which closes however the program
ends; --temporary then removes a folder.

Sizes are bytes, or have a unit: MiB or M for 2²⁰ bytes, MB for 10⁶ and so on.`,
		Example: `  plaid index docs.plaid --text corpus.jsonl --model answerdotai/answerai-colbert-small-v1
  plaid index notes.plaid --text notes --model ./colbert --precision int8 --window 180 --overlap 30
  plaid index docs.plaid --vectors docs.npy --lengths doclens.npy
  plaid index docs.plaid --vectors docs.npy --lengths doclens.npy --ids ids.txt --metadata corpus.jsonl
  plaid index docs.plaid --vectors a.npy --lengths a-lens.npy --vectors b.npy --lengths b-lens.npy --nbits 4
  plaid index codec.plaid --vectors sample.npy --lengths sample-lens.npy --codec-only
  plaid index shard-000.plaid --vectors a.npy --lengths a-lens.npy --ids a-ids.txt --codec codec.plaid`,
		Args: namedArgs("INDEX"),
	}
	f := cmd.Flags()
	b.register(f)
	b.input.registerStored(f)
	f.BoolVar(&b.options.Force, "force", false, "replace an existing index")
	f.BoolVar(&b.options.Resume, "resume", false, "continue an interrupted build from the same files, or, if this "+
		"build is interrupted, leave it so that it can be continued")
	f.BoolVar(&b.noCheck, "no-check", false, noCheckHelp)
	f.StringVar(&b.codec, "codec", "", "`FILE` with the codec to use: an index, or the output of --codec-only")
	f.BoolVar(&b.trainOnly, "codec-only", false,
		"train the codec and store no documents: for further indexes with --codec")
	starter.register(f, "build")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		return starter.run(ctx, a, func(ctx context.Context) error { return a.buildFile(ctx, f, args[0], &b) })
	})
	return cmd
}

// buildFile runs a command that trains a codec or builds an index file.
func (a *app) buildFile(ctx context.Context, f *pflag.FlagSet, path string, b *buildFlags) error {
	if err := b.finishOptions(a, f); err != nil {
		return err
	}
	if err := checkSingleFile(path); err != nil {
		return err
	}
	check := func(o *index.BuildOptions) error { return index.CanBuild(ctx, path, o) }
	use := func(src vectors.Source, texts *textsReport, o index.BuildOptions) error {
		return a.buildIndex(ctx, path, src, texts, b, o)
	}
	if b.codec == "" {
		return a.openAndBuild(ctx, path, b, check, use)
	}
	return a.openSnapshot(ctx, b.codec, func(snap *index.Snapshot) error {
		b.options.Like = snap
		return a.openAndBuild(ctx, path, b, check, use)
	})
}

// openAndBuild opens the documents that the flags name, as a source of vectors, and hands them to
// use with the options of the build. The spool of texts lies next to path. Before texts are encoded
// it calls check, which returns an error if the index could not be written.
func (a *app) openAndBuild(ctx context.Context, path string, b *buildFlags, check func(*index.BuildOptions) error,
	use func(src vectors.Source, texts *textsReport, o index.BuildOptions) error) (err error) {
	input, work := &b.input, &b.work
	defer work.LimitMemory()()
	b.begin = a.now()
	if b.options.Device, err = a.openDevice(ctx, &b.device); err != nil {
		return err
	}
	o := b.options
	// Vectors are read from files.
	if !input.texts.Given() {
		if o.Input, err = input.docs.Identity(); err != nil {
			return err
		}
		if o.Input == "" && o.Resume {
			return flags.Usagef("--resume needs files, not pipes")
		}
		return input.openVectors(ctx, a.in, a.printWarning, func(src vectors.Source, m *storage.Model) error {
			o.Model, b.opened = m, a.now()
			return input.docs.WithFileNames(use(src, nil, o))
		})
	}
	// Texts are encoded: by the model of the codec, if a codec is given.
	if err := check(&o); err != nil {
		return err
	}
	var codecModel *storage.Model
	if o.Like != nil {
		codecModel = o.Like.Header().Model
	}
	enc, m, err := a.openEncoder(ctx, &input.encoder, "",
		flags.Opening{IndexModel: codecModel, Threads: work.Threads, OpenDevice: a.deviceOpener(&b.device)})
	if err != nil {
		return err
	}
	o.Model, b.opened = m, a.now()
	s := &spooling{
		app:           a,
		encoder:       enc,
		texts:         &input.texts,
		spoolPath:     input.texts.Spool,
		temporaryPath: path + ".spool",
	}
	poolFactor := o.Pool
	if o.Like != nil {
		poolFactor = o.Like.Header().Build.Pool
	}
	err = s.withVectors(ctx, !b.trainOnly && s.canStream(poolFactor),
		func(src vectors.Source, tag string, r *textsReport) error {
			if tag != "" {
				o.Input, o.Resume = tag, true
			}
			return input.texts.WithFileNames(use(src, r, o))
		})
	return errors.Join(err, enc.Close())
}

// buildIndex builds the index, measures its recall, and reports both.
func (a *app) buildIndex(ctx context.Context, path string, src vectors.Source, texts *textsReport, b *buildFlags,
	o index.BuildOptions) error {
	begin := a.now()
	build := index.Build
	if b.trainOnly {
		build = index.Train
	}
	r, err := build(ctx, path, src, &o)
	if err != nil {
		if resumable := (*index.ResumableError)(nil); errors.As(err, &resumable) {
			a.printHint("%s encoded in %s: repeat the command to continue from there",
				out.Plural(resumable.Docs, "document or passage is", "documents or passages are"), path)
		}
		return err
	}
	// Measure the recall of searches.
	built := a.now()
	var defaults *storage.Defaults
	if !b.trainOnly && !b.noCheck {
		defaults = a.checkRecall(ctx, path, o.Threads,
			quality.SelfCheckOptions{Seed: o.Seed, OnDevice: o.Device != nil})
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	// Report the new index, with the settings of the codec if one was given.
	rep := indexReport{
		Path:          path,
		Bytes:         info.Size(),
		Docs:          r.Docs,
		Passages:      r.Passages,
		EmptyDocs:     r.Empty,
		Tokens:        r.Tokens,
		Pool:          o.Pool,
		ZeroTokens:    r.Zero,
		ClampedTokens: r.Clamped,
		Dim:           src.Dim(),
		Nbits:         o.Nbits,
		Centroids:     r.Train.K,
		Seed:          o.Seed,
		SampleDocs:    r.SampleDocs,
		SampleTokens:  r.Train.Vectors,
		Iterations:    r.Train.Iterations,
		RMSE:          r.RMSE,
		Encoded:       texts,
		Model:         o.Model,
		Codec:         b.codec,
		Resumed:       r.Resumed,
		Defaults:      defaults,
	}
	if o.PoolBy.NeedsPage() {
		rep.PoolBy = string(o.PoolBy)
	}
	if o.Like != nil {
		h := o.Like.Header()
		rep.Nbits, rep.Centroids = h.Nbits, h.Centroids
		rep.Pool, rep.PoolBy, rep.Seed = max(h.Build.Pool, 1), h.Build.PoolBy, h.Build.Seed
	}
	end, seconds := a.now(), &rep.Seconds
	*seconds = buildSeconds{
		Open:   b.opened.Sub(b.begin).Seconds(),
		Texts:  begin.Sub(b.opened).Seconds(),
		Check:  end.Sub(built).Seconds(),
		Total:  end.Sub(b.begin).Seconds(),
		Sample: r.Seconds.Sample,
		Train:  r.Seconds.Train,
		Encode: r.Seconds.Encode,
	}
	stages := seconds.Open + seconds.Texts + seconds.Sample + seconds.Train + seconds.Encode + seconds.Check
	seconds.Other = max(seconds.Total-stages, 0)
	if o.Centroids > rep.Centroids {
		a.printWarning("--centroids %d: the sample of %s allows only %d", o.Centroids,
			out.Plural(rep.SampleTokens, "token"), rep.Centroids)
	}
	a.warnOfZeros(r.Zero, r.Tokens)
	rep.NotFreed = a.warnNotFreed(path, r.NotFreed)
	return a.report(rep, func(text *bytes.Buffer) {
		if texts != nil {
			texts.writeLine(text)
		}
		if b.trainOnly {
			fmt.Fprintf(text, "%s: a codec, from ", path)
		} else {
			fmt.Fprintf(text, "%s: ", path)
		}
		fmt.Fprintf(text, "%s (%d empty), %s of dimension %d at %s\n",
			out.Documents(rep.Docs, rep.Passages), rep.EmptyDocs, out.Plural(rep.Tokens, "token"), rep.Dim,
			out.Plural(rep.Nbits, "bit"))
		if rep.Resumed > 0 {
			fmt.Fprintf(text, "resumed: %s had been encoded already\n", out.Ordinals(rep.Resumed, rep.Passages > 0))
		}
		if rep.Codec != "" {
			fmt.Fprintf(text, "codec: that of %s, %s; root mean square error %.4f\n", rep.Codec,
				out.Plural(rep.Centroids, "centroid"), rep.RMSE)
		} else {
			fmt.Fprintf(text, "codec: %s, trained on %s of %s; root mean square error %.4f\n",
				out.Plural(rep.Centroids, "centroid"), out.Plural(rep.SampleTokens, "token"),
				out.Ordinals(rep.SampleDocs, rep.Passages > 0), rep.RMSE)
		}
		fmt.Fprintf(text, "file:  %s\n", out.Bytes(rep.Bytes))
		checkedLines(text, rep.Defaults)
		rep.Seconds.writeLine(text)
	})
}

// warnNotFreed warns of an index that is larger than it needs to be, and returns the text of err;
// "" if err is nil.
func (a *app) warnNotFreed(path string, err error) string {
	if err == nil {
		return ""
	}
	a.printWarning("the index is complete, but the space of the old one was not freed (plaid compact %s frees it): %v",
		path, err)
	return err.Error()
}
