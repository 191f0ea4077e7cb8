package command

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// commands are all that are not hidden, the root included.
func commands(a *app) []*cobra.Command {
	root := a.rootCommand()
	return append([]*cobra.Command{root}, root.Commands()...)
}

func TestHelpIsWrapped(t *testing.T) {
	for _, c := range commands(newApp(streams{}, nil)) {
		for _, width := range []int{80, 100} {
			for line := range strings.Lines(helpText(c, width)) {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, "%s: %q", c.CommandPath(), line)
			}
		}
		require.NotPanics(t, func() { helpText(c, leastHelpWidth) })
	}
}

// Words that the pages avoid are not in helps either.
func TestHelpIsPlain(t *testing.T) {
	avoided := regexp.MustCompile(`(?i)\b(whoever|anew|so many|(goes|gone) on|go on with|of which|thereof|therein|whence)\b`)
	for _, c := range commands(newApp(streams{}, nil)) {
		text := strings.Join(strings.Fields(helpText(c, 100)), " ")
		require.Empty(t, avoided.FindAllString(text, -1), c.Name())
	}
}

func TestEveryCommandHasAGroup(t *testing.T) {
	for _, c := range commands(newApp(streams{}, nil))[1:] {
		if c.Runnable() {
			require.NotEmpty(t, c.GroupID, c.Name())
		}
	}
}

func TestExitCodesAreInOnePlace(t *testing.T) {
	code, stdout, _ := try(t, "help", "exit")
	require.Equal(t, exitOK, code)
	for _, e := range exitTable {
		require.Contains(t, strings.Join(strings.Fields(stdout), " "), e.what)
		require.NotEmpty(t, exitWord(e.code))
	}
	for _, c := range commands(newApp(streams{}, nil)) {
		if c.Runnable() {
			require.NotContains(t, helpText(c, 80), exitTable[5].what, c.Name())
		}
	}
}

func TestContinuedLines(t *testing.T) {
	require.Equal(t, "  plaid a b\n", continued("  plaid a b\n", 20))
	require.Equal(t, "  plaid get \\\n    'two words' \\\n    x\n", continued("  plaid get 'two words' x", 16))
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

// The names of topics are those of flags, each in one topic, and no flag is lost.
func TestTopics(t *testing.T) {
	there := map[string]bool{}
	for _, c := range commands(newApp(streams{}, nil)) {
		if !c.Runnable() {
			continue
		}
		n, listed := 0, 0
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			there[f.Name] = true
			if !f.Hidden {
				n++
			}
		})
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				n++
			}
		})
		for _, set := range flagSets(c) {
			listed += len(set.flags)
		}
		require.Equal(t, n, listed, c.Name())
	}
	seen := map[string]bool{}
	for _, topic := range topics {
		for _, name := range topic.flags {
			require.True(t, there[name], name)
			require.False(t, seen[name], name)
			seen[name] = true
		}
	}
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

func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	code, stdout, stderr := try(t, "man", dir)
	require.Equal(t, exitOK, code, stderr)
	require.Empty(t, stdout)
	pages, err := os.ReadDir(dir)
	require.NoError(t, err)
	n := 0
	for _, c := range commands(newApp(streams{}, nil)) {
		if !c.Runnable() {
			continue
		}
		n++
		text, err := os.ReadFile(filepath.Join(dir, pageName(c)+".1"))
		require.NoError(t, err)
		require.Contains(t, string(text), escaped(c.Short), c.Name())
		for _, set := range flagSets(c) {
			for _, f := range set.flags {
				require.Contains(t, string(text), escaped("--"+f.Name), c.Name())
			}
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, ".") {
				require.Regexp(t, `^\.(TH|SH|SS|TP|PP|nf|fi)( |\n)`, line)
			}
		}
	}
	require.Len(t, pages, n)
	code, stdout, _ = try(t, "man")
	require.Equal(t, exitOK, code)
	root, err := os.ReadFile(filepath.Join(dir, "plaid.1"))
	require.NoError(t, err)
	require.Equal(t, string(root), stdout)
	require.Contains(t, stdout, exitTable[3].what)

	groff, err := exec.LookPath("groff")
	if err != nil {
		return
	}
	for _, page := range pages {
		var complaints bytes.Buffer
		cmd := exec.Command(groff, "-man", "-Kutf8", "-Tutf8", "-ww", filepath.Join(dir, page.Name()))
		cmd.Stderr = &complaints
		require.NoError(t, cmd.Run(), complaints.String())
		require.Empty(t, complaints.String(), page.Name())
	}
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
		{"search x.plaid --mode ", []string{"pruned", "exhaustive", "candidates"}, noFiles},
		{"index x.plaid --nbits ", []string{"1", "2", "4", "8"}, noFiles},
		{"search x.plaid --format ", []string{"table", "jsonl", "trec"}, noFiles},
		{"export x.plaid y --format ", []string{"npy", "fast-plaid"}, noFiles},
		{"search x.plaid --device ", []string{"cpu", "auto"}, noFiles},
		{"--backend ", []string{"generic"}, noFiles},
		{"info x.plaid --backend ", []string{"generic"}, noFiles},
		{"index x.plaid --encoder ", []string{"native", "onnxruntime"}, noFiles},
		{"eval --measures ", []string{"nDCG@10"}, noFiles},
		{"search x.plaid -k ", nil, noFiles},
		{"search ", []string{"plaid"}, suffixes},
		{"info ", []string{"plaid"}, suffixes},
		{"index x.plaid --vectors ", []string{"npy", "npz", "safetensors", "jsonl"}, suffixes},
		{"index x.plaid --model ", nil, dirs},
		{"beir --vectors ", nil, dirs},
		{"export x.plaid ", nil, dirs},
		{"get " + path + " ", []string{"0"}, noFiles},
		{"delete " + path + " 0 ", nil, noFiles},
		{"explain " + path + " --doc ", []string{"0"}, noFiles},
		{"get nosuch.plaid ", nil, noFiles},
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
	for shell, check := range map[string][]string{"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "--no-execute"}} {
		code, script, stderr := try(t, "completion", shell)
		require.Equal(t, exitOK, code, stderr)
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
