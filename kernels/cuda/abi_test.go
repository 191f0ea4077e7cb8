package cuda

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// headerField is a field of a struct of plaid.cuh, laid out as CUDA does on the
// 64-bit hosts that there are: every value at a multiple of its size.
type headerField struct {
	name         string // as the host calls it; "_" for what is reserved
	kind         reflect.Type
	count        int // of an array; 1 for what is none
	offset, size uintptr
}

type headerStruct struct {
	fields []headerField
	size   uintptr
}

var (
	commentPattern    = regexp.MustCompile(`//[^\n]*|(?s:/\*.*?\*/)`)
	structPattern     = regexp.MustCompile(`(?s)struct\s+(\w+Params|Dense\w+|EncoderSpan)\s*\{(.*?)\}\s*;`)
	declaratorPattern = regexp.MustCompile(`^(\**)\s*(\w+)\s*(?:\[\s*(\w+)\s*\])?$`)
	constantPattern   = regexp.MustCompile(`constexpr\s+int\s+(\w+)\s*=\s*([^;]+);`)
)

// scalarTypes are the types of fields that are no pointers.
var scalarTypes = map[string]reflect.Type{
	"uint8_t": reflect.TypeFor[uint8](), "uint16_t": reflect.TypeFor[uint16](), "uint32_t": reflect.TypeFor[uint32](), "uint64_t": reflect.TypeFor[uint64](),
	"int8_t": reflect.TypeFor[int8](), "int16_t": reflect.TypeFor[int16](), "int32_t": reflect.TypeFor[int32](), "int64_t": reflect.TypeFor[int64](),
	"int": reflect.TypeFor[int32](), "float": reflect.TypeFor[float32](), "double": reflect.TypeFor[float64](),
}

// parseHeader reads the structs of parameters in a header.
func parseHeader(text string) (map[string]*headerStruct, error) {
	text = commentPattern.ReplaceAllString(text, "")
	constants := map[string]string{}
	for _, m := range constantPattern.FindAllStringSubmatch(text, -1) {
		constants[m[1]] = strings.TrimSpace(m[2])
	}
	structs := map[string]*headerStruct{}
	for _, m := range structPattern.FindAllStringSubmatch(text, -1) {
		s := &headerStruct{}
		align := uintptr(1)
		for _, line := range strings.Split(m[2], ";") {
			words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "const "))
			if len(words) == 0 {
				continue
			}
			for _, declarator := range strings.Split(strings.Join(words[1:], " "), ",") {
				d := declaratorPattern.FindStringSubmatch(strings.TrimSpace(declarator))
				if d == nil {
					return nil, fmt.Errorf("%s: cannot read %q", m[1], strings.TrimSpace(line))
				}
				f := headerField{name: hostName(d[2]), kind: scalarTypes[words[0]], count: 1}
				if nested := structs[words[0]]; nested != nil && d[1] == "" {
					f.kind = nested.host()
				}
				if d[1] != "" {
					f.kind = reflect.TypeFor[driver.Ptr]()
				}
				if f.kind == nil {
					return nil, fmt.Errorf("%s: unknown type of %q", m[1], strings.TrimSpace(line))
				}
				if length := d[3]; length != "" {
					if c, ok := constants[length]; ok {
						length = c
					}
					n, err := strconv.Atoi(length)
					if err != nil {
						return nil, fmt.Errorf("%s: length of %q: %w", m[1], strings.TrimSpace(line), err)
					}
					f.count = n
				}
				unit := uintptr(f.kind.Align())
				align = max(align, unit)
				s.size = roundUp(s.size, unit)
				f.offset, f.size = s.size, f.kind.Size()*uintptr(f.count)
				s.size += f.size
				s.fields = append(s.fields, f)
			}
		}
		s.size = roundUp(s.size, align)
		structs[m[1]] = s
	}
	return structs, nil
}

// host is the type of the host that a struct of the header is to be like.
func (s *headerStruct) host() reflect.Type {
	var fields []reflect.StructField
	for _, f := range s.fields {
		kind := f.kind
		if f.count > 1 {
			kind = reflect.ArrayOf(f.count, kind)
		}
		fields = append(fields, reflect.StructField{Name: f.name, PkgPath: "cuda", Type: kind})
	}
	return reflect.StructOf(fields)
}

