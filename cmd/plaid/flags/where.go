package flags

import (
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Where are the flags of a condition over the metadata of documents.
type Where struct {
	text   string
	params []string
	set    *pflag.FlagSet
}

// Register adds the flags. what says what is done with the documents that match.
func (w *Where) Register(f *pflag.FlagSet, what string) {
	w.set = f
	f.StringVar(&w.text, "where", "", "`CONDITION` over the metadata, such as \"year >= ? AND lang IN (?, 'en')\": "+what)
	f.StringArrayVar(&w.params, "param", nil, "`VALUE` of the next ? of --where; repeat it. It is text, which equals a number of that look")
}

// Text is the condition as it was written, with its values.
func (w *Where) Text() (text string, params []string) { return w.text, w.params }

// Condition is what the flags say, nil without --where.
func (w *Where) Condition() (*condition.Condition, error) {
	if !w.set.Changed("where") {
		if w.params != nil {
			return nil, Usagef("--param goes with --where")
		}
		return nil, nil
	}
	e, err := condition.Parse(w.text)
	if err != nil {
		return nil, Usagef("--where: %w", err)
	}
	params := make([]any, len(w.params))
	for i, p := range w.params {
		params[i] = p
	}
	c, err := e.Bind(params...)
	if err != nil {
		return nil, Usagef("--where: %w", err)
	}
	return c, nil
}
