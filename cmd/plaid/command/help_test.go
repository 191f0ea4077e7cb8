package command

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/hub"
)

// commands are all that are not hidden, the root included.
func commands(a *app) []*cobra.Command {
	var all func(c *cobra.Command) []*cobra.Command
	all = func(c *cobra.Command) []*cobra.Command {
		list := []*cobra.Command{c}
		for _, c := range c.Commands() {
			list = append(list, all(c)...)
		}
		return list
	}
	return all(a.rootCommand())
}

// helpText is what a command prints for --help, or --help-all.
func helpText(t *testing.T, c *cobra.Command, flag string) string {
	t.Helper()
	code, text, stderr := try(t, append(strings.Fields(c.CommandPath())[1:], flag)...)
	require.Equal(t, exitOK, code, stderr)
	return text
}

// TestHelpIsShort checks that --help lists at most ten flags of a command with many, that --help-all
// lists all of them, and that search and serve stay within their limits.
func TestHelpIsShort(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^  (?:-\w, |    )--([a-z0-9-]+)`)
	flagsOf := func(text string) (names []string) {
		_, text, _ = strings.Cut(text, "\nFlags:\n")
		for _, m := range listed.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		return names
	}
	limits := map[string]int{"search": 41, "serve": 48, "explain": 27, "index": 45, "cluster build": 45}
	seen, n := map[string]bool{}, 0
	for _, c := range commands(newApp(streams{}, nil))[1:] {
		if c.Runnable() && c.Parent() == c.Root() {
			n++
		}
		var all []string // that are there
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				if !f.Hidden {
					all = append(all, f.Name)
				}
			})
		}
		require.LessOrEqual(t, len(all), cmp.Or(limits[commandPath(c)], 100), c.Name())
		names := usualFlagNames(c)
		if len(names) == 0 {
			if c.Runnable() {
				require.LessOrEqual(t, len(all), 15, "%s has no list of usual flags", c.Name())
				require.ElementsMatch(t, all, flagsOf(helpText(t, c, "--help")), c.Name())
			}
			continue
		}
		seen[commandPath(c)] = true
		for _, name := range names {
			require.Contains(t, all, name, c.Name())
		}
		require.LessOrEqual(t, len(names), 10, c.Name())
		short, long := helpText(t, c, "--help"), helpText(t, c, "--help-all")
		require.ElementsMatch(t, append([]string{"help", "help-all"}, names...), flagsOf(short), c.Name())
		require.ElementsMatch(t, all, flagsOf(long), c.Name())
		require.Contains(t, short, fmt.Sprintf("%d more flags: plaid %s --help-all\n", len(all)-len(names)-2, commandPath(c)))
	}
	require.Len(t, seen, len(usualFlags), "lists of usual flags of commands that are not there")
	require.LessOrEqual(t, n, 29)
}

// ownMeaning has the flags that differ between commands, and why.
var ownMeaning = map[string]string{
	"approx":   "bench measures all combinations of a list",
	"exact":    "as approx",
	"probes":   "as approx",
	"k":        "tune chooses parameters for each k of a list",
	"format":   "each command has its own forms",
	"ids":      "one file for each --vectors, and one for all where there is one source",
	"metadata": "as ids",
	"output":   "encode writes several files",
	"queries":  "encode makes the vectors of queries that other commands take: it has the texts already",
	"vectors":  "beir takes the folder that encode has made, with documents and queries",
}

// TestFlagsAreOneThing checks that a flag has the same type and the same name of its value at all
// commands, but for those of ownMeaning, that no line of a help ends in a blank, and that words that
// the pages avoid are not in helps either.
func TestFlagsAreOneThing(t *testing.T) {
	avoided := regexp.MustCompile(`(?i)\b(whoever|anew|so many|(goes|gone) on|go on with|of which|thereof|therein|whence)\b`)
	kinds, differ := map[string]string{}, map[string]bool{}
	for _, c := range commands(newApp(streams{}, nil)) {
		text := helpText(t, c, "--help-all")
		require.NotRegexp(t, `(?m)[ \t]$`, text, c.Name())
		require.Empty(t, avoided.FindAllString(strings.Join(strings.Fields(text), " "), -1), c.Name())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			value, _ := pflag.UnquoteUsage(f)
			kind := f.Value.Type() + " " + value
			if seen := cmp.Or(kinds[f.Name], kind); seen != kind {
				require.NotEmpty(t, ownMeaning[f.Name], "%s --%s: %s, elsewhere %s", c.Name(), f.Name, kind, seen)
				differ[f.Name] = true
			}
			kinds[f.Name] = kind
		})
	}
	require.Len(t, differ, len(ownMeaning), "flags that do not differ any more")
}

func TestExitCodesAreInOnePlace(t *testing.T) {
	code, stdout, _ := try(t, "help", "exit")
	require.Equal(t, exitOK, code)
	for _, e := range exitTable {
		require.Contains(t, stdout, e.description)
		require.NotEmpty(t, exitWord(e.code))
	}
}

// TestModelsOfExamples checks that each model of an example in a help is a folder that is named as one,
// or a name that a hub could have.
func TestModelsOfExamples(t *testing.T) {
	given, n := regexp.MustCompile(`--model (\S+)`), 0
	for _, c := range commands(newApp(streams{}, nil)) {
		require.NotContains(t, c.Use, "--model DIR", "a model need not be a folder")
		for _, m := range given.FindAllStringSubmatch(c.Example, -1) {
			_, named := hub.Parse(m[1])
			require.True(t, named || strings.HasPrefix(m[1], "./"), "%s: %s", c.Name(), m[1])
			n++
		}
	}
	require.Greater(t, n, 10)
}

func TestUnknownCommands(t *testing.T) {
	for typed, want := range map[string]string{"serch": "plaid search", "saerch": "plaid search", "idnex": "plaid index", "expl": "plaid explain", "ad": "plaid add"} {
		for _, args := range [][]string{{typed}, {typed, "--nosuch", "x"}, {"help", typed}} {
			code, _, stderr := try(t, args...)
			require.Equal(t, exitUsage, code)
			require.Contains(t, stderr, "Did you mean '"+want+"'?\n", args)
		}
	}
	code, _, stderr := try(t, "zzzzzz")
	require.Equal(t, exitUsage, code)
	require.NotContains(t, stderr, "Did you mean")
}

// docs/commands.md has every command, and the flags that it speaks of are theirs.
func TestCommandsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/commands.md")
	require.NoError(t, err)
	const docOf = "| `plaid "
	documented := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, docOf); ok {
			documented[strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '`' })[0]] += rest
		}
	}
	flag := regexp.MustCompile("--([a-z][a-z-]*)")
	for _, c := range commands(newApp(streams{}, nil)) {
		if c.HasParent() && c.Runnable() && !c.Hidden && c.Parent() == c.Root() && c.Name() != "help" {
			lines := documented[c.Name()]
			require.NotEmpty(t, lines, c.Name())
			delete(documented, c.Name())
			for _, m := range flag.FindAllStringSubmatch(lines, -1) {
				require.NotNil(t, c.Flag(m[1]), "%s --%s", c.Name(), m[1])
			}
		}
	}
	require.Empty(t, documented)
}

