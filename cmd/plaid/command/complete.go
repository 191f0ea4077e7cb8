package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/encode/hub"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage/objects"
)

// Endings of the files that arguments and flags take.
var (
	indexFiles  = []string{"plaid"}
	vectorFiles = []string{"npy", "npz", "safetensors", "jsonl", "ndjson"}
	textFiles   = []string{"jsonl", "ndjson", "json", "csv", "tsv", "txt", "html", "ipynb", "gz", "zst", "xz"}
)

// fileEndings are the endings of the files that a flag takes, by its name. Any other flag for a
// FILE takes files of all endings.
var fileEndings = map[string][]string{
	"vectors": vectorFiles, "queries": vectorFiles, "text": textFiles, "questions": textFiles,
	"index": indexFiles, "shard": indexFiles, "codec": indexFiles, "salvage": indexFiles,
}

// registerCompletions registers completions of the values of flags, the names of index files and the ids of
// documents. Cobra completes the names of commands and flags itself.
func (a *app) registerCompletions(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		a.registerCompletions(cmd)
		if cmd.ValidArgsFunction == nil && strings.Contains(cmd.Use, "INDEX") {
			cmd.ValidArgsFunction = a.completeArgument
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if c := completionFor(f); c != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, c) // fails for a flag that has a completion already
			}
		})
	}
}

// addCompletionCommand lets cobra add plaid completion, and makes an unknown shell an error.
func (a *app) addCompletionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd == root {
		return
	}
	var shells []string
	for _, c := range cmd.Commands() {
		shells = append(shells, c.Name())
		a.addHelpFlags(c)
	}
	a.addHelpFlags(cmd)
	cmd.Use, cmd.DisableFlagsInUseLine = "completion SHELL", true
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("there is no script for %q: SHELL is one of %s", args[0], strings.Join(shells, ", "))
		}
		return nil
	}
	cmd.RunE = func(*cobra.Command, []string) error { return cmd.Help() }
}

// removeUsageQuotes removes the backquotes from the help of flags: they mark the names of values
// for the help, and a shell would show them.
func removeUsageQuotes(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		removeUsageQuotes(c)
	}
}

// completionFor returns the completion of a flag's values by their type, or nil if it takes no value.
func completionFor(f *pflag.Flag) cobra.CompletionFunc {
	kind, _ := pflag.UnquoteUsage(f)
	files, known := fileEndings[f.Name]
	switch {
	case strings.Contains(f.Value.Type(), "|"):
		return cobra.FixedCompletions(strings.Split(f.Value.Type(), "|"), cobra.ShellCompDirectiveNoFileComp)
	case kind == "":
		return nil // the flag takes no value
	case f.Name == "device":
		return completeDevice
	case kind == "FILE" && known:
		return cobra.FixedCompletions(files, cobra.ShellCompDirectiveFilterFileExt)
	case kind == "FILE":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	case kind == "MODEL":
		return completeModel
	case kind == "DIR":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	}
	return cobra.NoFileCompletions
}

// completeDevice offers the devices of this machine.
func completeDevice(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := []string{"cpu\tthe processor", "auto\ta GPU if there is one"}
	found, _ := kernels.Devices()
	for _, d := range found {
		names = append(names, d.Name+"\t"+d.Model)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeModel offers folders, or the names of known models that begin with typed.
func completeModel(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, m := range modeldir.KnownModels() {
		if _, ok := hub.Parse(m.Name); ok && typed != "" && strings.HasPrefix(m.Name, typed) {
			names = append(names, m.Name)
		}
	}
	if names == nil {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Limits that keep a completion as fast as a key press: how many ids are offered, and how many are
// read.
const (
	maxIDs        = 100
	maxIDsScanned = 200_000
)

// completeArgument offers index files, or the indexes of a store, and then ids of documents if the
// command takes some.
func (a *app) completeArgument(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if store := storeAddress(cmd); store != "" {
		var names []string
		ctx, stop := context.WithTimeout(context.WithoutCancel(cmd.Context()), time.Second)
		defer stop()
		if len(args) == 0 {
			_ = a.withStore(ctx, store, cluster.Config{}, // an error only means that there are no names
				func(collections *cluster.Cluster, _ objects.Store) error {
					names = collections.Names()
					return nil
				})
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	takesIDs := slices.Contains([]string{"get", "delete", "explain"}, cmd.Name())
	switch {
	case len(args) == 0:
		return indexFiles, cobra.ShellCompDirectiveFilterFileExt
	case !takesIDs || len(args) > 1 && cmd.Name() != "delete":
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	_ = a.openSnapshot(context.WithoutCancel(cmd.Context()), args[0],
		func(snap *index.Snapshot) error { // an error only means that there are no ids
			for ordinal := range min(snap.State().Docs, maxIDsScanned) {
				if len(ids) == maxIDs {
					break
				}
				if id := snap.ID(ordinal); snap.Live(ordinal) && strings.HasPrefix(id, typed) &&
					!slices.Contains(args[1:], id) {
					ids = append(ids, id)
				}
			}
			return nil
		})
	return ids, cobra.ShellCompDirectiveNoFileComp
}
