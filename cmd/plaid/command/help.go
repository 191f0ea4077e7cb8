package command

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
)

// usualFlags are the flags that --help lists for a command with many flags, by the command's path;
// --help-all lists the others, too.
var usualFlags = map[string][]string{
	"add":  {"text", "vectors", "lengths", "ids", "metadata", "replace", "model", "window", "shard", "json"},
	"beir": {"model", "vectors", "index", "nbits", "k", "measures", "split", "run", "exclude-self", "json"},
	"bench": {"questions", "queries", "query-lengths", "k", "probes", "exact", "qrels", "vectors", "per-query",
		"json"},
	"encode": {"model", "output", "queries", "precision", "window", "overlap", "document-length", "device", "force",
		"json"},
	"explain": {"questions", "queries", "query-lengths", "query", "k", "probes", "exhaustive", "where", "model",
		"json"},
	"index":   {"text", "model", "precision", "window", "vectors", "lengths", "ids", "metadata", "nbits", "force"},
	"retrain": {"nbits", "centroids", "vectors", "lengths", "ids", "no-check", "threads", "memory", "device", "json"},
	"score": {"queries", "query-lengths", "vectors", "lengths", "ids", "candidates", "k", "normalize", "format",
		"json"},
	"search": {"k", "questions", "queries", "query-lengths", "hybrid", "keywords", "where", "show-metadata",
		"highlight", "json"},
	"serve": {"data", "store", "model", "listen", "tokens-file", "config", "print-config", "read-only", "max-memory",
		"device"},
	"tune": {"questions", "queries", "query-lengths", "k", "recall", "dry-run", "force", "reset", "threads", "json"},
	"watch": {"model", "window", "window-by", "once", "precision", "nbits", "max-file", "document-length", "device",
		"json"},
	"mcp": {"model", "data", "store", "url", "precision", "query-length", "threads", "encoder", "model-settings",
		"document-length"},

	"cluster build": {"text", "model", "precision", "window", "vectors", "lengths", "ids", "metadata", "nbits",
		"store"},
}

// usualFlagNames returns the usual flags of a command. Nil means that --help lists all of them.
func usualFlagNames(cmd *cobra.Command) []string { return usualFlags[commandPath(cmd)] }

// commandPath returns the path of a command without the name of the program.
func commandPath(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
}

// addHelpFlags adds --help, which lists the usual flags, and --help-all. A command whose flags are
// all usual accepts --help-all, too, but does not list it.
func (a *app) addHelpFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolP("help", "h", false, "describe the command")
	f.BoolFunc("help-all", "describe the command with all its flags", func(string) error {
		a.helpAll = true
		return f.Set("help", "true")
	})
	f.Lookup("help-all").Hidden = len(usualFlagNames(cmd)) == 0
}

// hideUnusualFlags wraps cobra's help of a command: it hides the flags that are not usual, unless
// --help-all was given.
func (a *app) hideUnusualFlags(help func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		names := usualFlagNames(cmd)
		hidden := 0
		hide := func(f *pflag.Flag) {
			if !slices.Contains(names, f.Name) && f.Name != "help" && f.Name != "help-all" && !f.Hidden {
				f.Hidden = true
				hidden++
			}
		}
		if !a.helpAll && len(names) > 0 {
			cmd.LocalFlags().VisitAll(hide)
			cmd.InheritedFlags().VisitAll(hide)
		}
		var text bytes.Buffer
		w := cmd.OutOrStdout()
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(w)
		for line := range strings.Lines(text.String()) { // pflag pads a column with blanks
			fmt.Fprintln(w, strings.TrimRight(line, " \n"))
		}
		switch {
		case hidden > 0:
			fmt.Fprintf(cmd.OutOrStdout(), "\n%d more flags: %s --help-all\n", hidden, cmd.CommandPath())
		case !cmd.HasParent():
			fmt.Fprintf(cmd.OutOrStdout(), "Completion in shells: %s completion --help.\n", cmd.Name())
		}
	}
}

// usageTemplate is cobra's template, with flags wrapped to the width of the terminal, and with help
// topics under the names by which the user asks for them.
func usageTemplate(root *cobra.Command, width int) string {
	return strings.NewReplacer(
		".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", width),
		// The usage of the root command shows it.
		"{{if .HasAvailableSubCommands}}\n  {{.CommandPath}} [command]{{end}}", "",
		"Additional help topics:", "Help topics:",
		"{{rpad .CommandPath .CommandPathPadding}}", root.Name()+" help {{rpad .Name .NamePadding}}",
	).Replace(root.UsageTemplate())
}

// wrapParagraphs fills the paragraphs of a text to lines of a width. A paragraph that begins with a
// blank, as a table does, stays as it is.
func wrapParagraphs(text string, width int) string {
	var paragraphs []string
	for _, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if !strings.HasPrefix(p, " ") {
			var b strings.Builder
			column := 0
			for _, word := range strings.Fields(p) {
				n := utf8.RuneCountInString(word)
				switch {
				case column > 0 && column+1+n > width:
					b.WriteByte('\n')
					column = 0
				case column > 0:
					b.WriteByte(' ')
					column++
				}
				b.WriteString(word)
				column += n
			}
			p = b.String()
		}
		paragraphs = append(paragraphs, p)
	}
	return strings.Join(paragraphs, "\n\n")
}

// helpWidth returns the width of the help: that of the terminal within bounds, or 80.
func (t *stdio) helpWidth() int {
	if t.outWidth == 0 {
		return 80
	}
	return min(max(t.outWidth, 60), 100)
}

// helpCommand returns plaid help. Cobra's own would succeed for an unknown command.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Describe a command",
		Long: "Describe a command: what it does, its usual flags, and examples. plaid help exit lists " +
			"the\nexit codes.",
		Example: "  plaid help search\n  plaid help exit",
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range a.root.Commands() {
				names = append(names, c.Name()+"\t"+c.Short)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: a.commandFunc(func(_ context.Context, args []string) error {
			cmd, rest, err := a.root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], cmd.CommandPath())
			}
			if err != nil {
				return flags.UsageError{Err: err}
			}
			return cmd.Help()
		}),
	}
}

// exitTopic returns the help topic plaid help exit.
func exitTopic() *cobra.Command {
	text := "A command ends with one of these exit codes. Errors as JSON (--json) have the word as \"reason\".\n\n"
	for _, e := range exitTable {
		text += fmt.Sprintf("  %-4d %-16s %s\n", e.code, e.word, e.description)
	}
	return &cobra.Command{Use: "exit", Short: "The exit codes", Long: text}
}