func roundUp(n, unit uintptr) uintptr { return (n + unit - 1) / unit * unit }

// hostName is what the host calls a field: n_dev is nDev, out_ids outIDs.
func hostName(name string) string {
	if name == "reserved" {
		return "_"
	}
	parts := strings.Split(name, "_")
	for i, p := range parts[1:] {
		if p == "ids" {
			parts[i+1] = "IDs"
		} else {
			parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// compareABI tells every difference between a struct of the header and one of
// the host.
func compareABI(name string, s *headerStruct, host reflect.Type) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, name+": "+fmt.Sprintf(format, args...)) }
	if len(s.fields) != host.NumField() {
		fault("%d fields, the host has %d", len(s.fields), host.NumField())
	}
	for i := range min(len(s.fields), host.NumField()) {
		f, h := s.fields[i], host.Field(i)
		kind, count := h.Type, 1
		if kind.Kind() == reflect.Array {
			kind, count = kind.Elem(), kind.Len()
		}
		switch {
		case f.name != h.Name:
			fault("field %d is %s, the host's %s", i, f.name, h.Name)
		case f.kind != kind || f.count != count:
			fault("%s is %d of %v, the host's %d of %v", f.name, f.count, f.kind, count, kind)
		case f.offset != h.Offset || f.size != h.Type.Size():
			fault("%s takes %d bytes at %d, the host's %d at %d", f.name, f.size, f.offset, h.Type.Size(), h.Offset)
		}
	}
	if s.size != host.Size() {
		fault("%d bytes, the host's %d", s.size, host.Size())
	}
	return faults
}

// hostTypes are the types of fields of the host's structs.
var hostTypes = map[string]reflect.Type{
	"driver.Ptr": reflect.TypeFor[driver.Ptr](), "uint32": reflect.TypeFor[uint32](), "uint64": reflect.TypeFor[uint64](), "float32": reflect.TypeFor[float32](),
	"uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](), "int32": reflect.TypeFor[int32](), "int64": reflect.TypeFor[int64](),
}

// hostStructs are the structs of parameters of all families of kernels, by the
// names that headers give them. They stand beside the launches, in packages of
// their own, so they are read from the sources.
func hostStructs() (map[string]reflect.Type, error) {
	structs := map[string]reflect.Type{}
	files, err := filepath.Glob("internal/*/*.go")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.TYPE {
				continue
			}
			for _, spec := range group.Specs {
				s := spec.(*ast.TypeSpec)
				fields, ok := s.Type.(*ast.StructType)
				if !ok || !strings.HasSuffix(s.Name.Name, "Params") && !strings.HasPrefix(s.Name.Name, "dense") && s.Name.Name != "encoderSpan" {
					continue
				}
				key := strings.ToUpper(s.Name.Name[:1]) + s.Name.Name[1:]
				if structs[key] != nil {
					return nil, fmt.Errorf("%s: %s is there twice", name, s.Name)
				}
				if structs[key], err = hostStruct(fields, structs); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", name, s.Name, err)
				}
			}
		}
	}
	return structs, nil
}

// hostStruct is the type that a declaration describes; known are structs that were
// declared before.
func hostStruct(s *ast.StructType, known map[string]reflect.Type) (reflect.Type, error) {
	var fields []reflect.StructField
	for _, f := range s.Fields.List {
		expr, length := f.Type, 0
		if a, ok := expr.(*ast.ArrayType); ok {
			n, err := strconv.Atoi(types.ExprString(a.Len))
			if err != nil {
				return nil, fmt.Errorf("length of %s: %w", types.ExprString(expr), err)
			}
			expr, length = a.Elt, n
		}
		name := types.ExprString(expr)
		kind := hostTypes[name]
		if kind == nil {
			kind = known[strings.ToUpper(name[:1])+name[1:]]
		}
		if kind == nil {
			return nil, fmt.Errorf("unknown type %s", types.ExprString(expr))
		}
		if length > 0 {
			kind = reflect.ArrayOf(length, kind)
		}
		for _, name := range f.Names {
			fields = append(fields, reflect.StructField{Name: name.Name, PkgPath: "cuda", Type: kind})
		}
	}
	return reflect.StructOf(fields), nil
}

