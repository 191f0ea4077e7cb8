package command

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// shownValue is how many characters of a value are shown.
const shownValue = 60

func (a *app) facetsCommand() *cobra.Command {
	var o index.FacetOptions
	var where flags.Where
	var names indexes
	cmd := &cobra.Command{
		Use:   "facets INDEX FIELD…",
		Short: "Count the values of fields",
		Long: `
Count how many documents have each value of a field of their payload
(docs/conditions.md): all documents, or with --where those that meet a condition. The values of the most documents come first, equal counts in the order of the
values. They are shown as JSON: the number 1, the text "1" and true are three values.

Of an array each element counts, once a document. Documents without the field are
counted as missing, and those with null in it as null.

` + severalHelp,
		Example: `  plaid facets docs.plaid lang year
  plaid facets docs.plaid author.name --where "year >= ?" --param 2000 --values 20
  plaid facets docs.plaid '"publication date"' --values 0 --json`,
		Args: takes("INDEX", "FIELD", "FIELD…"),
	}
	f := cmd.Flags()
	names.register(f)
	where.Register(f, "count the documents that meet it")
	f.IntVar(&o.Values, "values", index.DefaultFacetValues, "how many values of a field to show; 0: all")
	f.Var(flags.Size(&o.Memory, index.DefaultFacetMemory), "memory", "budget for the distinct values of a field; more of them are an error")
	f.Bool("json", false, "print each field as JSON")
	cmd.RunE = a.command(func(ctx context.Context, args []string) error {
		c, err := where.Condition()
		switch {
		case err != nil:
			return err
		case o.Values < 0:
			return flags.Usagef("--values %d: at least 0 is needed", o.Values)
		case o.Values == 0:
			o.Values = math.MaxInt
		}
		fields := make([]condition.Field, len(args)-1)
		for i, text := range args[1:] {
			if fields[i], err = condition.ParseField(text); err != nil {
				return flags.Usagef("%w", err)
			}
		}
		return a.openSearched(ctx, &names, args[0], func(x *searched) error {
			var docs []*roaring.Bitmap
			if c != nil {
				if docs, err = index.SelectAll(ctx, x.snapshots(), c); err != nil {
					return err
				}
			}
			for i, field := range fields {
				facet, err := index.FacetAll(ctx, x.snapshots(), field, docs, &o)
				if err != nil {
					return err
				}
				if i > 0 && !a.json {
					if err := a.print([]byte{'\n'}); err != nil {
						return err
					}
				}
				if err := a.reportAs("facet", facet, func(b *bytes.Buffer) { facetText(b, facet) }); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return cmd
}

func facetText(b *bytes.Buffer, f *index.Facet) {
	fmt.Fprintf(b, "%s: %s", out.Printable(string(f.Field), shownValue), out.Plural(f.Docs, "document"))
	if f.Missing > 0 {
		fmt.Fprintf(b, ", %s without it", out.Count(f.Missing))
	}
	if f.Null > 0 {
		fmt.Fprintf(b, ", %s with null", out.Count(f.Null))
	}
	b.WriteByte('\n')
	t := out.Table{Indent: 2, Left: 1}
	for _, v := range f.Values {
		t.Line(out.Printable(v.Value.String(), shownValue), out.Count(v.Docs))
	}
	t.Print(b)
	if f.Others > 0 {
		fmt.Fprintf(b, "  and %s more\n", out.Plural(f.Others, "value"))
	}
}
