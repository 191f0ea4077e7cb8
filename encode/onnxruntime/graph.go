//go:build !noonnxruntime && (linux || darwin) && (amd64 || arm64)

package onnxruntime

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// The library's numbers of element types.
const (
	typeFloat32 = 1
	typeInt32   = 6
	typeInt64   = 7
	typeFloat16 = 10
)

// port is an input or an output of a graph.
type port struct {
	name     string
	cname    handle  // the name in memory of the library
	kind     int32   // the type of its elements
	shape    []int64 // −1 means any size
	isTensor bool    // it is a tensor
}

// Indexes in the functions of api that exist for inputs and for outputs.
const inputs, outputs = 0, 1

// listPorts returns the inputs or the outputs of a session. The caller frees their names.
func (a *api) listPorts(session handle, side int) (list []port, err error) {
	var n uintptr
	if err := a.statusError(a.count[side](session, &n)); err != nil {
		return nil, err
	}
	for i := range n {
		p, err := a.readPort(session, side, i)
		list = append(list, p)
		if err != nil {
			a.freeNames(list)
			return nil, err
		}
	}
	return list, nil
}

// readPort returns an input or output. Its name has to be freed, also after an error.
func (a *api) readPort(session handle, side int, i uintptr) (p port, err error) {
	if err := a.statusError(a.name[side](session, i, a.allocator, &p.cname)); err != nil {
		return p, err
	}
	p.name = goString(p.cname)
	var info, tensor handle
	if err := a.statusError(a.typeInfo[side](session, i, &info)); err != nil {
		return p, err
	}
	defer a.releaseTypeInfo(info)
	if err := a.statusError(a.tensorInfo(info, &tensor)); err != nil {
		return p, err
	}
	if tensor == nil { // a sequence or a map
		return p, nil
	}
	p.isTensor = true
	p.kind, p.shape, err = a.readShape(tensor)
	return p, err
}

// readShape returns the type of the elements and the shape in a description of a tensor.
func (a *api) readShape(info handle) (kind int32, dims []int64, err error) {
	var n uintptr
	if err := a.firstError(a.elementType(info, &kind), a.dimsCount(info, &n)); err != nil || n == 0 {
		return kind, nil, err
	}
	dims = make([]int64, n)
	return kind, dims, a.statusError(a.dims(info, &dims[0], n))
}

// freeNames frees the names of ports in the memory of the library.
func (a *api) freeNames(list []port) {
	for _, p := range list {
		if p.cname != nil {
			a.statusError(a.free(a.allocator, p.cname))
		}
	}
}

// goString copies a string of C.
func goString(p handle) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// inputNames are the names of the inputs that a graph may have.
var inputNames = []string{"input_ids", "attention_mask", "token_type_ids"}

// selectPorts selects the inputs, in the order of names, and the output: the only one with three
// dimensions, or among several the one named output, embeddings or token_embeddings.
func (m *Model) selectPorts(in, out []port) error {
	// The inputs.
	m.in = make([]port, 0, len(inputNames))
	for _, name := range inputNames {
		i := slices.IndexFunc(in, func(p port) bool { return p.name == name })
		if i < 0 {
			if name == "token_type_ids" {
				continue
			}
			return fmt.Errorf("%w: has no input %s, but %s", ErrGraph, name, joinPorts(in))
		}
		if p := in[i]; len(p.shape) != 2 || p.kind != typeInt64 && p.kind != typeInt32 {
			return fmt.Errorf("%w: input %s is %s, want whole numbers [texts, ids]", ErrGraph, name, p)
		}
		m.in = append(m.in, in[i])
	}
	if len(in) != len(m.in) {
		return fmt.Errorf("%w: has inputs %s, of which only %s are known",
			ErrGraph, joinPorts(in), strings.Join(inputNames, ", "))
	}
	for _, p := range m.in {
		if p.shape[0] > 1 {
			return fmt.Errorf("%w: input %s takes %d texts at once, want any number or 1",
				ErrGraph, p.name, p.shape[0])
		}
		if p.shape[0] == 1 {
			m.single = true
		}
		if n := int(p.shape[1]); n >= 0 {
			if n == 0 || m.length > 0 && m.length != n {
				return fmt.Errorf("%w: inputs %s contradict each other", ErrGraph, joinPorts(in))
			}
			m.length = n
		}
	}
	// The output.
	var candidates []port
	for _, p := range out {
		if p.isTensor && (p.kind == typeFloat32 || p.kind == typeFloat16) && len(p.shape) == 3 {
			candidates = append(candidates, p)
		}
	}
	for _, name := range []string{"output", "embeddings", "token_embeddings"} {
		for _, p := range candidates {
			if len(candidates) > 1 && p.name == name {
				candidates = []port{p}
			}
		}
	}
	if len(candidates) != 1 {
		return fmt.Errorf("%w: has outputs %s, want one output of float32 or float16 [texts, ids, dimensions]",
			ErrGraph, joinPorts(out))
	}
	m.out = candidates[0]
	return nil
}

// String reads like: input_ids (int64 [-1 -1]).
func (p port) String() string {
	kind := map[int32]string{
		typeFloat32: "float32", typeFloat16: "float16", typeInt32: "int32", typeInt64: "int64",
	}[p.kind]
	if kind == "" {
		kind = fmt.Sprintf("type %d", p.kind)
	}
	if !p.isTensor {
		kind = "no tensor"
	}
	return fmt.Sprintf("%s (%s %v)", p.name, kind, p.shape)
}

// joinPorts lists ports in a message.
func joinPorts(list []port) string {
	if len(list) == 0 {
		return "none"
	}
	var s []string
	for _, p := range list {
		s = append(s, p.String())
	}
	return strings.Join(s, ", ")
}
