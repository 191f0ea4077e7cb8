package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

func (a *app) addCommand() *cobra.Command {
	var in input
	var work flags.Resources
	var replace bool
	var names indexNames
	cmd := &cobra.Command{
		Use:   "add INDEX {--text FILE | --vectors FILE [--lengths FILE] [--ids FILE]}",
		Short: "Add documents to an index",
		Long: `
Add documents to an index, all of them or none. They are compressed with the codec
of the index. The report compares their error with that of the build: a much larger
error means that they are unlike the documents that the codec was trained on.

Texts are encoded by the model that the index names; --model gives its folder if it
was moved. Vectors of another model, as --vectors-model names it, are refused.

` + textsHelp + addsOnDevice + `

An id that is in the index already is an error. With --replace, the new document
replaces the old one, and keeps its metadata if it has none of its own. The new
passages of a text replace all old ones; a text that now fits into one passage
replaces them, too.

` + severalHelp + ` A document goes to
the file that has its id, or else to a file that the hash of the id selects. Each file
is changed in one step; if one fails, the files before it are already changed.`,
		Example: `  plaid add docs.plaid --text more.jsonl
  plaid add docs.plaid --vectors more.npy --lengths more-lens.npy --ids more-ids.txt
  plaid add docs.plaid --vectors new.jsonl --replace`,
		Args: namedArgs("INDEX"),
	}
	f := cmd.Flags()
	in.register(f)
	in.registerStored(f)
	in.device.RegisterEncoding(f)
	work.Register(f)
	names.register(f)
	f.BoolVar(&replace, "replace", false, "replace documents with the same id")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) (err error) {
		if err := in.checkFlags(); err != nil {
			return err
		}
		o := index.AddOptions{
			Replace:     replace,
			KeepPayload: !in.texts.Drop,
			Threads:     work.Threads,
			Memory:      work.Memory,
			Progress:    a.progress(),
		}
		return a.add(ctx, &names, args[0], &in, work, o)
	})
	return cmd
}

// add adds documents to an index: vectors as they are, or texts after encoding them.
func (a *app) add(ctx context.Context, names *indexNames, path string, in *input, work flags.Resources,
	o index.AddOptions) error {
	defer work.LimitMemory()()
	if !in.texts.Given() {
		return in.openVectors(ctx, a.in, a.printWarning, func(src vectors.Source, m *storage.Model) error {
			o.Model = m
			return a.addDocuments(ctx, names, path, src, nil, o, true)
		})
	}
	if err := a.checkChangeable(ctx, names, path); err != nil {
		return err
	}
	// Check the texts while the index is open for reading. It is closed while they are encoded,
	// since that takes long; on a device, they are encoded while the index takes them.
	s := &spooling{
		app:           a,
		texts:         &in.texts,
		spoolPath:     in.texts.Spool,
		temporaryPath: filepath.Clean(path) + ".add.spool",
	}
	var streamed *encode.Collection
	var report *textsReport
	err := a.openSearched(ctx, names, path, func(target *searchTarget) (err error) {
		snap := target.snap
		var m *storage.Model
		if s.encoder, m, err = a.openEncoder(ctx, &in.encoder, snap.Path(),
			flags.Opening{IndexModel: snap.Header().Model, Threads: work.Threads,
				OpenDevice: a.deviceOpener(&in.device)}); err != nil {
			return err
		}
		if err := checkDimensionKnown(snap); err != nil {
			return err
		}
		if d := s.encoder.Dim(); d != snap.Dim() {
			return fmt.Errorf("%s: %w: the model has %d, the index %d", m.Name, index.ErrDimension, d, snap.Dim())
		}
		o.Model = m
		if snap.Header().Model == nil {
			a.printWarning("%s does not name the model of its vectors: scores are meaningful only if it was %v",
				snap.Path(), m)
		}
		s.admit = func(ctx context.Context, documents []index.Arrival) error {
			_, err := index.NewAdmission(target.shards...).Admit(ctx, documents, o.Replace)
			return err
		}
		// Each of several indexes would read all texts.
		if !target.hasSeveralFiles() && s.canStream(snap.Header().Build.Pool) {
			if streamed, report, err = s.collect(ctx); err == nil {
				report.added = true
			}
			return err
		}
		return s.survey(ctx)
	})
	// From here on the index is closed: open it again for each check of documents that arrive.
	s.admit = func(ctx context.Context, documents []index.Arrival) error {
		return a.admitNow(ctx, names, path, documents, o.Replace)
	}
	switch {
	case err != nil:
	case streamed != nil:
		err = errors.Join(a.addDocuments(ctx, names, path, streamed, report, o, false), streamed.Close())
	default:
		err = s.run(ctx, func(src *encode.Spooled, r *textsReport) error {
			return a.addDocuments(ctx, names, path, src, r, o, false)
		})
	}
	if s.encoder != nil {
		err = errors.Join(err, s.encoder.Close())
	}
	return err
}

