package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// getCommand returns the command get.
func (a *app) getCommand() *cobra.Command {
	var file string
	var force bool
	var where flags.Where
	var facets []string
	var names indexNames
	o := index.FacetOptions{}
	cmd := &cobra.Command{
		Use:   "get INDEX {ID | --where CONDITION | --facet FIELD}",
		Short: "Show documents, or count the values of their fields",
		Long: `
Show a document of an index: its number in the order of insertion, its number of
tokens, its metadata, and with --output its decoded token vectors as a NumPy array of
float32 [tokens, dim]. An existing file is replaced only with --force, when the new one
is complete. If --output is /dev/stdout, nothing else is written there. The id of a
document that is stored as passages stands for its passages.

With --where, show the documents that meet the condition (docs/conditions.md), in the
order of insertion; with --json there is a line for each. There may be none.

With --facet, count how many documents have each value of a field of their metadata:
of all documents, or of those of --where. The most frequent values come first, equal
counts in the order of the values. Values are shown as JSON: the number 1, the text "1"
and true are three values. Each element of an array counts, once for each document.

` + severalHelp + ` Facets count the
documents of all files; documents are shown from one.`,
		Example: `  plaid get docs.plaid doc17
  plaid get docs.plaid doc17 --output doc17.npy
  plaid get docs.plaid --where "lang = ?" --param de --json
  plaid get docs.plaid --facet lang --facet author.name --where "year >= 2000"`,
		Args: namedArgs("INDEX", "ID…"),
	}
	f := cmd.Flags()
	f.StringVarP(&file, "output", "o", "", "`FILE`, .npy, to write the decoded vectors to")
	f.BoolVar(&force, "force", false, "replace an existing file")
	where.Register(f, "show the documents that meet it")
	f.StringArrayVar(&facets, "facet", nil,
		"count the values of this `FIELD`, such as lang or author.name; each element of a list counts; may be repeated")
	f.Var(flags.Int(&o.Values, index.DefaultFacetValues, 0), "values", "how many values of a --facet to show (0: all)")
	names.register(f)
	f.Bool("json", false, "print documents, or facets, as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		c, err := where.Condition()
		switch {
		case err != nil:
			return err
		case facets != nil && (len(args) > 1 || file != ""):
			return flags.Usagef("--facet counts documents: give no id and no --output")
		case facets != nil:
			return a.printFacets(ctx, &names, args[0], facets, c, o)
		case f.Changed("values"):
			return flags.Usagef("--values goes with --facet")
		case force && file == "":
			return flags.Usagef("--force goes with --output")
		case names.shardPaths != nil:
			return flags.Usagef("--shard goes with --facet: documents are shown of one index")
		case c != nil && len(args) > 1:
			return flags.Usagef("give an id or --where, not both")
		case c != nil && file != "":
			return flags.Usagef("--output is for one document; plaid export takes --where")
		case c == nil && len(args) != 2:
			return flags.Usagef("which document? give one id, or --where")
		}
		return a.openSnapshot(ctx, args[0], func(snap *index.Snapshot) error {
			if c != nil {
				return a.getWhere(ctx, snap, c)
			}
			return a.get(ctx, snap, args[1], file, force)
		})
	})
	return cmd
}

// get prints a document, or the passages of one, and writes its vectors to a file if that is not
// "".
func (a *app) get(ctx context.Context, snap *index.Snapshot, id, file string, force bool) error {
	ordinal, ok, err := snap.Ordinal(id)
	if err != nil {
		return err
	}
	if !ok {
		passages, err := snap.PassagesOf(id)
		switch {
		case err != nil:
			return err
		case len(passages) == 0: // NotFoundError shortens a long id
			return fmt.Errorf("%s: %w", snap.Path(), snap.NotFoundError(id))
		case file != "":
			return flags.Usagef("--output is for one document, and %s has %s", out.Quoted(id),
				out.Plural(len(passages), "passage"))
		}
		return a.showDocuments(ctx, snap, passages)
	}
	if file != "" {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && !force && !a.isStdout(file) {
			return fmt.Errorf("%s: %w; --force replaces it", file, fs.ErrExist)
		}
		v, err := snap.Vectors(ordinal)
		if err != nil {
			return err
		}
		err = a.writeFile(ctx, "output", file, snap.Path(), func(w io.Writer) error {
			return vectors.WriteNPY(w, "<f4", []int{len(v) / snap.Dim(), snap.Dim()}, v)
		})
		if err != nil || a.isStdout(file) { // text on stdout would spoil the array
			return err
		}
	}
	return a.showDocument(snap, ordinal)
}

