package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
)

func (a *app) updateCommand() *cobra.Command {
	var where flags.Where
	var set []string
	var names indexNames
	cmd := &cobra.Command{
		Use:   "update INDEX {ID… | --where CONDITION} --set FIELD=JSON…",
		Short: "Set fields in the metadata of documents",
		Long: `
Set fields in the metadata of the documents that meet a condition
(docs/conditions.md), all in one step; 1=1 selects all. Vectors, ids and other fields
stay as they are. A document without metadata gets some; if the metadata of one is not a
JSON object, nothing is changed.

Instead of a condition, you can give ids of documents. The id of a document that is
stored as passages stands for its passages; unknown ids are skipped.

The value of a field is JSON: 3, true, null, or text in double quotes. Any name of a
field can be put in double quotes, as in conditions: '"a=b"=3'. A name with dots is a
key with dots. Fields within an object cannot be set by themselves: set the whole object.

` + severalHelp + ` A field of the
condition need only be in one of them.`,
		Example: `  plaid update docs.plaid --where "_id IN (?, ?)" --param doc17 --param doc18 --set reviewed=true
  plaid update docs.plaid --where "lang IS NULL" --set 'lang="en"' --set year=2024`,
		Args: namedArgs("INDEX", "…"),
	}
	f := cmd.Flags()
	names.register(f)
	where.Register(f, "change the documents that meet it")
	f.StringArrayVar(&set, "set", nil, "`FIELD=JSON` to set; may be repeated")
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) error {
		c, err := where.Condition()
		switch {
		case err != nil:
			return err
		case c != nil && len(args) > 1:
			return flags.Usagef("give ids or --where, not both")
		case c == nil && len(args) == 1:
			return flags.Usagef("give ids or --where; --where 1=1 takes all documents")
		case len(set) == 0:
			return flags.Usagef("--set is missing")
		}
		fields, err := parseFields(set)
		if err != nil {
			return err
		}
		return a.openForChange(ctx, &names, args[0], func(ix changeableIndex) error {
			var updated index.Affected
			var err error
			if c != nil {
				updated, err = ix.UpdatePayload(ctx, c, fields)
			} else {
				updated, _, err = ix.UpdateByID(ctx, args[1:], fields)
			}
			if err != nil {
				return err
			}
			return a.report(struct {
				Path     string `json:"path"`
				Updated  int    `json:"updated"`
				Passages int    `json:"passages"`
			}{args[0], updated.Documents, updated.Passages}, func(b *bytes.Buffer) {
				fmt.Fprintf(b, "updated %s\n", out.Documents(updated.Documents, updated.Passages))
			})
		})
	})
	return cmd
}

// cutField cuts FIELD=JSON. A field in double quotes may have any characters, as in conditions; any
// other field ends at the first "=".
func cutField(s string) (name, value string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		name, value, ok = strings.Cut(s, "=")
		return name, value, ok && name != ""
	}
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != '"':
		case strings.HasPrefix(s[i+1:], `"`):
			i++
		default:
			value, ok = strings.CutPrefix(s[i+1:], "=")
			return strings.ReplaceAll(s[1:i], `""`, `"`), value, ok
		}
	}
	return "", "", false
}

// parseFields reads the values of --set, each FIELD=JSON.
func parseFields(set []string) (condition.Fields, error) {
	fields := condition.Fields{}
	for _, s := range set {
		name, value, ok := cutField(s)
		switch {
		case !ok:
			return nil, flags.Usagef("--set %s: FIELD=JSON is needed", out.Quoted(s))
		case !json.Valid([]byte(value)):
			return nil, flags.Usagef("--set %s: the value is not JSON; text is in double quotes, which must "+
				"be quoted for the shell: '%s=%q'", out.Quoted(s), name, value)
		case fields[name] != nil:
			return nil, flags.Usagef("--set: %s twice", out.Quoted(name))
		}
		fields[name] = json.RawMessage(value)
	}
	return fields, nil
}
