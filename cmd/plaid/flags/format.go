package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Format are the flags for the form of results: --format, and --json for the one
// of its words that is JSON. They exclude each other.
type Format struct {
	word   string
	json   string // the word that --json stands for
	asJSON bool
}

// Register adds the flags to a command; what says what is printed. The first word
// is the default, one that begins with json is what --json stands for.
func (o *Format) Register(cmd *cobra.Command, what string, words ...string) {
	for _, w := range words {
		if strings.HasPrefix(w, "json") {
			o.json = w
		}
	}
	cmd.Flags().Var(Choice(&o.word, words[0], words...), "format", "how to print "+what)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "the same as --format "+o.json+", and errors as JSON")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
}

// Word is the form that was chosen.
func (o *Format) Word() string {
	if o.asJSON {
		return o.json
	}
	return o.word
}

// UsageError is a command line that cannot be carried out.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Usagef makes a [UsageError].
func Usagef(format string, args ...any) error { return UsageError{Err: fmt.Errorf(format, args...)} }
