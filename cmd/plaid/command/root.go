package command

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/index"
)

// rootCommand returns the command plaid with all its commands.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "plaid COMMAND",
		Short: "Late-interaction retrieval in one file",
		Long: `
Give plaid texts, or token vectors of any model: it writes one index file and finds
the documents that answer a question best, in milliseconds on one processor core.

It searches by late interaction, as ColBERT does: a model turns every token into a
vector, and plaid finds the documents whose tokens match those of the question best.
A model is a folder, or a name at the Hugging Face hub, from which it is fetched.
Vectors that were made elsewhere are read from .npy, .npz, .safetensors or .jsonl files.
Results go to stdout, everything else to stderr.`,
		Example: `  plaid index docs.plaid --text corpus.jsonl --model answerdotai/answerai-colbert-small-v1
  plaid search docs.plaid 'what makes cells divide?'
  plaid index docs.plaid --vectors docs.npy --lengths doclens.npy --ids ids.txt
  plaid search docs.plaid --queries queries.npy -k 10
  plaid info docs.plaid`,
		Version:       index.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(*cobra.Command, []string) error { return errors.New("no command is given") },

		DisableSuggestions: true, // reportError has better ones
		CompletionOptions:  cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	a.root = root
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.console)
	root.SetVersionTemplate("plaid {{.Version}}\n")
	f := root.PersistentFlags()
	f.BoolVarP(&a.quiet, "quiet", "q", false, "no progress and no warnings")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log each stage to stderr, and how long it takes")
	f.Var(flags.Duration(&a.lockTimeout), "lock-timeout",
		"how long to wait for another process that has the index locked")
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
	root.AddCommand(exitTopic())
	root.SetUsageTemplate(usageTemplate(root, a.helpWidth()))
	root.SetHelpFunc(a.hideUnusualFlags(root.HelpFunc()))
	a.finishCommand(root)
	a.registerCompletions(root)
	return root
}

// group is a group of commands in the help.
type group struct {
	title    string
	commands []*cobra.Command
}

// groups returns all commands, in the groups and the order of the help.
func (a *app) groups() []group {
	return []group{
		{"Make an index", []*cobra.Command{
			a.indexCommand(), a.addCommand(), a.watchCommand(), a.reshardCommand(), a.importCommand(),
			a.encodeCommand(), a.modelCommand(),
		}},
		{"Search", []*cobra.Command{
			a.searchCommand(), a.explainCommand(), a.getCommand(), a.scoreCommand(), a.serveCommand(), a.mcpCommand(),
		}},
		{"Several machines", []*cobra.Command{
			a.clusterCommand(),
		}},
		{"Measure", []*cobra.Command{
			a.benchCommand(), a.tuneCommand(), a.evalCommand(), a.beirCommand(),
		}},
		{"Maintain an index", []*cobra.Command{
			a.infoCommand(), a.verifyCommand(), a.backupCommand(), a.exportCommand(), a.deleteCommand(),
			a.updateCommand(), a.compactCommand(),
			a.retrainCommand(), a.keywordsCommand(),
		}},
		{"This program", []*cobra.Command{
			a.helpCommand(), a.versionCommand(),
		}},
	}
}

// finishCommand adds to a command and its subcommands what all commands have. A flag with a single
// value may be given only once.
func (a *app) finishCommand(cmd *cobra.Command) {
	cmd.Long = wrapParagraphs(cmd.Long, a.helpWidth())
	cmd.DisableFlagsInUseLine = cmd.HasParent()
	refuseRepeats := func(f *pflag.Flag) {
		// Cobra parses a line twice to complete it.
		if _, list := f.Value.(pflag.SliceValue); !list && !a.completing() {
			f.Value = flags.Once(f.Value)
		}
		if f.DefValue == "0s" || f.DefValue == "0 B" {
			f.DefValue = "" // cobra does not know the zero values of these types
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(refuseRepeats)
	cmd.PersistentFlags().VisitAll(refuseRepeats)
	a.addHelpFlags(cmd)
	for _, c := range cmd.Commands() {
		a.finishCommand(c)
	}
}
