package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	packageWord  = regexp.MustCompile(`(?:^|\s)\./([\w./-]*)`)
	testPattern  = regexp.MustCompile(`-(?:test\.)?(run|skip|bench|fuzz)[= ]'?([^\s']+)`)
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
)

// testsOf are the names of tests in the packages that a word such as ./index/... of a command
// stands for, in whichever of the modules.
func testsOf(t *testing.T, word string) (names []string) {
	folder, below := strings.CutSuffix(word, "...")
	for _, root := range []string{"..", "../vectors/formats", "../capi"} {
		first := filepath.Join(root, folder)
		err := filepath.WalkDir(first, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil && path == first:
				return fs.SkipAll // of another module
			case err != nil:
				return err
			case entry.IsDir() && path != first && !below:
				return fs.SkipDir
			case !strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text, err := os.ReadFile(path)
			for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
				names = append(names, m[1])
			}
			return err
		})
		require.NoError(t, err)
	}
	return names
}

// Tests that pages and the scripts of CI name in commands are there: go test says nothing of a
// pattern that fits none.
func TestNamedTestsAreThere(t *testing.T) {
	checked, testsIn := 0, map[string][]string{}
	for _, page := range append(markdownFiles(t), ".ci/run", ".ci/long", ".ci/windows") {
		script := strings.HasPrefix(page, ".ci/")
		var commands []string
		continued := false
		for _, l := range readLines(t, page) {
			if !l.code && !script {
				commands = append(commands, codeSpan.FindAllString(l.text, -1)...)
				continue
			}
			text, more := strings.CutSuffix(l.text, `\`)
			if continued {
				commands[len(commands)-1] += text
			} else {
				commands = append(commands, text)
			}
			continued = more
		}
		for _, command := range commands {
			command = strings.ReplaceAll(strings.Trim(command, "`"), `\|`, "|")
			packages := packageWord.FindAllStringSubmatch(command, -1)
			if packages == nil {
				continue
			}
			var names []string
			for _, m := range packages {
				if _, read := testsIn[m[1]]; !read {
					testsIn[m[1]] = testsOf(t, m[1])
				}
				names = append(names, testsIn[m[1]]...)
			}
			for _, m := range testPattern.FindAllStringSubmatch(command, -1) {
				if m[2] == "^$" || m[2] == "-" || m[2] == "NONE" || m[2][0] == '"' { // none, with -bench; a variable
					continue
				}
				top, _, _ := strings.Cut(m[2], "/")
				for _, one := range strings.Split(top, "|") {
					checked++
					pattern, err := regexp.Compile(one)
					require.NoError(t, err, "%s: %s", page, command)
					fits := func(name string) bool {
						return strings.HasPrefix(name, "Benchmark") == (m[1] == "bench") && pattern.MatchString(name)
					}
					assert.True(t, slices.ContainsFunc(names, fits), "%s: no test is named %q: %s", page, one, command)
				}
			}
		}
	}
	assert.Greater(t, checked, 40)
}

// The comments of a cluster name each invariant of its protocol, and none that the page does not have.
func TestInvariantsAreNamed(t *testing.T) {
	page, err := os.ReadFile("lab/cluster.md")
	require.NoError(t, err)
	var defined, named []string
	for _, m := range regexp.MustCompile(`(?m)^- \*\*(I\d+):`).FindAllStringSubmatch(string(page), -1) {
		defined = append(defined, m[1])
	}
	require.NotEmpty(t, defined)
	err = filepath.WalkDir("../collection/cluster", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^\s*//.*?\((I\d+)[:) ]`).FindAllStringSubmatch(string(text), -1) {
			named = append(named, m[1])
		}
		return err
	})
	require.NoError(t, err)
	slices.Sort(defined)
	slices.Sort(named)
	require.Equal(t, defined, slices.Compact(named))
}
