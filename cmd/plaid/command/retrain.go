package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

func (a *app) retrainCommand() *cobra.Command {
	var originals flags.Documents
	var work flags.Resources
	var device flags.Device
	o := index.RetrainOptions{}
	cmd := &cobra.Command{
		Use:   "retrain INDEX",
		Short: "Train the codec of an index again, on its documents",
		Long: `
Train the codec of an index again, on the documents that it has now, encode them
with it, and replace the old file with the new one. Ids, order and metadata stay.
Meanwhile this needs as much free space as the index takes. plaid info shows whether
retraining pays: if the documents that were added since the training have a larger error
than those it was trained on, or if there are many more tokens now.

With --vectors, documents are encoded from their original vectors, by id. The others
are encoded from the stored vectors, which loses a little precision each time.
Documents of the files that the index does not have are skipped; it is an error if the
files have two different matrices for an id.

Search parameters that were stored by tune are removed. Then the recall of searches is
measured as plaid index does; --no-check skips that.`,
		Example: `  plaid retrain docs.plaid
  plaid retrain docs.plaid --vectors docs.npy --lengths doclens.npy --ids ids.txt --nbits 4`,
		Args: namedArgs("INDEX"),
	}
	f := cmd.Flags()
	originals.RegisterOriginals(f, "encode from these")
	work.Register(f)
	device.Register(f)
	var nbits int
	f.Var(flags.Nbits(&nbits), "nbits", "residual bits a component (default: as many as there are)")
	f.Lookup("nbits").DefValue = ""
	f.Var(flags.Int(&o.Centroids, 0, 0), "centroids", "number of centroids (0: by the number of tokens)")
	var noCheck bool
	f.BoolVar(&noCheck, "no-check", false, noCheckHelp)
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) (err error) {
		if f.Changed("nbits") {
			o.Nbits = nbits
		}
		o.Threads, o.Memory, o.Progress = work.Threads, work.Memory, a.progress()
		if o.Device, err = a.openDevice(ctx, &device); err != nil {
			return err
		}
		return a.retrain(ctx, args[0], &originals, work, o, !noCheck)
	})
	return cmd
}

// retrain trains the codec of an index again, encodes its documents with it, and reports the
// change.
func (a *app) retrain(ctx context.Context, path string, originals *flags.Documents, work flags.Resources,
	o index.RetrainOptions, measureRecall bool) (err error) {
	defer work.LimitMemory()()
	if originals.Given() {
		if o.Vectors, err = originals.Open(ctx, a.in, a.printWarning); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Vectors.Close()) }()
	}
	var r *index.RetrainReport
	if err := a.open(ctx, path, true, func(ix *index.Index) error {
		r, err = ix.Retrain(ctx, &o)
		return err
	}); err != nil {
		return err
	}
	var defaults *storage.Defaults
	if measureRecall {
		defaults = a.checkRecall(ctx, path, o.Threads,
			quality.SelfCheckOptions{Seed: o.Seed, OnDevice: o.Device != nil})
	}
	return a.report(struct {
		Path string `json:"path"`
		*index.RetrainReport
		Defaults *storage.Defaults `json:"search_defaults,omitempty"`
	}{path, r, defaults}, func(b *bytes.Buffer) {
		// The error against decoded vectors is smaller than that of a build, since they were rounded before.
		against := ""
		switch {
		case r.Original == 0:
			against = " against decoded vectors"
		case r.Original < r.Docs:
			against = " against original and decoded vectors"
		}
		fmt.Fprintf(b, "%s: %s, %s; %s and %s before, %s and %s now; root mean square error %.4f%s\n",
			path, out.Documents(r.Docs, r.Passages), out.Plural(r.Tokens, "token"),
			out.Plural(r.Before.Nbits, "bit"), out.Plural(r.Before.Centroids, "centroid"),
			out.Plural(r.After.Nbits, "bit"), out.Plural(r.After.Centroids, "centroid"), r.After.RMSE, against)
		if o.Vectors != nil {
			fmt.Fprintf(b, "%s from their original vectors, %s of the files not in the index\n",
				out.Plural(r.Original, "document"), out.Plural(r.Unused, "document"))
		}
		checkedLines(b, defaults)
	})
}
