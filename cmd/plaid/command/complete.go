package command

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
)

func (a *app) completionCommand() *cobra.Command {
	shells := map[string]func() error{
		"bash":       func() error { return a.root.GenBashCompletionV2(a.out, true) },
		"zsh":        func() error { return a.root.GenZshCompletion(a.out) },
		"fish":       func() error { return a.root.GenFishCompletion(a.out, true) },
		"powershell": func() error { return a.root.GenPowerShellCompletionWithDesc(a.out) },
	}
	return &cobra.Command{
		Use:   "completion {bash | zsh | fish | powershell}",
		Short: "Print a script that completes command lines in a shell",
		Long: `
Print a script with which a shell completes commands, flags, their values, index
files and the ids of documents. To have it in every new shell:

  bash        plaid completion bash > /etc/bash_completion.d/plaid
              (needs the package bash-completion)
  zsh         plaid completion zsh > "${fpath[1]}/_plaid"
              (needs autoload -U compinit; compinit in ~/.zshrc)
  fish        plaid completion fish > ~/.config/fish/completions/plaid.fish
  powershell  plaid completion powershell >> $PROFILE`,
		Example: `  plaid completion bash
  plaid completion zsh > _plaid`,
		Args:      takes("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: a.command(func(_ context.Context, args []string) error {
			script := shells[args[0]]
			if script == nil {
				return flags.Usagef("no script for %q: there is bash, zsh, fish, powershell", args[0])
			}
			return script()
		}),
	}
}

// withoutQuotes takes the quotes out of what flags say of themselves, which mark the name of
// their values for the help, and which a shell would show.
func withoutQuotes(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		withoutQuotes(c)
	}
}

// completer finds what an argument or the value of a flag may be.
type completer = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// completions gives every command and every flag its completer.
func (a *app) completions(root *cobra.Command) {
	a.completeArguments(root)
	byName := a.completersOfFlags()
	for _, cmd := range append(root.Commands(), root) {
		add := func(f *pflag.Flag) {
			c := byName[cmd.Name()+" "+f.Name]
			if c == nil {
				c = byName[f.Name]
			}
			if c == nil {
				c = byType(f)
			}
			if c != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, c) // fails for a flag that has one
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(add)
		cmd.PersistentFlags().VisitAll(add)
	}
}

// Endings of files.
var (
	vectorFiles = ending("npy", "npz", "safetensors", "jsonl", "ndjson")
	textFiles   = ending("jsonl", "ndjson", "json", "csv", "tsv", "txt", "md", "gz")
	lengthFiles = ending("npy", "json", "txt")
	idFiles     = ending("txt", "json", "npy")
	runFiles    = ending("trec", "run", "txt", "tsv", "gz")
	jsonFiles   = ending("json")
	indexFiles  = ending("plaid")
)

func ending(suffixes ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return suffixes, cobra.ShellCompDirectiveFilterFileExt
	}
}

func folders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func anyFile(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

func nothing(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func words(list ...string) completer {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// byType completes values that the type of a flag lists, and none for numbers.
func byType(f *pflag.Flag) completer {
	kind, _ := pflag.UnquoteUsage(f)
	switch {
	case kind == "":
		return nil // a switch
	case strings.Contains(f.Value.Type(), "|"):
		return words(strings.Split(f.Value.Type(), "|")...)
	case kind == "FILE":
		return anyFile
	case kind == "DIR":
		return folders
	}
	return nothing
}

// completersOfFlags are those that the type of a flag does not tell, by its name, after
// that of the command where commands differ.
func (a *app) completersOfFlags() map[string]completer {
	measures := words("nDCG@10", "AP", "RR", "RR@10", "R@100", "P@10", "Success@5", "Judged@10", "Rprec", "Bpref")
	return map[string]completer{
		"vectors": vectorFiles, "docs": vectorFiles, "queries": vectorFiles, "beir vectors": folders, "get vectors": ending("npy"), "encode queries": nil,
		"text": textFiles, "queries-text": textFiles, "text-queries": textFiles,
		"lengths": lengthFiles, "query-lengths": lengthFiles, "mask": ending("npy"), "query-mask": ending("npy"),
		"ids": idFiles, "query-ids": idFiles, "filter": ending("txt"), "payload": ending("jsonl", "ndjson"),
		"candidates": runFiles, "fuse": runFiles, "qrels": anyFile,
		"model": folders, "model-settings": jsonFiles, "vectors-model": jsonFiles, "svg": ending("svg"), "csv": ending("csv"), "json-file": jsonFiles,
		"index": indexFiles, "salvage": indexFiles,
		"backend": func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return kernels.Backends(), cobra.ShellCompDirectiveNoFileComp
		},
		"device":         completeDevice,
		"encoder":        words(encode.Native, encode.ONNXRuntime, "http://", "https://"),
		"encoder-option": words("library=", "graph=", "api=", "query-prefix=", "document-prefix=", "batch=", "timeout=", "attempts="),
		"measures":       measures,
		"scales":         words("dim,centroid", "dim", "centroid", "none"),
		"doc":            a.completeID,
	}
}

// completeDevice asks what there is.
func completeDevice(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := []string{"cpu\tthe processor", "auto\ta GPU if there is one"}
	found, _ := kernels.Devices()
	for _, d := range found {
		names = append(names, d.Name+"\t"+d.Model)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeArguments says what the arguments of commands are.
func (a *app) completeArguments(root *cobra.Command) {
	// What the arguments are in turn; the last completes all further ones.
	for name, turns := range map[string][]completer{
		"delete": {indexFiles, a.completeID}, "get": {indexFiles, a.completeID, nothing}, "explain": {indexFiles, a.completeID, nothing},
		"export": {indexFiles, folders, nothing}, "import": {folders, indexFiles, nothing}, "backup": {indexFiles, indexFiles, nothing},
		"encode": {textFiles}, "model": {folders, nothing}, "beir": {folders, nothing}, "man": {folders, nothing},
		"eval": {runFiles}, "compare": {runFiles}, "help": {a.completeCommand, nothing},
		"score": {nothing}, "serve": {nothing}, "version": {nothing},
	} {
		i := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
		root.Commands()[i].ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return turns[min(len(args), len(turns)-1)](cmd, args, typed)
		}
	}
	for _, c := range root.Commands() {
		if c.ValidArgsFunction == nil && c.ValidArgs == nil && c.Runnable() {
			c.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				if len(args) == 0 {
					return indexFiles(cmd, args, typed)
				}
				return nothing(cmd, args, typed)
			}
		}
	}
}

func (a *app) completeCommand(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, c := range a.root.Commands() {
		if !c.Hidden {
			names = append(names, c.Name()+"\t"+c.Short)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Completion is to take no longer than a key press: so many ids are offered, of so
// many that are looked at.
const (
	mostIDs   = 100
	idsLooked = 200_000
)

// completeID offers the ids of the index that is the first argument.
func (a *app) completeID(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	var ids []string
	_ = a.openSnapshot(ctx, args[0], func(_ *index.Index, snap *index.Snapshot) error { // no index: no ids
		for ordinal := range min(snap.State().Docs, idsLooked) {
			if len(ids) == mostIDs {
				break
			}
			if id := snap.ID(ordinal); snap.Live(ordinal) && strings.HasPrefix(id, typed) && !slices.Contains(args[1:], id) {
				ids = append(ids, id)
			}
		}
		return nil
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}
