package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func (a *app) beirCommand() *cobra.Command {
	var o beir.Options
	var work flags.Resources
	var effort flags.Effort
	var format flags.Format
	in := beirInput{app: a}
	var exhaustive bool
	var run string
	cmd := &cobra.Command{
		Use:   "beir DIR {--model MODEL | --vectors DIR}",
		Short: "Index, search and evaluate a test collection",
		Long: `
Index, search and evaluate a test collection in BEIR's layout, and print a table of
measures. With --model, the texts of DIR are encoded: corpus.jsonl and queries.jsonl,
each also as .gz, .zst or .xz. With --vectors, only the judgements of DIR are read,
qrels/SPLIT.tsv. The folder of --vectors has docs and queries as .npy, .npz,
.safetensors or .jsonl, and, if these files contain no lengths and ids, also
doclens.npy, doc_ids.txt, querylens.npy and query_ids.txt.

Every judged query counts; one without vectors counts 0. An existing --index is
searched as it is, with the parameters that are stored in it; it is an error if build
flags contradict it. A new one is kept.`,
		Example: `  plaid beir scifact --model answerdotai/answerai-colbert-small-v1
  plaid beir scifact --vectors scifact/vectors
  plaid beir arguana --vectors arguana/vectors --exclude-self --index arguana.plaid --run arguana.trec
  plaid beir scifact --vectors scifact/vectors --nbits 4 --exhaustive --json`,
		Args: namedArgs("DIR"),
	}
	f := cmd.Flags()
	in.encoder.RegisterDocuments(f)
	in.encoder.RegisterQueryLength(f)
	f.StringVar(&in.spool, "spool", "", "`FILE` to keep the vectors of the documents in: further runs with the same "+
		"model do not encode them again (default: one in the folder of temporary files, or INDEX.spool with --index, "+
		"removed when the index is complete; none with --device)")
	f.StringVar(&in.vectors, "vectors", "", "`DIR` with the vectors of documents and queries")
	f.StringVar(&o.Split, "split", "test", "`NAME` of the judgements: qrels/NAME.tsv")
	f.StringVar(&o.Index, "index", "", "`FILE` to keep the index in (default: a temporary one)")
	f.Var(flags.Nbits(&o.Build.Nbits), "nbits", "residual bits a component")
	f.Var(flags.Int(&o.Build.Centroids, 0, 0), "centroids", "number of centroids (0: by the number of tokens)")
	f.VarP(flags.Int(&o.Search.K, 100, 1), "k", "k",
		"how many documents to find for a query, at least as many as the measures look at")
	f.BoolVar(&exhaustive, "exhaustive", false, "score all documents, not those that pruning leaves")
	effort.Register(f)
	f.Var(flags.Measures(&o.Measures), "measures", "measures to compute, by the names of ir_measures")
	flags.ExcludeSelf(f, &o.Eval.ExcludeSelf)
	f.StringVar(&run, "run", "",
		"write the results as a run to `FILE`: of four columns and a header if its name ends in .tsv, else TREC's six")
	format.Register(cmd, "results", "table", "json")
	work.Register(f)
	in.device.RegisterSearching(f)
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) (err error) {
		in.dir = args[0]
		if err := in.checkFlags(); err != nil {
			return err
		}
		if err := a.checkOutput("run", run); err != nil {
			return err
		}
		if run != "" {
			o.CheckID = func(what, id string) error {
				err := runLayout(run).CheckID(what, id)
				if err != nil && runLayout(run) == eval.TREC {
					err = fmt.Errorf("--run %s: %w: a name that ends in .tsv makes tabs separate them", run, err)
				}
				return err
			}
		}
		if err := a.checkSameBuild(ctx, cmd.Flags(), &o); err != nil {
			return err
		}
		if exhaustive {
			o.Search.Mode = search.Exhaustive
		}
		effort.Apply(&o.Search)
		o.Build.Memory, o.Threads = work.Memory, work.Threads
		o.Build.Logger, o.Open.Logger = a.logger(), a.logger()
		o.Progress = a.progress()
		return a.runBEIR(ctx, &in, run, &format, work, o)
	})
	return cmd
}

