package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/plaid-ir/plaid"

// unusedAndKept are exported names that nothing in the repository uses outside their
// package, and why they are there.
var unusedAndKept = map[string]string{
	"encode/native.Family":        "an alias beside those of Config and Weights, which has it as a field",
	"encode/native.Tiers":         "what Options.Tier may name",
	"eval.LineError":              "for errors.As: the line of a file",
	"eval.LoadRun":                "docs/evaluation.md reads runs by it, as LoadQrels reads judgements",
	"eval.PairedBootstrap":        "docs/evaluation.md: a test of Compare by itself",
	"eval.PairedTTest":            "docs/evaluation.md: a test of Compare by itself",
	"eval.RandomisationTest":      "docs/evaluation.md: a test of Compare by itself",
	"eval.Qrels.Grade":            "what judgements are read for",
	"index.SetError":              "for errors.As: the file of a set",
	"kernels.OracleApprox":        "the definition that backends are held against",
	"kernels/maxsim.FP8":          "makes a matrix of a kind, as Float32 and Int8 do of theirs",
	"metadata/condition.ValueOf":  "makes a Value, as Bind does of its parameters",
	"search/highlight.HTML":       "for pages of programs that show what plaid.Hit.Spans covers",
	"search/keywords.LengthError": "for errors.As: what is too long",
	"server.Maker":                "what an Encoder may implement",
	"server.Matrix":               "its name is that of the schema in the description of the service",
	"server/mcp.DefaultHits":      "a limit that agents meet",
	"server/mcp.MaxHits":          "a limit that agents meet",
	"server/mcp.MaxQuery":         "a limit that agents meet",
	"server/mcp.SnippetBytes":     "a limit that agents meet",
	"server/mcp.TextBytes":        "a limit that agents meet",
	"vectors/packed.Open":         "docs/dense.md: packed documents without a file of vectors around them",
}

// Each exported name has a user: a command, the service, the cluster, another package, a test
// of one, or an example. What nobody uses is not exported, or says above why it is. Sentinel
// errors and codes of problems are for those who test for them.
func TestExportedNamesAreUsed(t *testing.T) {
	s := &names{declared: map[string]map[string][]string{}, methods: map[string][]string{}, used: map[string]bool{}, selected: map[string]map[string]bool{}, promised: map[string]bool{}}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != ".."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		return s.read(path)
	}))
	s.spread()
	var unused []string
	for dir, all := range s.declared {
		for name := range all {
			if !s.used[dir+"."+name] && !strings.HasPrefix(name, "Err") && !strings.HasPrefix(name, "Code") {
				unused = append(unused, dir+"."+name)
			}
		}
	}
	for method, dirs := range s.methods {
		name, elsewhere := method[strings.LastIndex(method, ".")+1:], false
		for dir := range s.selected[name] {
			elsewhere = elsewhere || dir != dirs[0]
		}
		if !elsewhere && !s.promised[name] {
			unused = append(unused, strings.Replace(method, "#", ".", 1))
		}
	}
	slices.Sort(unused)
	for _, name := range unused {
		require.NotEmpty(t, unusedAndKept[name], "%s: nothing uses it outside its package", name)
	}
	for name := range unusedAndKept {
		require.Contains(t, unused, name, "it is used now, or gone")
	}
}

// names are the exported names of packages, and where they are used.
type names struct {
	declared map[string]map[string][]string // by folder and name: the names that its declaration mentions
	methods  map[string][]string            // by FOLDER#TYPE.METHOD: the folder, and the names that it mentions
	used     map[string]bool                // FOLDER.NAME
	selected map[string]map[string]bool     // by the name behind a dot: in which folders
	promised map[string]bool                // methods of interfaces
}

