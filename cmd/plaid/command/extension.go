package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Extension adds commands to the command line, for programs that are plaid and more.
type Extension struct {
	// Name tells builds with the extension from others: plaid version.
	Name string
	// Title of its commands in the help.
	Title string
	// Commands returns the commands of one run of the program.
	Commands func(App) []*cobra.Command
	// Serve adds settings to those of plaid serve, and what they open ([daemon.Elsewhere]).
	Serve func(App, *daemon.Config)
	// Instead has commands of the extension that stand in for commands of the program.
	Instead []Instead
	// Exit is the exit code of an error of the extension, of those that the program has; 0:
	// it is none.
	Exit func(error) int
}

// Instead lets a flag of a command of the program name another command, which then takes
// the whole line: plaid search --cluster X … is plaid cluster search --servers X ….
type Instead struct {
	Command, Flag string   // of the program: search, cluster
	Usage         string   // of the flag
	To            []string // the other command: cluster, search
	As            string   // its flag: servers
}

// instead adds the flags to the commands.
func (a *app) instead(root *cobra.Command) {
	for _, x := range a.extensions {
		for _, i := range x.Instead {
			for _, c := range root.Commands() {
				if c.Name() == i.Command {
					c.Flags().String(i.Flag, "", i.Usage)
					_ = c.Flags().SetAnnotation(i.Flag, usualFlag, nil)
				}
			}
		}
	}
}

// resolve is the command line with the commands that stand in for others.
func (a *app) resolve(root *cobra.Command, args []string) []string {
	// plaid --json COMMAND is plaid COMMAND --json.
	if len(args) > 1 && args[0] == "--json" && !strings.HasPrefix(args[1], "-") {
		args = slices.Concat(args[1:2], args[:1], args[2:])
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return args // the command line says what is wrong
	}
	for _, x := range a.extensions {
		for _, i := range x.Instead {
			if cmd.Parent() != root || cmd.Name() != i.Command {
				continue
			}
			for n, arg := range rest {
				if arg == "--" {
					break
				}
				if flag, value, equals := strings.Cut(arg, "="); flag == "--"+i.Flag {
					if equals {
						value = "=" + value
					}
					return slices.Concat(i.To, rest[:n], []string{"--" + i.As + value}, rest[n+1:])
				}
			}
		}
	}
	return args
}

// Exit codes for [Extension.Exit]; the help of every command says what they mean.
const (
	ExitFailed   = exitFailed
	ExitUsage    = exitUsage
	ExitPartial  = exitPartial
	ExitNotFound = exitNotFound
	ExitCorrupt  = exitCorrupt
	ExitUnknown  = exitUnknown
)

// App is one run of the program, as commands of extensions see it.
type App struct{ a *app }

// RunE makes the function of a command: its errors are not those of the command line.
func (x App) RunE(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return x.a.command(fn)
}

// Help is the long help of a command as it is to be given to cobra.
func (App) Help(text string) string { return strings.TrimSpace(text) }

// Takes wants as many arguments as names.
func (App) Takes(names ...string) cobra.PositionalArgs { return takes(names...) }

// Report prints v as JSON with --json, else what text writes.
func (x App) Report(v any, text func(*bytes.Buffer)) error { return x.a.report(v, text) }

// Hint writes what is good to know to stderr unless --quiet.
func (x App) Hint(format string, args ...any) { x.a.hint(format, args...) }

// Logger writes to stderr with --verbose.
func (x App) Logger() *slog.Logger { return x.a.logger() }

// Progress is where long operations of package index report to.
func (x App) Progress() func(index.Progress) { return x.a.progress() }

// Search makes a command that answers queries by a searcher which open returns for the
// first argument of the command.
func (x App) Search(cmd *cobra.Command, open func(ctx context.Context, name string) (search.Searcher, error)) *cobra.Command {
	a := x.a
	var s flags.Search
	var printed resultFlags
	s.Register(cmd.Flags())
	printed.register(cmd)
	cmd.RunE = a.command(func(ctx context.Context, args []string) (err error) {
		write, err := a.newHitWriter(&printed)
		if err != nil {
			return err
		}
		if _, err := s.Queries.AreTexts(args[1:]); err != nil {
			return err
		}
		o, err := s.Options(ctx)
		if err != nil {
			return err
		}
		o.Payload = printed.payloads()
		if printed.highlight {
			return flags.Usagef("--highlight is for index files")
		}
		searcher, err := open(ctx, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, searcher.Close()) }()
		queries, err := a.queriesOf(ctx, &s.Queries, args[1:], s.Threads, &s.Device, func() (*storage.Model, string, error) {
			d, err := searcher.Describe(ctx)
			if err != nil {
				return nil, "", err
			}
			return d.Model, args[0], nil
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, queries.Close()) }()
		a.warnWithoutCandidates(&s, queries)
		answers := answering{flags: &s, queries: queries, write: write}
		if err := answers.answerRemaining(ctx, searcher, o, nil); err != nil {
			return err
		}
		if err := a.printStats(printed.stats, answers.total); err != nil {
			return err
		}
		if c := answers.partial; c != nil {
			return fmt.Errorf("%w: of %s documents %s were searched; %s: %s", errPartial, out.Count(c.Of), out.Count(c.Docs), c.Missing[0].Name, c.Missing[0].Reason)
		}
		return nil
	})
	return cmd
}

// Vectors makes a command that does something with documents whose vectors are in
// files.
func (x App) Vectors(cmd *cobra.Command, use func(ctx context.Context, name string, src vectors.Source, model *storage.Model) error) *cobra.Command {
	var docs flags.Documents
	docs.Register(cmd.Flags())
	docs.RegisterPayload(cmd.Flags())
	cmd.RunE = x.a.command(func(ctx context.Context, args []string) (err error) {
		model, err := flags.ParseModel(docs.Model)
		if err != nil {
			return err
		}
		src, err := docs.Open(ctx, x.a.in, x.a.warn)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, src.Close()) }()
		return use(ctx, args[0], src, model)
	})
	return cmd
}