// checkSameBuild returns an error if build flags contradict an existing index, which is searched as
// it is, or if no index can be created at the path.
func (a *app) checkSameBuild(ctx context.Context, f *pflag.FlagSet, o *beir.Options) error {
	if o.Index == "" {
		return nil
	}
	if _, err := os.Stat(o.Index); err != nil { // a new index
		return a.checkOutput("index", o.Index)
	}
	return a.openSnapshot(ctx, o.Index, func(snap *index.Snapshot) error {
		h := snap.Header()
		for _, setting := range []struct {
			flag              string
			requested, stored uint64
		}{
			{"nbits", uint64(o.Build.Nbits), uint64(h.Nbits)},
			{"centroids", uint64(o.Build.Centroids), uint64(h.Centroids)},
		} {
			if f.Changed(setting.flag) && setting.requested != setting.stored &&
				!(setting.flag == "centroids" && setting.requested == 0) {
				return flags.Usagef("%s exists and has %d, which contradicts --%s %d; name another "+
					"--index, or leave the flag out", o.Index, setting.stored, setting.flag, setting.requested)
			}
		}
		return nil
	})
}

// runBEIR indexes and searches a test collection and prints its measures.
func (a *app) runBEIR(ctx context.Context, in *beirInput, run string, format *flags.Format, work flags.Resources,
	o beir.Options) (err error) {
	defer work.LimitMemory()()
	var r *beir.Report
	o.Build.LockTimeout, o.Open.LockTimeout = a.lockTimeout, a.lockTimeout
	err = in.open(ctx, &o, func(v beir.Vectors) (err error) {
		if o.Device, err = a.openDevice(ctx, &in.device); err != nil {
			return err
		}
		o.Build.Device = o.Device
		r, err = beir.Run(ctx, in.dir, v, o)
		return err
	})
	if err != nil {
		return err
	}
	if run != "" {
		err := a.writeFile(ctx, "run", run, o.Index, func(w io.Writer) error {
			return runLayout(run).WriteRun(w, r.Run)
		})
		if err != nil {
			return err
		}
	}
	if r.Reused {
		a.printWarning("%s existed already, and was searched as it is", o.Index)
	}
	if r.Unsearched > 0 {
		a.printWarning("%s no vectors: they count 0",
			out.Plural(r.Unsearched, "judged query has", "judged queries have"))
	}
	if r.QueriesAreDocuments() && !o.Eval.ExcludeSelf {
		a.printWarning("%s of %s has its own id first: the queries are documents, as in ArguAna, for which "+
			"measures are published with --exclude-self",
			out.Count(r.Result.SelfFirst), out.Queries(r.Result.Count(eval.AverageEvaluated)))
	}
	measures := map[string]float64{}
	for i, m := range r.Result.Measures {
		measures[m.String()] = r.Result.Means[i]
	}
	return a.reportFormatted(format, struct {
		*beir.Report
		Measures map[string]float64 `json:"measures"`
		Encoded  *textsReport       `json:"encoded,omitempty"`
	}{r, measures, in.encoded}, func() []byte { return beirTable(r, in.encoded) })
}

// beirTable formats the result of plaid beir.
func beirTable(r *beir.Report, encoded *textsReport) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s: %s, %s, %s\n\n", r.Collection, r.Split, out.Documents(r.Docs, r.Passages),
		out.Plural(r.Tokens, "token"),
		out.Plural(r.Queries, "judged query", "judged queries"))
	t := out.Table{LeftColumns: 1}
	for i, m := range r.Result.Measures {
		t.Line(m.String())
		t.Remark(out.FourDecimals(r.Result.Means[i]))
	}
	t.Print(&b)
	fmt.Fprintln(&b)
	if r.Missing > 0 {
		fmt.Fprintf(&b, "judged, but not in the index: %s\n", out.Plural(r.Missing, "document"))
	}
	if encoded != nil {
		encoded.writeLine(&b)
	}
	build := "was there"
	if !r.Reused {
		build = "built in " + out.Seconds(r.Seconds.Build)
	}
	fmt.Fprintf(&b, "index:  %s, %s\n", out.Bytes(r.Bytes), build)
	n := r.Stats.Queries
	fmt.Fprintf(&b, "search: k = %d, %s in %s, %.0f a second; of one p50 %.2f ms, p95 %.2f ms\n", r.K, out.Queries(n),
		out.Seconds(r.Seconds.Search), float64(n)/r.Seconds.Search, out.Milliseconds(r.Latency.P50),
		out.Milliseconds(r.Latency.P95))
	fmt.Fprintf(&b, "all:    %s\n", out.Seconds(r.Seconds.Total))
	return b.Bytes()
}

// beirInput provides the vectors for plaid beir: from a folder, or by encoding the texts of the
// collection.
type beirInput struct {
	app            *app
	dir            string
	vectors, spool string
	encoder        flags.Encoder
	device         flags.Device
	// encoded is the report on the encoding, or nil if vectors were given.
	encoded *textsReport
}