// wellKnown are methods of interfaces of the standard library and of what is linked.
var wellKnown = []string{
	"Error", "Unwrap", "Is", "As", "String", "GoString", "Format", "Close", "Read", "Write", "ReadAt", "Seek", "ReadFrom", "WriteTo", "Len", "Less", "Swap",
	"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "MarshalYAML", "UnmarshalYAML", "Set", "Type", "ServeHTTP", "LogValue", "Handle", "Enabled", "WithAttrs", "WithGroup",
}

// public tells whether others can import a folder.
func public(dir string) bool {
	for _, part := range strings.Split(dir, "/") {
		if slices.Contains([]string{"internal", "lab", "cmd", "examples", "python", "docs", "deploy", "cluster", "formats"}, part) || strings.HasSuffix(part, "test") {
			return false
		}
	}
	return true
}

func (s *names) read(path string) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "..")
	dir = strings.TrimPrefix(dir, "/")
	test := strings.HasSuffix(path, "_test.go")
	example := test && strings.HasPrefix(filepath.Base(path), "example")
	imported := map[string]string{}
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		to, ok := strings.CutPrefix(p, modulePath)
		if !ok {
			continue
		}
		to = strings.TrimPrefix(to, "/")
		name := filepath.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = to
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				if to, ok := imported[x.Name]; ok && (to != dir || example) {
					s.used[to+"."+n.Sel.Name] = true
				}
			}
			where := dir
			if example {
				where += " examples"
			}
			if s.selected[n.Sel.Name] == nil {
				s.selected[n.Sel.Name] = map[string]bool{}
			}
			s.selected[n.Sel.Name][where] = true
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				for _, name := range m.Names {
					s.promised[name.Name] = true
				}
			}
		}
		return true
	})
	if test || f.Name.Name == "main" || !public(dir) {
		return nil
	}
	if s.declared[dir] == nil {
		s.declared[dir] = map[string][]string{}
	}
	for _, d := range f.Decls {
		s.declare(dir, d)
	}
	return nil
}

func (s *names) declare(dir string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() {
			return
		}
		if d.Recv == nil {
			s.declared[dir][d.Name.Name] = mentioned(d.Type)
			return
		}
		if of := receiver(d); ast.IsExported(of) {
			s.methods[dir+"#"+of+"."+d.Name.Name] = append([]string{dir}, mentioned(d.Type)...)
		}
	case *ast.GenDecl:
		var group []string // an enumeration is whole
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.CONST {
				for _, name := range v.Names {
					group = append(group, name.Name)
				}
			}
		}
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				s.declared[dir][spec.Name.Name] = mentioned(spec.Type)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					s.declared[dir][name.Name] = append(mentioned(spec), group...)
				}
			}
		}
	}
	for name := range s.declared[dir] {
		if !ast.IsExported(name) {
			delete(s.declared[dir], name)
		}
	}
}

func receiver(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	switch x := of.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.IndexExpr:
		if id, ok := x.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

// mentioned are the exported names of the package itself in a node.
func mentioned(n ast.Node) (all []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if _, ok := n.(*ast.SelectorExpr); ok { // of another package
			return false
		}
		if id, ok := n.(*ast.Ident); ok && id.IsExported() {
			all = append(all, id.Name)
		}
		return true
	})
	return all
}

// spread marks what the declarations of used names mention: nobody need name a type that a
// function returns.
func (s *names) spread() {
	for _, name := range wellKnown {
		s.promised[name] = true
	}
	var use func(dir, name string)
	use = func(dir, name string) {
		s.used[dir+"."+name] = true
		for _, other := range s.declared[dir][name] {
			if _, there := s.declared[dir][other]; there && !s.used[dir+"."+other] {
				use(dir, other)
			}
		}
		for method, about := range s.methods {
			if !strings.HasPrefix(method, dir+"#"+name+".") {
				continue
			}
			for _, other := range about[1:] {
				if _, there := s.declared[dir][other]; there && !s.used[dir+"."+other] {
					use(dir, other)
				}
			}
		}
	}
	for full := range maps.Clone(s.used) {
		at := strings.LastIndex(full, ".")
		use(full[:at], full[at+1:])
	}
}
