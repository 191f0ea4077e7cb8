// Package style_test counts words that make readers of the code stop.
package style_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// limits are the counts that are left. They only fall: a change that lowers a count lowers its limit.
var limits = map[string]int{
	"phrases":   0,  // in comments of Go, see phrases
	"foreign":   2,  // the same in Python, JavaScript, C and CUDA
	"functions": 49, // names of at most five letters, see goVerbs
	"variables": 0,  // names of looseNames that live longer than five lines
	"columns":   0,  // lines of more than 120, in sources that wrapped lists
}

// wrapped are the sources whose lines have at most 120 columns. Device code has tables of instructions.
var wrapped = []string{".go", ".py", ".c", ".h"}

// phrases read as translated: CONTRIBUTING.md says how to write instead.
var phrases = regexp.MustCompile(strings.Join([]string{
	`\bwhat (is|are|it|they|has|was|comes|goes|follows|stands)\b`,
	`; (nil|0|""|none)[ ,:]`,
	`\b(nobody|whoever|who has|for who|one who)\b`,
	`\bbeside\b`,
	`\bof (which|whose)\b`,
	`\bso (many|much|few)\b`,
	`\b(that is none|is none|are none|is no [a-z]+)\b`,
	`\b(anew|of before|but for|passe[sd] over|lets? stand|mend(s|ed)?)\b`,
	`\b(tells|says) whether\b`,
	`\b(is|are) to be\b`,
}, "|"))

// goVerbs are names of at most five letters that say what they do.
var goVerbs = strings.Fields(`add close copy dot error flush get hash init len load lock main max min next norm open pack
	parse pop put read reset run seek set size sort split store write`)

// looseNames may stand for anything.
var looseNames = strings.Fields(`again all at back each even held left more most of one own rest so some way whole`)

func TestWords(t *testing.T) {
	found := map[string][]string{}
	for _, path := range sources(t) {
		src, err := os.ReadFile(filepath.Join("../..", path))
		require.NoError(t, err)
		code := path[strings.LastIndexByte(path, '.'):]
		for i, line := range strings.Split(string(src), "\n") {
			place := fmt.Sprintf("%s:%d", path, i+1)
			if len([]rune(strings.ReplaceAll(line, "\t", "    "))) > 120 && slices.Contains(wrapped, code) {
				found["columns"] = append(found["columns"], place)
			}
			if code != ".go" {
				for _, phrase := range phrases.FindAllString(line, -1) {
					found["foreign"] = append(found["foreign"], place+": "+phrase)
				}
			}
		}
		if code == ".go" {
			inspectGo(t, path, src, func(measure, place string) { found[measure] = append(found[measure], place) })
		}
	}
	for measure, limit := range limits {
		places := found[measure]
		if dir := os.Getenv("PLAID_WORDS"); dir != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, measure), []byte(strings.Join(places, "\n")+"\n"), 0o600))
		}
		switch n := len(places); {
		case n > limit:
			t.Errorf("%d %s, and the limit is %d; PLAID_WORDS=DIR lists them in DIR. The first:\n%s",
				n, measure, limit, strings.Join(places[:min(n, 20)], "\n"))
		case n < limit:
			t.Errorf("%d %s are left: lower the limit, which is %d", n, measure, limit)
		}
	}
}

// sources returns the files of the product: tracked, written by hand, and not tests.
func sources(t *testing.T) []string {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.go", "python/src/*.py", "server/ui/*.js", "*.cu", "*.cuh", "*.c", "*.h")
	list.Dir = "../.."
	out, err := list.Output()
	if err != nil {
		t.Skip("the files of the product are not known without git")
	}
	generated := []byte("// Code generated")
	return slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata/") || strings.Contains(path, "vendor/") {
			return true
		}
		src, err := os.ReadFile(filepath.Join("../..", path))
		return err != nil || bytes.Contains(src[:min(len(src), 2000)], generated) // err: removed, and not yet committed
	})
}

func inspectGo(t *testing.T, path string, src []byte, report func(measure, place string)) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, src, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, group := range file.Comments {
		for _, comment := range group.List {
			for i, line := range strings.Split(comment.Text, "\n") {
				for _, phrase := range phrases.FindAllString(line, -1) {
					report("phrases", fmt.Sprintf("%s:%d: %s", path, set.Position(comment.Pos()).Line+i, phrase))
				}
			}
		}
	}
	line := func(n ast.Node) int { return set.Position(n.Pos()).Line }
	// declare reports a variable that is used until the end of scope.
	declare := func(name ast.Node, scope ast.Node) {
		id, ok := name.(*ast.Ident)
		if !ok || !slices.Contains(looseNames, id.Name) {
			return
		}
		last := line(id)
		ast.Inspect(scope, func(n ast.Node) bool {
			if use, ok := n.(*ast.Ident); ok && use.Name == id.Name {
				last = max(last, line(use))
			}
			return true
		})
		if last-line(id) > 5 {
			report("variables", fmt.Sprintf("%s:%d: %s", path, line(id), id.Name))
		}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if name := f.Name.Name; len(name) <= 5 && !f.Name.IsExported() && !slices.Contains(goVerbs, name) {
			report("functions", fmt.Sprintf("%s:%d: %s", path, line(f.Name), name))
		}
		if f.Body == nil {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncType:
				for _, p := range n.Params.List {
					for _, name := range p.Names {
						if n == f.Type {
							declare(name, f)
						}
					}
				}
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, name := range n.Lhs {
						declare(name, f)
					}
				}
			case *ast.RangeStmt:
				if n.Tok == token.DEFINE {
					declare(n.Key, n)
					declare(n.Value, n)
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					declare(name, f)
				}
			}
			return true
		})
	}
}
