package command

import (
	"context"

	"github.com/spf13/cobra"
)

func (a *app) trainCommand() *cobra.Command {
	b := build{trainOnly: true}
	cmd := &cobra.Command{
		Use:   "train CODEC {--text FILE --model DIR | --vectors FILE --lengths FILE}",
		Short: "Train a codec alone, for indexes that are built with it",
		Long: `
Train the codec that plaid index would train on these documents, and write it to a
file of its own. Indexes that are built with it, on any number of machines, are
searched as one and can be merged: plaid index --codec CODEC (docs/scale.md).
Documents that are like all that will be indexed are enough; they need not be all.

The file is an index without documents: plaid info describes it, plaid verify checks
it, and plaid add fills it.

` + textsRead + "\n\n" + spoolHelp,
		Example: `  plaid train codec.plaid --vectors sample.npy --lengths sample-lens.npy
  plaid train codec.plaid --text sample.jsonl --model answerai-colbert-small-v1 --nbits 4
  plaid index part-000.plaid --vectors a.npy --lengths a-lens.npy --ids a-ids.txt --codec codec.plaid`,
		Args: takes("CODEC"),
	}
	f := cmd.Flags()
	b.register(f)
	cmd.RunE = a.command(func(ctx context.Context, args []string) error { return a.build(ctx, f, args[0], &b) })
	return cmd
}