// admitNow refuses documents that the index, as it is now, does not accept. While another program
// writes to the index it refuses none: the index checks the documents again when they are stored.
func (a *app) admitNow(
	ctx context.Context, names *indexNames, path string, documents []index.Arrival, replace bool,
) (err error) {
	paths, err := names.indexPaths(path)
	if err != nil {
		return err
	}
	shards, err := index.OpenShards(ctx, paths, &index.Options{})
	if errors.Is(err, storage.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shards.Close()) }()
	snap, err := shards.Snapshot()
	if err != nil {
		return err
	}
	_, err = index.NewAdmission(snap.Snapshots()...).Admit(ctx, documents, replace)
	return errors.Join(err, snap.Close())
}

// checkChangeable opens the index for writing and closes it again, so that a reason why it cannot be
// changed is found before texts are read.
func (a *app) checkChangeable(ctx context.Context, names *indexNames, path string) error {
	return a.openForChange(ctx, names, path, func(changeableIndex) error { return nil })
}

// addDocuments adds a source of vectors to an index and reports it. texts is the report on their
// encoding, or nil. With hintModel it tells the user if nothing shows that the vectors come from
// the model of the index.
func (a *app) addDocuments(ctx context.Context, names *indexNames, path string, src vectors.Source,
	texts *textsReport, o index.AddOptions, hintModel bool) error {
	report := func(r *index.AddReport, ix *index.Index) error {
		a.warnOfZeros(r.Zero, r.Tokens)
		if hintModel && o.Model == nil {
			if err := a.hintAtModel(ix); err != nil {
				return err
			}
		}
		return a.report(struct {
			Path          string       `json:"path"`
			Docs          int          `json:"docs"`
			Passages      int          `json:"passages"`
			EmptyDocs     int          `json:"empty_docs"`
			Replaced      int          `json:"replaced"`
			KeptPayloads  int          `json:"kept_metadata"`
			Tokens        int64        `json:"tokens"`
			ZeroTokens    int64        `json:"zero_tokens"`
			ClampedTokens int          `json:"clamped_tokens"`
			RMSE          float64      `json:"rmse"`
			BuildRMSE     float64      `json:"build_rmse"` // 0 if unknown, as for an imported index
			Encoded       *textsReport `json:"encoded,omitempty"`
		}{
			path, r.Docs, r.Passages, r.Empty, r.Replaced, r.KeptPayloads, r.Tokens, r.Zero, r.Clamped, r.RMSE,
			r.BuildRMSE, texts,
		},
			func(b *bytes.Buffer) {
				if texts != nil {
					texts.writeLine(b)
				}
				fmt.Fprintf(b, "added %s (%d empty, %d replaced), %s; root mean square error %.4f",
					out.Documents(r.Docs, r.Passages), r.Empty, r.Replaced, out.Plural(r.Tokens, "token"), r.RMSE)
				if r.BuildRMSE > 0 {
					fmt.Fprintf(b, " (%.4f when the index was built)", r.BuildRMSE)
				}
				b.WriteByte('\n')
				if r.KeptPayloads > 0 {
					fmt.Fprintf(b, "%s the metadata of the document that was replaced\n",
						out.Plural(r.KeptPayloads, "document keeps", "documents keep"))
				}
			})
	}
	return a.openShards(ctx, names, path, true, func(shards *index.Shards) error {
		if files := shards.Files(); len(files) == 1 {
			r, err := files[0].Add(ctx, src, &o)
			if err != nil {
				return err
			}
			return report(r, files[0])
		}
		r, err := shards.Add(ctx, src, &o)
		if err != nil {
			return err
		}
		return report(&r.AddReport, shards.Files()[0]) // all files have the same model
	})
}

// warnOfZeros warns of token vectors that are zero, and are probably padding.
func (t *stdio) warnOfZeros(zero, tokens int64) {
	if zero > 0 {
		t.printWarning("%s of %s zero, and score 0 with everything: are they padding? --lengths gives the number "+
			"of real tokens",
			out.Count(zero),
			out.Plural(tokens, "token vector is", "token vectors are"))
	}
}

// hintAtModel tells the user that the model of the added vectors is unknown while that of the index
// is known.
func (a *app) hintAtModel(ix *index.Index) error {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	if m := snap.Header().Model; m != nil {
		a.printHint("%s was made with %v; with --vectors-model, plaid checks that the vectors were, too", ix.Path(), m)
	}
	return snap.Close()
}
