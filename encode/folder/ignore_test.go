package folder

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// What .gitignore files leave out is what git leaves out.
func TestIgnoresAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not there")
	}
	line := rapid.OneOf(
		rapid.SampledFrom([]string{"*.md", "/a", "a/", "a/b", "**/b.md", "a/**", "a/**/b.md", "!b.md", "!/a/b.md", "#a", `\#a.md`, "", "b*", "?.md", "[ab].md", "[!a].md", "*", "!*/", "!*.md", "a/*", "b.md  ", "/", "!", "**"}),
		rapid.StringMatching(`!?/?[ab*?]{1,3}(/[ab*?]{1,2}){0,2}/?`),
	)
	// Two asterisks beside something else are one, says git, and is not of one mind itself.
	line = line.Filter(func(s string) bool { return !regexp.MustCompile(`[^/!]\*\*|\*\*[^/]`).MatchString(s) })
	lines := rapid.Map(rapid.SliceOfN(line, 0, 4), func(l []string) string { return strings.Join(l, "\n") })
	names := []string{"a", "b", "ab"}
	var paths []string
	for _, x := range names {
		for _, y := range names {
			for _, z := range []string{"a.md", "b.md", "#a.md", "ba.md"} {
				paths = append(paths, x+"/"+y+"/"+z)
			}
		}
		paths = append(paths, x+"/a.md", x+"/b.md", x+".md")
	}
	root := t.TempDir()
	require.NoError(t, exec.Command(git, "init", "-q", root).Run())
	for _, p := range paths {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(p)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(root, p), []byte("x"), 0o666))
	}
	cases := effort.Cases(20, 400)
	for i := range cases {
		rules := map[string]string{
			".gitignore": lines.Example(4*i + 1), "a/.gitignore": lines.Example(4*i + 2), "a/b/.gitignore": lines.Example(4*i + 3),
			".git/info/exclude": lines.Example(4*i + 4),
		}
		for name, text := range rules {
			if i%3 == 0 {
				text = "\ufeff" + text
			}
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o666))
		}
		for _, dir := range []string{".", "a", "b", "a/b"} {
			if dir != "." && exec.Command(git, "-C", root, "-c", "core.excludesFile=/dev/null", "check-ignore", "-q", dir+"/").Run() == nil {
				continue // whoever names it wants it
			}
			require.ElementsMatch(t, asGit(t, git, filepath.Join(root, dir)), scanned(t, filepath.Join(root, dir)), "%s: %q", dir, rules)
		}
	}
}

