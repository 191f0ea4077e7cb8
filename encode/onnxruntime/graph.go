//go:build !noonnxruntime && (linux || darwin) && (amd64 || arm64)

package onnxruntime

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// Types of elements, as the library numbers them.
const (
	typeFloat32 = 1
	typeInt32   = 6
	typeInt64   = 7
	typeFloat16 = 10
)

// port is an input or an output of a graph.
type port struct {
	name    string
	cname   handle  // the name in memory of the library
	kind    int32   // of elements
	shape   []int64 // −1: open
	isKnown bool    // that it is a tensor
}

const inputs, outputs = 0, 1

// ports lists the inputs or the outputs of a session.
func (a *api) ports(session handle, side int) (list []port, err error) {
	var n uintptr
	if err := a.check(a.count[side](session, &n)); err != nil {
		return nil, err
	}
	for i := range n {
		p, err := a.port(session, side, i)
		list = append(list, p)
		if err != nil {
			a.freeNames(list)
			return nil, err
		}
	}
	return list, nil
}

func (a *api) port(session handle, side int, i uintptr) (p port, err error) {
	if err := a.check(a.name[side](session, i, a.allocator, &p.cname)); err != nil {
		return p, err
	}
	p.name = text(p.cname)
	var info, tensor handle
	if err := a.check(a.typeInfo[side](session, i, &info)); err != nil {
		return p, err
	}
	defer a.releaseTypeInfo(info)
	if err := a.check(a.tensorInfo(info, &tensor)); err != nil {
		return p, err
	}
	if tensor == nil { // a sequence or a map
		return p, nil
	}
	p.isKnown = true
	p.kind, p.shape, err = a.shape(tensor)
	return p, err
}

// shape is what a description of a tensor says.
func (a *api) shape(info handle) (kind int32, dims []int64, err error) {
	var n uintptr
	if err := a.first(a.elementType(info, &kind), a.dimsCount(info, &n)); err != nil || n == 0 {
		return kind, nil, err
	}
	dims = make([]int64, n)
	return kind, dims, a.check(a.dims(info, &dims[0], n))
}

func (a *api) freeNames(list []port) {
	for _, p := range list {
		if p.cname != nil {
			a.check(a.free(a.allocator, p.cname))
		}
	}
}

// text is a string of C.
func text(p handle) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// names are the inputs that a graph may have, with what they are.
var names = []string{"input_ids", "attention_mask", "token_type_ids"}

// choose finds the inputs, in the order of names, and the output: the only one with three
// dimensions, or of several the one that is called output, embeddings or token_embeddings.
func (m *Model) choose(in, out []port) error {
	m.in = make([]port, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(in, func(p port) bool { return p.name == name })
		if i < 0 {
			if name == "token_type_ids" {
				continue
			}
			return fmt.Errorf("%w: has no input %s, but %s", ErrGraph, name, listed(in))
		}
		if p := in[i]; len(p.shape) != 2 || p.kind != typeInt64 && p.kind != typeInt32 {
			return fmt.Errorf("%w: input %s is %s, want whole numbers [texts, ids]", ErrGraph, name, p)
		}
		m.in = append(m.in, in[i])
	}
	if len(in) != len(m.in) {
		return fmt.Errorf("%w: has inputs %s, of which only %s are known", ErrGraph, listed(in), strings.Join(names, ", "))
	}
	for _, p := range m.in {
		if p.shape[0] > 1 {
			return fmt.Errorf("%w: input %s takes %d texts at once, want any number or 1", ErrGraph, p.name, p.shape[0])
		}
		if p.shape[0] == 1 {
			m.single = true
		}
		if n := int(p.shape[1]); n >= 0 {
			if n == 0 || m.length > 0 && m.length != n {
				return fmt.Errorf("%w: inputs %s contradict each other", ErrGraph, listed(in))
			}
			m.length = n
		}
	}
	var fit []port
	for _, p := range out {
		if p.isKnown && (p.kind == typeFloat32 || p.kind == typeFloat16) && len(p.shape) == 3 {
			fit = append(fit, p)
		}
	}
	for _, name := range []string{"output", "embeddings", "token_embeddings"} {
		for _, p := range fit {
			if len(fit) > 1 && p.name == name {
				fit = []port{p}
			}
		}
	}
	if len(fit) != 1 {
		return fmt.Errorf("%w: has outputs %s, want one output of float32 or float16 [texts, ids, dimensions]", ErrGraph, listed(out))
	}
	m.out = fit[0]
	return nil
}

func (p port) String() string {
	kind := map[int32]string{typeFloat32: "float32", typeFloat16: "float16", typeInt32: "int32", typeInt64: "int64"}[p.kind]
	if kind == "" {
		kind = fmt.Sprintf("type %d", p.kind)
	}
	if !p.isKnown {
		kind = "no tensor"
	}
	return fmt.Sprintf("%s (%s %v)", p.name, kind, p.shape)
}

func listed(list []port) string {
	if len(list) == 0 {
		return "none"
	}
	var s []string
	for _, p := range list {
		s = append(s, p.String())
	}
	return strings.Join(s, ", ")
}