func compareHeader(text string) (faults []string) {
	structs, err := parseHeader(text)
	if err != nil {
		return []string{err.Error()}
	}
	host, err := hostStructs()
	if err != nil {
		return []string{err.Error()}
	}
	for name, s := range structs {
		if host[name] == nil {
			faults = append(faults, name+": the host has none")
			continue
		}
		faults = append(faults, compareABI(name, s, host[name])...)
	}
	for name := range host {
		if structs[name] == nil {
			faults = append(faults, name+": the header has none")
		}
	}
	return faults
}

// The host's structs are those of the header, field for field and byte for byte.
func TestParametersAreThoseOfTheHeader(t *testing.T) {
	header := ""
	files, err := filepath.Glob("src/*.cuh")
	require.NoError(t, err)
	files = append(files, "src/dense/dense.cuh", "src/dense/chamfer.cuh", "src/dense/chamfergrad.cuh", "src/encoder/encoder.cuh")
	for _, name := range files {
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		header += string(file)
	}
	structs, err := parseHeader(header)
	require.NoError(t, err)
	require.Len(t, structs, 56)
	require.Empty(t, compareHeader(header))

	// Each of these slips is noticed.
	for name, change := range map[string][2]string{
		"order":          {"uint32_t n, k, dim, width;", "uint32_t k, n, dim, width;"},
		"name":           {"uint32_t walk_capacity;", "uint32_t walk_room;"},
		"type":           {"float s_max;", "uint32_t s_max;"},
		"width":          {"uint64_t s_stride;", "uint32_t s_stride;"},
		"pointer":        {"const uint32_t *n_dev;            // number", "uint64_t n_dev;            // number"},
		"array":          {"uint32_t max_groups;", "uint32_t max_groups[2];"},
		"nested":         {"  DenseItem first; ", "  DenseGroup first; "},
		"removed":        {"  uint32_t n_tiles;", "  // uint32_t n_tiles;"},
		"added":          {"  float a_max;", "  float a_max, b_max;"},
		"padding":        {"  uint32_t n, k;\n  uint64_t ids_stride; ", "  uint32_t n;\n  uint64_t ids_stride;\n  uint32_t k; "},
		"unknown type":   {"float c_norm, c_error;", "half c_norm, c_error;"},
		"struct renamed": {"struct MarkParams", "struct MarksParams"},
	} {
		require.Equal(t, 1, strings.Count(header, change[0]), "%s: %q", name, change[0])
		require.NotEmpty(t, compareHeader(strings.Replace(header, change[0], change[1], 1)), name)
	}
}

// A slip of the host's side is noticed as well.
func TestComparisonSeesTheHostsSide(t *testing.T) {
	structs, err := parseHeader("struct PParams { const float *x; uint32_t n, k; float y[3]; uint32_t reserved; };")
	require.NoError(t, err)
	p := structs["PParams"]
	require.EqualValues(t, 32, p.size)
	require.Empty(t, compareABI("P", p, reflect.TypeFor[struct {
		x    driver.Ptr
		n, k uint32
		y    [3]float32
		_    uint32
	}]()))
	for name, host := range map[string]reflect.Type{
		"order": reflect.TypeFor[struct {
			x    driver.Ptr
			k, n uint32
			y    [3]float32
			_    uint32
		}](),
		"array": reflect.TypeFor[struct {
			x    driver.Ptr
			n, k uint32
			y    [4]float32
		}](),
		"type": reflect.TypeFor[struct {
			x driver.Ptr
			n uint32
			k float32
			y [3]float32
			_ uint32
		}](),
		"missing": reflect.TypeFor[struct {
			x    driver.Ptr
			n, k uint32
			y    [3]float32
		}](),
	} {
		require.NotEmpty(t, compareABI("P", p, host), name)
	}
}