// Patterns of names are those of git: sets with classes, ranges and what begins or ends them,
// and bytes, not characters.
func TestPatternsAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not there")
	}
	root := t.TempDir()
	require.NoError(t, exec.Command(git, "init", "-q", root).Run())
	names := []string{
		"a.md", "b.md", "A.md", "foo[.md", "foo].md", "x y.md", "x .md", "aXb.md", "-.md", "^.md", "!.md", "#x.md", "é.md", "z1.md", "[a].md", "d/a.md", "d/e/a.md",
		"foo/b/c.md", "build/x.md", "~.md", "z .md", "z_.md", "zf.md",
	}
	if runtime.GOOS != "windows" {
		names = append(names, "a*b.md", `\.md`, ":.md")
	}
	for _, name := range names {
		if os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o777) == nil { // not every system has such names
			_ = os.WriteFile(filepath.Join(root, name), []byte("x"), 0o666)
		}
	}
	patterns := []string{
		"[a-c].md", "[!a].md", "[^a].md", `a\*b.md`, `x\ y.md`, `x\ .md`, "foo[", "foo[.md", `foo\[.md`, "[]].md", "[]-a].md", "[!]a].md", "[a-].md", "[-^].md", "[!-~].md",
		`\!.md`, `\\.md`, "?.md", "é.md", "[é].md", "[[]a].md", `\[a\].md`, "a**.md", "**a.md", "[z-a].md", "[a.md", `a.md\`, "d//a.md", "./a.md", `[\a].md`, `[\]].md`, `foo\].md`,
		`[a\-c].md`, `[!-\~].md`, "z[[:foo:]].md", "[[:alpha].md", "[[:].md", "[[:alpha:]-b].md", `[a-\`, `[\`, "[", "[[:", "*[", "*[[:upper:]]*",
	}
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		patterns = append(patterns, "z[[:"+class+":]].md", "[![:"+class+":]a].md")
	}
	set := rapid.StringMatching(`[a*]?\[[ab\]!^\\:\[-]{1,6}[*?\]]{1,2}(\.md)?`)
	for i := range effort.Cases(20, 2000) {
		patterns = append(patterns, set.Example(i))
	}
	for _, pattern := range patterns {
		require.NoError(t, os.WriteFile(filepath.Join(root, ".gitignore"), []byte(pattern+"\n"), 0o666))
		require.ElementsMatch(t, asGit(t, git, root), scanned(t, root), "%q", pattern)
	}
}

// asGit are the Markdown files that git does not ignore.
func asGit(t *testing.T, git, dir string) (paths []string) {
	out, err := exec.Command(git, "-C", dir, "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false", "ls-files", "-z", "--others", "--exclude-standard").Output()
	require.NoError(t, err)
	for p := range bytes.SplitSeq(out, []byte{0}) {
		if s := string(p); strings.HasSuffix(s, ".md") {
			paths = append(paths, s)
		}
	}
	return paths
}

func scanned(t *testing.T, dir string) (paths []string) {
	files, _, err := Scan(t.Context(), dir, 0, nil)
	require.NoError(t, err)
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	return paths
}

// A folder that is ignored is read if it is asked for, and what is in it by the rules for
// that; a repository within has rules of its own, and a further work tree those of its own.
func TestRulesAbove(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"repo/.git/info/exclude": "private.md", "repo/.gitignore": "/out\n*.tmp.md", "repo/out/a.md": "a", "repo/out/b.tmp.md": "b", "repo/out/private.md": "c",
		"repo/.git/worktrees/w/commondir": "../..", "tree/.git": "gitdir: " + filepath.Join(root, "repo/.git/worktrees/w") + "\n",
		"tree/sub/private.md": "c", "tree/sub/d.md": "d", ".gitignore": "*.md",
	} {
		write(t, root, path, text)
	}
	require.Equal(t, []string{"a.md"}, scanned(t, filepath.Join(root, "repo/out")))
	require.Equal(t, []string{"d.md"}, scanned(t, filepath.Join(root, "tree/sub")))
	require.Equal(t, []string{"sub/d.md"}, scanned(t, filepath.Join(root, "tree")))
	if os.Symlink(filepath.Join(root, "tree/sub"), filepath.Join(root, "link")) == nil {
		require.Equal(t, []string{"d.md"}, scanned(t, filepath.Join(root, "link")), "where the folder is, and not its link")
	}
}

// Rules that are too long to be read keep their own folder out, and are named.
func TestLargeRules(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.md", "a")
	write(t, root, "sub/b.md", "b")
	write(t, root, "sub/.gitignore", strings.Repeat("# long\n", maxRules/7+1))
	files, passed, err := Scan(t.Context(), root, 0, nil)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Equal(t, []string{filepath.Join(root, "sub", ".gitignore")}, passed.Rules)
	require.Equal(t, 1, passed.Count())
	require.True(t, passed.MayHide("sub/b.md"))
	_, _, err = Scan(t.Context(), filepath.Join(root, "sub"), 0, nil)
	require.ErrorIs(t, err, ErrLarge)
	require.ErrorContains(t, err, filepath.Join("sub", ".gitignore"))
}

func FuzzRules(f *testing.F) {
	f.Add("*.md\n!a/**/b\n[", "a/b/c")
	f.Fuzz(func(t *testing.T, text, path string) {
		o := &ruleChain{rules: parseRules(text)}
		_ = o.ignores(strings.Split(path, "/"), len(path)%2 == 0)
	})
}

// A pattern takes no longer than its length by that of the path, however many "**" it has,
// and matches what one that tries everything does.
func TestManyStars(t *testing.T) {
	pattern := strings.Repeat("**/a/", 40) + "b"
	path := strings.Split(strings.Repeat("a/", 400)+"c", "/")
	rules := parseRules(pattern)
	require.False(t, rules[0].matches(path, false))
	var all func(segments, names []string) bool
	all = func(segments, names []string) bool {
		switch {
		case len(segments) == 0:
			return len(names) == 0
		case segments[0] == "**" && len(segments) == 1:
			return len(names) > 0
		case segments[0] == "**":
			return all(segments[1:], names) || len(names) > 0 && all(segments, names[1:])
		}
		return len(names) > 0 && matchName(segments[0], names[0]) && all(segments[1:], names[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		segments := rapid.SliceOfN(rapid.SampledFrom([]string{"**", "a", "b", "*"}), 1, 6).Draw(t, "segments")
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 7).Draw(t, "names")
		require.Equal(t, all(segments, names), matchPath(segments, names))
	})
}
