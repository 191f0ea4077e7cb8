package docs_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the recorded API anew")

// The exported names of each package are those in testdata/api, so that a change of them is
// one that somebody has meant: go test ./docs -run API -update records it.
func TestRecordedAPI(t *testing.T) {
	want := map[string]bool{}
	for dir, text := range exportedAPI(t) {
		name := strings.ReplaceAll(strings.Trim(dir, "./"), "/", "-")
		if name == "" {
			name = "plaid"
		}
		path := filepath.Join("testdata", "api", name+".txt")
		want[path] = true
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
			require.NoError(t, os.WriteFile(path, text, 0o666))
			continue
		}
		recorded, err := os.ReadFile(path)
		require.NoError(t, err, "a new package: go test ./docs -run API -update records it")
		require.Equal(t, string(recorded), string(text), "%s has another API than is recorded: go test ./docs -run API -update records it", dir)
	}
	recorded, err := filepath.Glob(filepath.Join("testdata", "api", "*.txt"))
	require.NoError(t, err)
	for _, path := range recorded {
		if !want[path] && *update {
			require.NoError(t, os.Remove(path))
		} else {
			require.True(t, want[path], "%s: the package is gone", path)
		}
	}
}

// exportedAPI is what each package exports as it is on Linux, without comments and bodies.
func exportedAPI(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	context := build.Default
	context.GOOS, context.GOARCH, context.CgoEnabled = "linux", "amd64", false
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case slices.Contains([]string{"internal", "testdata", "lab", "cmd", "examples", "python", "docs", "deploy", "cluster", "formats"}, d.Name()),
			strings.HasPrefix(d.Name(), ".") && path != "..", strings.HasSuffix(d.Name(), "test"):
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil {
			return err
		}
		var decls []string
		for _, file := range files {
			if ok, err := context.MatchFile(path, filepath.Base(file)); err != nil || !ok || strings.HasSuffix(file, "_test.go") {
				if err != nil {
					return err
				}
				continue
			}
			decls = append(decls, exportedDecls(t, file)...)
		}
		if slices.Sort(decls); len(decls) > 0 {
			all[strings.TrimPrefix(path, "..")] = []byte(strings.Join(decls, "\n") + "\n")
		}
		return nil
	})
	require.NoError(t, err)
	return all
}

// exportedDecls are those of a file, each as text.
func exportedDecls(t *testing.T, file string) (texts []string) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	if f.Name.Name == "main" || !ast.FileExports(f) {
		return nil
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			d.Body = nil
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					v.Values = nil // a variable is its name and type
				}
			}
		}
		var b bytes.Buffer
		require.NoError(t, format.Node(&b, set, decl))
		var lines []string
		for line := range strings.Lines(b.String()) {
			if line = strings.TrimRight(line, "\n"); strings.TrimSpace(line) != "" { // comments leave empty ones
				lines = append(lines, line)
			}
		}
		texts = append(texts, strings.Join(lines, "\n"))
	}
	return texts
}