// getWhere prints the documents that meet a condition.
func (a *app) getWhere(ctx context.Context, snap *index.Snapshot, c *condition.Condition) error {
	docs, err := snap.Select(ctx, c)
	if err != nil {
		return err
	}
	return a.showDocuments(ctx, snap, docs.ToArray())
}

// showDocuments prints live documents, one after another.
func (a *app) showDocuments(ctx context.Context, snap *index.Snapshot, docs []uint32) error {
	for i, ordinal := range docs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.showDocument(snap, ordinal); err != nil {
			return err
		}
		if !a.json && i < len(docs)-1 {
			if err := a.writeOutput([]byte{'\n'}); err != nil {
				return err
			}
		}
	}
	return nil
}

// showDocument prints a live document.
func (a *app) showDocument(snap *index.Snapshot, ordinal uint32) error {
	d, err := snap.DocumentAt(ordinal)
	if err != nil {
		return err
	}
	return a.reportTyped("document", struct {
		ID      string         `json:"id"`
		Ordinal uint32         `json:"ordinal"`
		Tokens  int            `json:"tokens"`
		Dim     int            `json:"dim"`
		Payload search.Payload `json:"metadata,omitzero"`
	}{d.ID, d.Ordinal, d.Tokens, snap.Dim(), d.Payload}, func(b *bytes.Buffer) {
		fmt.Fprintf(b, "id:       %s\n", out.Printable(d.ID, math.MaxInt))
		fmt.Fprintf(b, "ordinal:  %d\n", d.Ordinal)
		fmt.Fprintf(b, "tokens:   %d\n", d.Tokens)
		if d.Payload != nil {
			fmt.Fprintf(b, "metadata: %s\n", out.Printable(string(d.Payload), math.MaxInt))
		}
	})
}

// maxValueRunes is the number of characters of a value that are shown.
const maxValueRunes = 60

// printFacets counts the values of fields in all documents, or in those that meet c, and prints the counts.
func (a *app) printFacets(
	ctx context.Context, names *indexNames, path string, fieldNames []string, c *condition.Condition,
	o index.FacetOptions,
) (err error) {
	if o.Values == 0 {
		o.Values = math.MaxInt
	}
	fields := make([]condition.Field, len(fieldNames))
	for i, text := range fieldNames {
		if fields[i], err = condition.ParseField(text); err != nil {
			return flags.Usagef("%w", err)
		}
	}
	return a.openSearched(ctx, names, path, func(target *searchTarget) error {
		hasPassages := slices.ContainsFunc(target.shards,
			func(shard *index.Snapshot) bool { return shard.State().Passages > 0 })
		var docs []*roaring.Bitmap
		if c != nil {
			if docs, err = index.SelectAll(ctx, target.shards, c); err != nil {
				return err
			}
		}
		for i, field := range fields {
			facet, err := index.FacetAll(ctx, target.shards, field, docs, &o)
			if err != nil {
				return err
			}
			if i > 0 && !a.json {
				if err := a.writeOutput([]byte{'\n'}); err != nil {
					return err
				}
			}
			if err := a.reportTyped("facet", facet,
				func(b *bytes.Buffer) { facetText(b, facet, hasPassages) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// facetText formats the values of a field. In an index with passages each passage counts by itself.
func facetText(b *bytes.Buffer, f *index.Facet, hasPassages bool) {
	fmt.Fprintf(b, "%s: %s", out.Printable(string(f.Field), maxValueRunes), out.Ordinals(f.Docs, hasPassages))
	if f.Missing > 0 {
		fmt.Fprintf(b, ", %s without it", out.Count(f.Missing))
	}
	if f.Null > 0 {
		fmt.Fprintf(b, ", %s with null", out.Count(f.Null))
	}
	b.WriteByte('\n')
	t := out.Table{Indent: 2, LeftColumns: 1}
	for _, v := range f.Values {
		t.Line(out.Printable(v.Value.String(), maxValueRunes), out.Count(v.Docs))
	}
	t.Print(b)
	if f.Others > 0 {
		fmt.Fprintf(b, "  and %s more\n", out.Plural(f.Others, "value"))
	}
}
