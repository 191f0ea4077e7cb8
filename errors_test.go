package plaid_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid"
	"github.com/plaid-ir/plaid/search"
)

// elsewhere are errors that are not here: they are kinds of others that are, or nobody
// outside of the module meets them.
var elsewhere = map[string]string{
	"search.ErrOption": "a kind of ErrOption", "search.ErrUnknownID": "a kind of ErrNotFound", "search.ErrClosed": "a kind of ErrClosed",
	"storage.ErrUnrelated": "an incremental backup copies all then", "storage.ErrManyChanges": "the same",
	"interop.ErrChanged": "of a folder", "interop.ErrNoIVF": "of a folder", "interop.ErrClosed": "of a folder",
	"kernels.ErrShape": "of kernels", "kernels.ErrDeviceClosed": "of kernels",
}

// Every sentinel of these packages has its name here.
func TestErrorsAreInOnePlace(t *testing.T) {
	here, err := os.ReadFile("errors.go")
	require.NoError(t, err)
	for _, dir := range []string{"index/metadata/condition", "index", "index/interop", "kernels", "search", "storage", "vectors"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			require.NoError(t, err)
			for _, decl := range f.Decls {
				vars, ok := decl.(*ast.GenDecl)
				if !ok || vars.Tok != token.VAR {
					continue
				}
				for _, spec := range vars.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						full := filepath.Base(dir) + "." + name.Name
						if !strings.HasPrefix(name.Name, "Err") || elsewhere[full] != "" {
							continue
						}
						require.Regexp(t, `= `+regexp.QuoteMeta(full)+`\n`, string(here))
					}
				}
			}
		}
	}
}

func TestKindsOfErrors(t *testing.T) {
	require.ErrorIs(t, search.ErrUnknownID, plaid.ErrNotFound)
	require.ErrorIs(t, search.ErrOption, plaid.ErrOption)
	require.ErrorIs(t, search.ErrClosed, plaid.ErrClosed)
}
