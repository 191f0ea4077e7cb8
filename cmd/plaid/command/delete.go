package command

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/internal/cli/out"
	"github.com/plaid-ir/plaid/metadata/condition"
	"github.com/plaid-ir/plaid/vectors"
)

func (a *app) deleteCommand() *cobra.Command {
	var idFile string
	var where flags.Where
	var names indexes
	cmd := &cobra.Command{
		Use:   "delete INDEX {ID… | --ids FILE | --where CONDITION}",
		Short: "Delete documents from an index",
		Long: `
Delete documents by id, all in one step. Ids that are not there are named, and
change the exit status: 3 if other documents were deleted, 4 if none was. With
--where, the documents are deleted of which the condition is true
(docs/conditions.md), which may be none.

The space is given back by plaid compact.

` + severalHelp + ` Every file that has an
id loses it.`,
		Example: `  plaid delete docs.plaid doc17 doc18
  plaid delete docs.plaid --ids old.txt
  plaid delete docs.plaid --where "year < ? OR lang IS NULL" --param 1990`,
		Args: takes("INDEX", "ID…"),
	}
	f := cmd.Flags()
	names.register(f)
	f.StringVar(&idFile, "ids", "", "`FILE` with one id a line")
	where.Register(f, "delete the documents of which it is true")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		path := args[0]
		remove, err := newDeletion(ctx, &where, idFile, args[1:])
		if err != nil {
			return err
		}
		return a.change(ctx, &names, path, func(ix changeable) error {
			n, missing, err := remove(ctx, ix)
			if err != nil {
				return err
			}
			missing = append([]string{}, slices.Compact(slices.Sorted(slices.Values(missing)))...)
			err = a.report(struct {
				Path    string   `json:"path"`
				Deleted int      `json:"deleted"`
				Missing []string `json:"missing"`
			}{path, n, missing}, func(b *bytes.Buffer) { fmt.Fprintf(b, "deleted %s\n", out.Plural(n, "document")) })
			if err != nil {
				return err
			}
			return missingError(n, missing)
		})
	})
	return cmd
}

// deletion deletes the documents that a command line names.
type deletion func(ctx context.Context, ix changeable) (deleted int, missing []string, err error)

// newDeletion is that of a condition, or of the ids that are given or in a file.
func newDeletion(ctx context.Context, where *flags.Where, idFile string, ids []string) (deletion, error) {
	matching, err := where.Condition()
	switch {
	case err != nil:
		return nil, err
	case matching != nil && (idFile != "" || len(ids) > 0):
		return nil, flags.Usagef("give ids or --where, not both: \"_id IN (…)\" names documents in a condition")
	case matching != nil:
		return func(ctx context.Context, ix changeable) (int, []string, error) {
			n, err := ix.DeleteWhere(ctx, matching)
			return n, nil, err
		}, nil
	case idFile != "" && len(ids) > 0:
		return nil, flags.Usagef("give ids or --ids, not both")
	case idFile != "":
		ids, err = vectors.ReadIDList(ctx, idFile)
	case len(ids) == 0:
		err = flags.Usagef("which documents? give ids, --ids or --where")
	}
	return func(ctx context.Context, ix changeable) (int, []string, error) { return ix.Delete(ctx, ids) }, err
}

// missingError names the ids that were not there, the first of them at least.
func missingError(deleted int, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	kind := errPartial
	if deleted == 0 {
		kind = errNotFound
	}
	const most = 10
	more := ""
	if len(missing) > most {
		more = fmt.Sprintf(" and %d more", len(missing)-most)
	}
	var shown []string
	for _, id := range missing[:min(len(missing), most)] {
		shown = append(shown, out.Quoted(id))
	}
	return fmt.Errorf("%w: not in the index: [%s]%s", kind, strings.Join(shown, " "), more)
}

// changeable is an index, or several that are changed as one.
type changeable interface {
	Delete(ctx context.Context, ids []string) (deleted int, missing []string, err error)
	DeleteWhere(ctx context.Context, where *condition.Condition) (deleted int, err error)
	UpdatePayload(ctx context.Context, where *condition.Condition, set condition.Fields) (updated int, err error)
}

// change opens one index, or several, for writing.
func (op *opener) change(ctx context.Context, names *indexes, path string, use func(changeable) error) error {
	paths, err := names.paths(path)
	if err != nil {
		return err
	}
	if len(paths) == 1 {
		return op.open(ctx, paths[0], true, func(ix *index.Index) error { return use(ix) })
	}
	return op.openSet(ctx, paths, true, func(set *index.Set) error { return use(set) })
}