// checkFlags returns an error for flags that do not go together.
func (c *beirInput) checkFlags() error {
	switch {
	case c.vectors == "" && !c.encoder.HasModel():
		return flags.Usagef("--model or --vectors is missing (or --encoder, the address of a server)")
	case c.vectors != "" && (c.encoder.FirstGiven() != "" || c.spool != ""):
		return flags.Usagef("--vectors does not go with --model and the flags of the encoder")
	}
	return nil
}

// open opens the vectors, or prepares the encoding of the texts, and hands them to use.
func (c *beirInput) open(ctx context.Context, o *beir.Options, use func(beir.Vectors) error) (err error) {
	if c.vectors != "" {
		v, err := beir.Folder(c.vectors)
		if err != nil {
			return err
		}
		return use(v)
	}
	// Find the texts and open the model.
	corpus, err := c.findFile("corpus.jsonl")
	if err != nil {
		return err
	}
	queries, err := c.findFile("queries.jsonl")
	if err != nil {
		return err
	}
	enc, model, err := c.app.openEncoder(ctx, &c.encoder, "",
		flags.Opening{Threads: o.Threads, OpenDevice: c.app.deviceOpener(&c.device)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, enc.Close()) }()
	// Prepare the encoding of the documents.
	s := &spooling{
		app:       c.app,
		encoder:   enc,
		texts:     &flags.Texts{Paths: []string{corpus}, Drop: o.Index == ""},
		spoolPath: c.spool,
	}
	// Check ids before texts are encoded.
	if o.CheckID != nil {
		s.admit = func(_ context.Context, documents []index.Arrival) error {
			for i, d := range documents {
				if err := o.CheckID("document", d.ID); err != nil {
					return &index.ArrivalError{Row: i, ID: d.ID, Err: err}
				}
			}
			return nil
		}
	}
	if s.temporaryPath = o.Index + ".spool"; o.Index == "" {
		if s.temporaryPath, err = temporarySpool(corpus, enc); err != nil {
			return err
		}
		s.untilEnd = true
	}
	// Read judgements and queries: their errors end the command before documents are encoded.
	qrels, err := eval.LoadSplit(c.dir, o.Split)
	if err != nil {
		return err
	}
	texts := (&encode.Reader{Format: encode.FormatJSONL}).Texts(ctx, queries)
	queryTexts, err := readQueries(filterTexts(texts, qrels.Judged), enc, queries)
	if err != nil {
		return err
	}
	if len(queryTexts) == 0 {
		return beir.NoneJudgedError(queries)
	}
	return s.finish(use(beir.Vectors{
		Docs: func(ctx context.Context, use func(vectors.Source) error) error {
			return s.withVectors(ctx, s.canStream(o.Build.Pool),
				func(src vectors.Source, _ string, r *textsReport) error {
					c.encoded = r
					return use(src)
				})
		},
		Queries: func(ctx context.Context, _ func(string) bool, use func(vectors.Source) error) error {
			q, err := c.app.encodeQueries(ctx, enc, encode.Texts(queryTexts...), queries, false)
			if err != nil {
				return err
			}
			return errors.Join(use(q), q.Close())
		},
		Model:       model,
		DocsName:    corpus,
		QueriesName: queries,
	}))
}

// temporarySpool returns the file that keeps the vectors of a collection if no flag names one. It
// depends on the user, the texts and the model, so that the same command continues from it.
func temporarySpool(corpus string, e *encode.Encoder) (string, error) {
	path, err := filepath.Abs(corpus)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%s\n%s", os.Getuid(), path, e.Config().Fingerprint))
	return filepath.Join(os.TempDir(), fmt.Sprintf("plaid-beir-%x.spool", sum[:8])), nil
}

// findFile returns the path of a file of the collection, which may be compressed.
func (c *beirInput) findFile(name string) (string, error) {
	path := filepath.Join(c.dir, name)
	for _, suffix := range append([]string{""}, files.PackedSuffixes()...) {
		if _, err := os.Stat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			return path + suffix, err
		}
	}
	if _, err := os.Stat(c.dir); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s is not a BEIR folder: no %s: %w", c.dir, name, fs.ErrNotExist)
}

// runLayout returns the layout of a run by the name of its file.
func runLayout(file string) eval.Layout {
	if strings.EqualFold(filepath.Ext(file), ".tsv") {
		return eval.TSV
	}
	return eval.TREC
}

// filterTexts passes on errors and the texts whose ids keep accepts.
func filterTexts(texts iter.Seq2[encode.Text, error], keep func(id string) bool) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for t, err := range texts {
			if (err != nil || keep(t.ID)) && !yield(t, err) {
				return
			}
		}
	}
}
