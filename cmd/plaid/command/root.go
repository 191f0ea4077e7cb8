package command

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/nearest"
)

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "plaid COMMAND",
		Short: "Late-interaction retrieval in one file",
		Long: `
plaid searches documents that are matrices of token vectors, as ColBERT and its
relatives make them. An index is one file of compressed vectors; a search finds
the documents whose MaxSim score for a query is highest.

Texts are encoded by a late-interaction model from its folder. Vectors that were
made elsewhere come from .npy, .npz, .safetensors or .jsonl files. Results go to
stdout, everything else to stderr.`,
		Example: `  plaid index docs.plaid --text corpus.jsonl --model answerai-colbert-small-v1
  plaid search docs.plaid 'what makes cells divide?'
  plaid index docs.plaid --vectors docs.npy --lengths doclens.npy --ids ids.txt
  plaid search docs.plaid --queries queries.npy -k 10
  plaid info docs.plaid`,
		Version:       index.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(*cobra.Command, []string) error { return errors.New("no command is given") },

		DisableSuggestions: true, // complain has better ones
	}
	a.root = root
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.console)
	root.SetVersionTemplate("plaid {{.Version}}\n")
	f := root.PersistentFlags()
	f.BoolVarP(&a.quiet, "quiet", "q", false, "no progress and no warnings")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log to stderr what is done, and how long each stage takes")
	f.Var(flags.Choice(&a.color, "auto", "auto", "always", "never"), "color", "colours in results: auto is on a terminal, unless NO_COLOR is set")
	f.Var(flags.Duration(&a.lockTimeout), "lock-timeout", "how long to wait for another process that has the index locked")
	f.StringVar(&a.backend, "backend", "", "`NAME` of the kernels to compute with (default: the best there is; plaid version lists them)")
	for _, g := range a.groups() {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
			if c.Name() == "help" {
				root.SetHelpCommand(c)
			}
		}
	}
	a.instead(root)
	root.AddCommand(exitTopic())
	root.SetHelpFunc(a.help)
	root.SetUsageFunc(func(c *cobra.Command) error { a.help(c, nil); return nil })
	finish(root)
	a.completions(root)
	return root
}

// group is commands that belong together in the help.
type group struct {
	title    string
	commands []*cobra.Command
}

func (a *app) groups() []group {
	groups := []group{
		{"Make an index", []*cobra.Command{
			a.indexCommand(), a.addCommand(), a.watchCommand(), a.trainCommand(), a.mergeCommand(), a.splitCommand(), a.importCommand(), a.encodeCommand(), a.modelCommand(),
		}},
		{"Search", []*cobra.Command{
			a.searchCommand(), a.explainCommand(), a.getCommand(), a.facetsCommand(), a.scoreCommand(), a.serveCommand(), a.mcpCommand(),
		}},
		{"Measure", []*cobra.Command{
			a.evalCommand(), a.compareCommand(), a.beirCommand(), a.recallCommand(), a.benchCommand(), a.tuneCommand(),
		}},
		{"Look after an index", []*cobra.Command{
			a.infoCommand(), a.verifyCommand(), a.backupCommand(), a.exportCommand(), a.deleteCommand(), a.updateCommand(), a.compactCommand(),
			a.retrainCommand(), a.keywordsCommand(),
		}},
		{"This program", []*cobra.Command{
			a.helpCommand(), a.completionCommand(), a.manCommand(), a.versionCommand(),
		}},
	}
	for _, x := range a.extensions {
		groups = append(groups, group{x.Title, x.Commands(App{a})})
	}
	return groups
}

// finish makes texts fit for what prints them, and lets no flag that has one value be
// given twice.
func finish(cmd *cobra.Command) {
	cmd.Long = strings.TrimSpace(cmd.Long)
	cmd.Flags().BoolP("help", "h", false, "describe the command")
	once := func(f *pflag.Flag) {
		if _, list := f.Value.(pflag.SliceValue); !list {
			f.Value = flags.Once(f.Value)
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(once)
	cmd.PersistentFlags().VisitAll(once)
	for _, c := range cmd.Commands() {
		finish(c)
	}
}

// helpCommand is plaid help.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Describe a command",
		Long: `
Describe a command: what it does, its flags, and examples. plaid help exit lists
the exit codes.`,
		Example: `  plaid help search
  plaid help exit`,
		Args: takes("COMMAND…"),
		RunE: a.command(func(_ context.Context, args []string) error {
			cmd := a.root
			for _, name := range args {
				var next *cobra.Command
				for _, c := range cmd.Commands() {
					if c.Name() == name {
						next = c
					}
				}
				if next == nil {
					return flags.Usagef("unknown command %q", name)
				}
				cmd = next
			}
			return a.print([]byte(helpText(cmd, a.textWidth())))
		}),
	}
}

const exitName = "exit"

// exitTopic is plaid help exit.
func exitTopic() *cobra.Command {
	return &cobra.Command{
		Use:   exitName,
		Short: "The exit codes",
		Long:  "A command ends with one of these exit codes. Errors as JSON (--json) have the word as \"reason\".",
	}
}

// meant is what somebody may have meant who typed the flag or the command that a message says
// is unknown; "" if nothing is like it.
func meant(cmd *cobra.Command, msg string) string {
	if near := nearestCommand(cmd.Root(), msg); near != "" {
		return "'" + near + "'"
	}
	if near := nearestFlag(cmd, msg); near != "" {
		return "--" + near
	}
	return ""
}

func nearestFlag(cmd *cobra.Command, msg string) string {
	typed, ok := strings.CutPrefix(msg, "unknown flag: --")
	if !ok {
		return ""
	}
	var names []string
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
	}
	// What documents have --text and --text-format for, questions have others for.
	if kind, is := strings.CutPrefix(typed, "text"); is {
		if name := "queries" + cmp.Or(kind, "-text"); slices.Contains(names, name) {
			return name
		}
	}
	return nearest.Name(typed, names)
}

// nearestCommand is a command with a name like the one that a message says is unknown; ""
// if there is none.
func nearestCommand(root *cobra.Command, msg string) string {
	rest, ok := strings.CutPrefix(msg, "unknown command ")
	quoted, err := strconv.QuotedPrefix(rest)
	if !ok || err != nil {
		return ""
	}
	typed, _ := strconv.Unquote(quoted)
	best, least := "", 3
	for _, c := range root.Commands() {
		d := nearest.Distance(typed, c.Name())
		if len(typed) > 2 && strings.HasPrefix(c.Name(), typed) {
			d = 1
		}
		if d < least {
			best, least = c.CommandPath(), d
		}
	}
	return best
}
