package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

func (a *app) deleteCommand() *cobra.Command {
	var idFile string
	var where flags.Where
	var names indexNames
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "delete INDEX {ID… | --ids FILE | --where CONDITION}",
		Short: "Delete documents from an index",
		Long: `
Delete documents by id, all in one step. Ids that the index does not have are listed,
and change the exit code: 3 if other documents were deleted, 4 if none was. With
--where, delete the documents that meet a condition (docs/conditions.md); there may be
none.

--dry-run only counts the documents. On a terminal, you are asked before all documents
of an index are deleted, unless --yes is given.

plaid compact frees the space.

` + severalHelp + ` An id is deleted
in every file that has it.`,
		Example: `  plaid delete docs.plaid doc17 doc18
  plaid delete docs.plaid --ids old.txt
  plaid delete docs.plaid --where "year < ? OR lang IS NULL" --param 1990`,
		Args: namedArgs("INDEX", "ID…"),
	}
	f := cmd.Flags()
	names.register(f)
	f.StringVar(&idFile, "ids", "", "`FILE` with one id a line")
	where.Register(f, "delete the documents that meet it")
	f.BoolVar(&dryRun, "dry-run", false, "only count the documents that would be deleted")
	f.BoolVar(&yes, "yes", false, "do not ask before deleting all documents")
	f.Bool("json", false, "print the report as JSON")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "yes")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		path := args[0]
		deletion, err := newDeletion(ctx, &where, idFile, args[1:])
		if err != nil {
			return err
		}
		if dryRun {
			return a.countDeletion(ctx, &names, path, deletion)
		}
		if !yes && a.interactive {
			if err := a.confirmDeletingAll(ctx, &names, path, deletion); err != nil {
				return err
			}
		}
		return a.openForChange(ctx, &names, path, func(ix changeableIndex) error {
			n, missing, err := deletion.deleteFrom(ctx, ix)
			if err != nil {
				return err
			}
			missing = sortedUnique(missing)
			err = a.report(struct {
				Path     string   `json:"path"`
				Deleted  int      `json:"deleted"`
				Passages int      `json:"passages"`
				Missing  []string `json:"missing"`
			}{path, n.Documents, n.Passages, missing}, func(b *bytes.Buffer) {
				if n.Documents+n.Passages > 0 || len(missing) == 0 {
					fmt.Fprintf(b, "deleted %s\n", out.Documents(n.Documents, n.Passages))
				}
			})
			if err != nil {
				return err
			}
			return missingError(n, missing)
		})
	})
	return cmd
}

// deletion names the documents to delete: those that meet a condition, or else those with ids.
type deletion struct {
	where *condition.Condition
	ids   []string
}

// deleteFrom deletes the documents. missing are the ids that the index does not have.
func (d *deletion) deleteFrom(
	ctx context.Context, ix changeableIndex,
) (deleted index.Affected, missing []string, err error) {
	if d.where != nil {
		deleted, err = ix.DeleteWhere(ctx, d.where)
		return deleted, nil, err
	}
	return ix.Delete(ctx, d.ids)
}

// countDocuments counts the documents and passages that would be deleted (n) and all documents
// (total), and lists unknown ids.
func (d *deletion) countDocuments(
	ctx context.Context, target *searchTarget,
) (n index.Affected, total int, missing []string, err error) {
	for _, s := range target.shards {
		total += s.Documents()
	}
	add := func(s *index.Snapshot, docs *roaring.Bitmap) error {
		deleted, err := s.CountDeleted(ctx, docs, docs)
		n.Add(deleted)
		return err
	}
	if d.where != nil {
		docs, err := index.SelectAll(ctx, target.shards, d.where)
		for i := range docs {
			err = errors.Join(err, add(target.shards[i], docs[i]))
		}
		return n, total, nil, err
	}
	for _, s := range target.shards {
		docs, unknown, err := s.OrdinalsOfIDs(ctx, d.ids)
		if err == nil {
			err = add(s, docs)
		}
		if err != nil {
			return n, 0, nil, err
		}
		if missing == nil {
			missing = append([]string{}, unknown...)
		} else { // keep the ids that no index has
			missing = slices.DeleteFunc(missing, func(id string) bool { return !slices.Contains(unknown, id) })
		}
	}
	return n, total, missing, nil
}

