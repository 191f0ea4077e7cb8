package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainNames are methods that interfaces of the standard library prescribe: their
// names say what they do.
var plainNames = []string{
	"Error", "String", "Unwrap", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "IsZero", "Len", "Less", "Swap", "Close",
}

// reports are the types whose fields are read by those who have no source at hand:
// what operations give back.
var reports = regexp.MustCompile(`(Report|Stats|Info|Result|Tuning|Tuned|Trial|Point|Latency|Recall|Compression|Overlap|Description|Drift|Explanation|Match|Sizes|Times|Progress|Hit|Answer)$`)

// Every exported name has a comment, and every field of a report. A comment at the end
// of the line will do for a field, and one comment for the fields of one line.
func TestExportedNamesHaveComments(t *testing.T) {
	var missing []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case slices.Contains([]string{"internal", "testdata", "studies", "peers", "cmd", "examples"}, d.Name()), strings.HasPrefix(d.Name(), ".") && path != "..":
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				missing = append(missing, uncommented(t, file)...)
			}
		}
		return err
	})
	require.NoError(t, err)
	require.Empty(t, missing, strings.Join(missing, "\n"))
}

func uncommented(t *testing.T, file string) (missing []string) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	if f.Name.Name == "main" {
		return nil
	}
	miss := func(at token.Pos, name string) {
		missing = append(missing, fmt.Sprintf("%v: %s has no comment", set.Position(at), name))
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && ofExported(d) && !(d.Recv != nil && slices.Contains(plainNames, d.Name.Name)) {
				miss(d.Pos(), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if !s.Name.IsExported() {
						continue
					}
					if s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
						miss(s.Pos(), s.Name.Name)
					}
					if st, ok := s.Type.(*ast.StructType); ok && reports.MatchString(s.Name.Name) {
						for _, field := range bare(st) {
							miss(field.Pos(), s.Name.Name+"."+field.Name)
						}
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
							miss(name.Pos(), name.Name)
						}
					}
				}
			}
		}
	}
	return missing
}

// ofExported tells whether a function is one of the package, or a method of a type
// that others can name.
func ofExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	kind := d.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.IsExported()
		default:
			return true
		}
	}
}

// bare are the exported fields of a struct that have no comment, those of structs in it
// included. An embedded type has a comment of its own.
func bare(s *ast.StructType) (names []*ast.Ident) {
	above := "" // the last comment, which may name the fields below it, too
	for _, f := range s.Fields.List {
		inner, ok := f.Type.(*ast.StructType)
		if f.Doc != nil {
			above = f.Doc.Text()
		}
		for _, name := range f.Names {
			told := f.Doc != nil || f.Comment != nil || regexp.MustCompile(`\b`+name.Name+`\b`).MatchString(above)
			if name.IsExported() && !told {
				names = append(names, name)
			}
		}
		if ok && f.Doc == nil {
			names = append(names, bare(inner)...)
		}
	}
	return names
}
