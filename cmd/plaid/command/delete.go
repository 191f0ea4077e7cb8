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
	var names indexes
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "delete INDEX {ID… | --ids FILE | --where CONDITION}",
		Short: "Delete documents from an index",
		Long: `
Delete documents by id, all in one step. Ids that are not there are named, and
change the exit code: 3 if other documents were deleted, 4 if none was. With
--where, delete the documents that meet a condition (docs/conditions.md), which may
be none.

--dry-run says how many documents that are, and deletes none. On a terminal, you are
asked before all documents of an index go; --yes answers.

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
	where.Register(f, "delete the documents that meet it")
	f.BoolVar(&dryRun, "dry-run", false, "delete nothing, and say how many documents there are")
	f.BoolVar(&yes, "yes", false, "do not ask before all documents are deleted")
	f.Bool("json", false, "print the report as JSON")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "yes")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		path := args[0]
		remove, err := newDeletion(ctx, &where, idFile, args[1:])
		if err != nil {
			return err
		}
		if dryRun {
			return a.countDeletion(ctx, &names, path, remove)
		}
		if !yes && a.asks {
			if err := a.askBeforeAll(ctx, &names, path, remove); err != nil {
				return err
			}
		}
		return a.change(ctx, &names, path, func(ix changeable) error {
			n, missing, err := remove.do(ctx, ix)
			if err != nil {
				return err
			}
			missing = distinct(missing)
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

// deletion is of the documents that a command line names: by a condition, or else by ids.
type deletion struct {
	where *condition.Condition
	ids   []string
}

func (d *deletion) do(ctx context.Context, ix changeable) (deleted index.Affected, missing []string, err error) {
	if d.where != nil {
		deleted, err = ix.DeleteWhere(ctx, d.where)
		return deleted, nil, err
	}
	return ix.Delete(ctx, d.ids)
}

// count counts the documents and passages that would be deleted, and all documents, and lists
// unknown ids.
func (d *deletion) count(ctx context.Context, x *searched) (n index.Affected, all int, missing []string, err error) {
	for _, s := range x.parts {
		all += s.Documents()
	}
	add := func(s *index.Snapshot, docs *roaring.Bitmap) error {
		more, err := s.CountDeleted(ctx, docs, docs)
		n.Add(more)
		return err
	}
	if d.where != nil {
		docs, err := index.SelectAll(ctx, x.parts, d.where)
		for i := range docs {
			err = errors.Join(err, add(x.parts[i], docs[i]))
		}
		return n, all, nil, err
	}
	for _, s := range x.parts {
		docs, none, err := s.Named(ctx, d.ids)
		if err == nil {
			err = add(s, docs)
		}
		if err != nil {
			return n, 0, nil, err
		}
		if missing == nil {
			missing = append([]string{}, none...)
		} else { // what no index has
			missing = slices.DeleteFunc(missing, func(id string) bool { return !slices.Contains(none, id) })
		}
	}
	return n, all, missing, nil
}

// countDeletion says what a deletion would do.
func (a *app) countDeletion(ctx context.Context, names *indexes, path string, d *deletion) error {
	return a.openSearched(ctx, names, path, func(x *searched) error {
		n, all, missing, err := d.count(ctx, x)
		if err != nil {
			return err
		}
		missing = distinct(missing)
		err = a.report(struct {
			Path     string   `json:"path"`
			Would    int      `json:"would_delete"`
			Passages int      `json:"passages"`
			Docs     int      `json:"docs"`
			Missing  []string `json:"missing"`
		}{path, n.Documents, n.Passages, all, missing}, func(b *bytes.Buffer) {
			fmt.Fprintf(b, "of %s, %s would be deleted\n", out.Plural(all, "document"), out.Documents(n.Documents, n.Passages))
		})
		if err != nil {
			return err
		}
		return missingError(n, missing)
	})
}

// askBeforeAll asks whether all documents may go, if they would.
func (a *app) askBeforeAll(ctx context.Context, names *indexes, path string, d *deletion) error {
	var n index.Affected
	var all int
	err := a.openSearched(ctx, names, path, func(x *searched) (err error) {
		n, all, _, err = d.count(ctx, x)
		return err
	})
	if err != nil || n.Documents < all || all == 0 {
		return err
	}
	return a.ask(ctx, fmt.Sprintf("This deletes all %s of %s.", out.Plural(all, "document"), out.Printable(path, 200)))
}

// ask lets a person at a terminal decide whether something is deleted.
func (a *app) ask(ctx context.Context, what string) error {
	fmt.Fprintf(a.console, "%s Go on? [y/N] ", what)
	answer, err := bufio.NewReader(files.ContextReader(ctx, a.in)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
		return errors.New("nothing is deleted")
	}
	return nil
}

// newDeletion is that of a condition, or of the ids that are given or in a file.
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

// distinct sorts ids, and leaves one of each; never nil.
func distinct(ids []string) []string {
	return append([]string{}, slices.Compact(slices.Sorted(slices.Values(ids)))...)
}

// missingError names the ids that were not there, the first of them at least.
func missingError(deleted index.Affected, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	kind := fmt.Errorf("%w: not in the index", errPartial)
	if deleted == (index.Affected{}) {
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
	hint := ""
	if slices.ContainsFunc(missing, func(id string) bool { return condition.Spellings(id) != nil }) {
		hint = "; ids are compared by their bytes, and Unicode writes é as one character or as two"
	}
	return fmt.Errorf("%w: [%s]%s%s", kind, strings.Join(shown, " "), more, hint)
}

// changeable is an index, or several that are changed as one.
type changeable interface {
	Delete(ctx context.Context, ids []string) (deleted index.Affected, missing []string, err error)
	DeleteWhere(ctx context.Context, where *condition.Condition) (deleted index.Affected, err error)
	UpdatePayload(ctx context.Context, where *condition.Condition,
		set condition.Fields) (updated index.Affected, err error)
	UpdateNamed(ctx context.Context, ids []string,
		set condition.Fields) (updated index.Affected, missing []string, err error)
}

// change opens one index, or several, for writing.
func (op *opener) change(ctx context.Context, names *indexes, path string, use func(changeable) error) error {
	return op.openSet(ctx, names, path, true, func(set *index.Shards) error {
		if files := set.Files(); len(files) == 1 {
			return use(files[0])
		}
		return use(set)
	})
}