// countDeletion reports what a deletion would do.
func (a *app) countDeletion(ctx context.Context, names *indexNames, path string, d *deletion) error {
	return a.openSearched(ctx, names, path, func(target *searchTarget) error {
		n, total, missing, err := d.countDocuments(ctx, target)
		if err != nil {
			return err
		}
		missing = sortedUnique(missing)
		err = a.report(struct {
			Path     string   `json:"path"`
			Would    int      `json:"would_delete"`
			Passages int      `json:"passages"`
			Docs     int      `json:"docs"`
			Missing  []string `json:"missing"`
		}{path, n.Documents, n.Passages, total, missing}, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "of %s, %s would be deleted\n", out.Plural(total, "document"),
				out.Documents(n.Documents, n.Passages))
		})
		if err != nil {
			return err
		}
		return missingError(n, missing)
	})
}

// confirmDeletingAll asks the user if the deletion concerns all documents of the index.
func (a *app) confirmDeletingAll(ctx context.Context, names *indexNames, path string, d *deletion) error {
	var n index.Affected
	var total int
	err := a.openSearched(ctx, names, path, func(target *searchTarget) (err error) {
		n, total, _, err = d.countDocuments(ctx, target)
		return err
	})
	if err != nil || n.Documents < total || total == 0 {
		return err
	}
	return a.confirm(ctx, fmt.Sprintf("This deletes all %s of %s.", out.Plural(total, "document"),
		out.Printable(path, 200)))
}

// confirm describes an effect to the user at the terminal and returns an error unless the answer is
// yes.
func (a *app) confirm(ctx context.Context, effect string) error {
	fmt.Fprintf(a.console, "%s Go on? [y/N] ", effect)
	answer, err := bufio.NewReader(files.ContextReader(ctx, a.in)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
		return errors.New("nothing is deleted")
	}
	return nil
}

// newDeletion returns the deletion that the command line describes: by a condition, by the ids in a
// file, or by ids as arguments.
func newDeletion(ctx context.Context, where *flags.Where, idFile string, ids []string) (*deletion, error) {
	matching, err := where.Condition()
	switch {
	case err != nil:
		return nil, err
	case matching != nil && (idFile != "" || len(ids) > 0):
		return nil, flags.Usagef("give ids or --where, not both: \"_id IN (…)\" names documents in a condition")
	case matching != nil:
		return &deletion{where: matching}, nil
	case idFile != "" && len(ids) > 0:
		return nil, flags.Usagef("give ids or --ids, not both")
	case idFile != "":
		ids, err = vectors.ReadIDList(ctx, idFile)
	case len(ids) == 0:
		err = flags.Usagef("which documents? give ids, --ids or --where")
	}
	return &deletion{ids: ids}, err
}

// sortedUnique returns the distinct ids in order; never nil.
func sortedUnique(ids []string) []string {
	return append([]string{}, slices.Compact(slices.Sorted(slices.Values(ids)))...)
}

// missingError returns an error that names the first of the missing ids: [errPartial] if other
// documents were deleted, or else [errNotFound]. It is nil if none is missing.
func missingError(deleted index.Affected, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	reason := fmt.Errorf("%w: not in the index", errPartial)
	if deleted == (index.Affected{}) {
		reason = errNotFound
	}
	const maxShown = 10
	omitted := ""
	if len(missing) > maxShown {
		omitted = fmt.Sprintf(" and %d more", len(missing)-maxShown)
	}
	var shown []string
	for _, id := range missing[:min(len(missing), maxShown)] {
		shown = append(shown, out.Quoted(id))
	}
	hint := ""
	if slices.ContainsFunc(missing, func(id string) bool { return condition.Spellings(id) != nil }) {
		hint = "; ids are compared by their bytes, and Unicode writes é as one character or as two"
	}
	return fmt.Errorf("%w: [%s]%s%s", reason, strings.Join(shown, " "), omitted, hint)
}

// changeableIndex is an index, or several that are changed as one.
type changeableIndex interface {
	Delete(ctx context.Context, ids []string) (deleted index.Affected, missing []string, err error)
	DeleteWhere(ctx context.Context, where *condition.Condition) (deleted index.Affected, err error)
	UpdatePayload(ctx context.Context, where *condition.Condition,
		set condition.Fields) (updated index.Affected, err error)
	UpdateByID(ctx context.Context, ids []string,
		set condition.Fields) (updated index.Affected, missing []string, err error)
}

// openForChange opens one index, or several, for writing and hands it to use.
func (op *opener) openForChange(ctx context.Context, names *indexNames, path string,
	use func(changeableIndex) error) error {
	return op.openShards(ctx, names, path, true, func(shards *index.Shards) error {
		if files := shards.Files(); len(files) == 1 {
			return use(files[0])
		}
		return use(shards)
	})
}
