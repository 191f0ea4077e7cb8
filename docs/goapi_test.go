package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	codeOfPage    = regexp.MustCompile("(?s)```(?:go|text)\n.*?```|`[^`\n]+`")
	qualifiedName = regexp.MustCompile(`(?:^|[^\w./-])(\w+)\.([A-Z]\w*[a-z]\w*)`)
	docLink       = regexp.MustCompile(`\[\*?(\w+)\.([A-Z]\w*)(?:\.\w+)?\]`)
)

// Names of the Go API on pages and in links of comments exist. Only names with the name of one of our
// packages in front are known to be such.
func TestNamesOfGoAPIExist(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.go", "*.md")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Skip("the files of the project are not known without git")
	}
	declared := map[string]map[string]bool{} // by the name of a package
	references := map[string][][]string{}    // by file: package and name
	for _, path := range strings.Fields(string(out)) {
		src, err := os.ReadFile(filepath.Join("..", path))
		if err != nil || strings.Contains(path, "testdata/") {
			continue // removed, and not yet committed; or not ours
		}
		if strings.HasSuffix(path, ".md") {
			for _, code := range codeOfPage.FindAllString(string(src), -1) {
				references[path] = append(references[path], qualifiedName.FindAllStringSubmatch(code, -1)...)
			}
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		require.NoError(t, err)
		for _, comment := range file.Comments {
			references[path] = append(references[path], docLink.FindAllStringSubmatch(comment.Text(), -1)...)
		}
		names := declared[file.Name.Name]
		if names == nil {
			names = map[string]bool{}
			declared[file.Name.Name] = names
		}
		declareNames(file, names)
	}
	delete(declared, "engine") // pages call a search.Engine so
	for path, names := range references {
		for _, m := range names {
			if exported := declared[m[1]]; exported != nil && !exported[m[2]] {
				assert.Fail(t, "stale name", "%s names %s.%s, which does not exist", path, m[1], m[2])
			}
		}
	}
}

// declareNames adds the names that a file declares for its package: functions, types, constants and
// variables, and, since pages name variables like packages, also methods and fields.
func declareNames(file *ast.File, names map[string]bool) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names[f.Name.Name] = true
		}
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		ast.Inspect(g, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				names[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names[name.Name] = true
				}
			case *ast.Field:
				for _, name := range n.Names {
					names[name.Name] = true
				}
			}
			return true
		})
	}
}