// completed are the values that are offered, and the directive of cobra.
func completed(t *testing.T, args ...string) (values []string, directive string) {
	t.Helper()
	code, stdout, _ := try(t, append([]string{"__complete"}, args...)...)
	require.Equal(t, exitOK, code)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for _, l := range lines[:len(lines)-1] {
		value, _, _ := strings.Cut(l, "\t")
		values = append(values, value)
	}
	return values, lines[len(lines)-1]
}

func TestCompletions(t *testing.T) {
	const noFiles, suffixes, dirs = ":4", ":8", ":16"
	path := oneDocument(t)
	for _, c := range []struct {
		args      string
		want      []string // some of the values
		directive string
	}{
		{"sea", []string{"search"}, noFiles},
		{"search x.plaid --group=", []string{"best", "sum", "maxsim"}, noFiles},
		{"index x.plaid --nbits ", []string{"1", "2", "4", "8"}, noFiles},
		{"search x.plaid --format ", []string{"table", "jsonl", "trec"}, noFiles},
		{"export x.plaid y --format ", []string{"npy", "fast-plaid"}, noFiles},
		{"search x.plaid --device ", []string{"cpu", "auto"}, noFiles},
		{"search x.plaid -k ", nil, noFiles},
		{"search ", []string{"plaid"}, suffixes},
		{"info ", []string{"plaid"}, suffixes},
		{"index x.plaid --vectors ", []string{"npy", "npz", "safetensors", "jsonl"}, suffixes},
		{"index x.plaid --model ", nil, dirs},
		{"index x.plaid --model light", []string{"lightonai/GTE-ModernColBERT-v1", "lightonai/LateOn"}, noFiles},
		{"model light", []string{"lightonai/GTE-ModernColBERT-v1"}, noFiles},
		{"model ", nil, dirs},
		{"beir --vectors ", nil, dirs},
		{"get " + path + " ", []string{"0"}, noFiles},
		{"delete " + path + " 0 ", nil, noFiles},
		{"explain " + path + " ", []string{"0"}, noFiles},
		{"get nosuch.plaid ", nil, noFiles},
		{"get --values 3 " + path + " ", []string{"0"}, noFiles},
		{"completion ", []string{"bash", "zsh", "fish", "powershell"}, noFiles},
		{"help ", []string{"search", "exit"}, noFiles},
	} {
		values, directive := completed(t, strings.Split(c.args, " ")...)
		require.Subset(t, values, c.want, c.args)
		require.Equal(t, c.directive, directive, c.args)
		if c.want == nil {
			require.Empty(t, values, c.args)
		}
	}
}

// Every script is one that its shell can read, where the shell is there.
func TestCompletionScripts(t *testing.T) {
	for shell, check := range map[string][]string{"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "--no-execute"}, "powershell": {""}} {
		code, script, stderr := try(t, "completion", shell)
		require.Equal(t, exitOK, code, stderr)
		require.Contains(t, script, "plaid", shell)
		require.Empty(t, stderr)
		path, err := exec.LookPath(check[0])
		if err != nil {
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		require.NoError(t, os.WriteFile(file, []byte(script), 0o644))
		out, err := exec.Command(path, append(check[1:], file)...).CombinedOutput()
		require.NoError(t, err, "%s: %s", shell, out)
	}
}
