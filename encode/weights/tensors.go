package weights

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/torch"
)

// container is a file of tensors.
type container interface {
	Names() []string
	Array(name string) (*vectors.Array, error)
	Close() error
}

// openContainer opens a file of safetensors, or one that torch.save wrote.
func openContainer(path string) (container, error) {
	if filepath.Ext(path) == ".bin" {
		return torch.Open(path)
	}
	return vectors.OpenSafetensors(path)
}

// tensors are those of one or more files. The first fault stays; tensors that are read after it are nil.
type tensors struct {
	files  []container
	paths  []string
	in     map[string]int // name → file
	asked  map[string]bool
	spared []string // beginnings of names that may be there
	err    error
}

func openTensors(paths []string) (*tensors, error) {
	t := &tensors{in: map[string]int{}, asked: map[string]bool{}}
	for i, path := range paths {
		s, err := openContainer(path)
		if err != nil {
			t.close()
			return nil, asModelError(path, "", err)
		}
		t.files, t.paths = append(t.files, s), append(t.paths, path)
		for _, name := range s.Names() {
			if j, twice := t.in[name]; twice {
				t.close()
				return nil, modeldir.Errorf(path, name, modeldir.ErrWeights, "is in %s too", paths[j])
			}
			t.in[name] = i
		}
	}
	return t, nil
}

func (t *tensors) close() {
	for _, f := range t.files {
		f.Close()
	}
}

func (t *tensors) has(name string) bool {
	_, ok := t.in[name]
	return ok
}

// fail keeps the first fault.
func (t *tensors) fail(name, format string, args ...any) {
	if t.err == nil {
		path := t.paths[0]
		if i, ok := t.in[name]; ok {
			path = t.paths[i]
		}
		t.err = modeldir.Errorf(path, name, modeldir.ErrWeights, format, args...)
	}
}

// shape is that of a tensor, nil if it is not there.
func (t *tensors) shape(name string) []int {
	if i, ok := t.in[name]; ok {
		if a, err := t.files[i].Array(name); err == nil {
			return a.Shape
		}
	}
	return nil
}

// read reads a tensor of a shape.
func (t *tensors) read(name string, shape ...int) []float32 {
	if t.err != nil {
		return nil
	}
	t.asked[name] = true
	i, ok := t.in[name]
	if !ok {
		t.fail(name, "is missing")
		return nil
	}
	a, err := t.files[i].Array(name)
	if err != nil {
		t.err = asModelError(t.paths[i], name, err)
		return nil
	}
	if !slices.Equal(a.Shape, shape) {
		t.fail(name, "has shape %v, want %v", a.Shape, shape)
		return nil
	}
	if !slices.Contains([]string{"<f4", "<f2", "bf16"}, a.Dtype) {
		t.fail(name, "has numbers of type %s, want float32, float16 or bfloat16", a.Dtype)
		return nil
	}
	x := make([]float32, a.Len())
	if err := a.Float32s(x, 0); err != nil {
		t.err = asModelError(t.paths[i], name, err)
		return nil
	}
	if at := slices.IndexFunc(x, func(v float32) bool { return v-v != 0 }); at >= 0 {
		t.fail(name, "value %d is %v", at, x[at])
		return nil
	}
	return x
}

// prefix is that of all names of a model, found by a tensor that every model has.
func (t *tensors) prefix(known string) string {
	var found []string
	for name := range t.in {
		if p, ok := strings.CutSuffix(name, known); ok && (p == "" || strings.HasSuffix(p, ".")) {
			found = append(found, p)
		}
	}
	if len(found) > 1 {
		slices.Sort(found)
		t.fail(found[1]+known, "is there, and %s too", found[0]+known)
	}
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// linear reads a weight [out, in] and its bias.
func (t *tensors) linear(name string, out, in int, bias bool) (l native.Linear) {
	l.Weight = t.read(name+".weight", out, in)
	if bias {
		l.Bias = t.read(name+".bias", out)
	}
	return l
}

// norm reads a norm and its bias. Checkpoints that came from TensorFlow call
// them gamma and beta.
func (t *tensors) norm(name string, size int, bias bool) (n native.Norm) {
	gamma, beta := name+".weight", name+".bias"
	if !t.has(gamma) && t.has(name+".gamma") {
		gamma, beta = name+".gamma", name+".beta"
	}
	n.Gamma = t.read(gamma, size)
	if bias {
		n.Beta = t.read(beta, size)
	}
	return n
}

// ignore lets tensors be there that are not used.
func (t *tensors) ignore(beginnings ...string) { t.spared = append(t.spared, beginnings...) }

// done is the first fault, or a tensor that nobody asked for.
func (t *tensors) done() error {
	if t.err != nil {
		return t.err
	}
	var names []string
	for name := range t.in {
		spared := slices.ContainsFunc(t.spared, func(s string) bool { return strings.HasPrefix(name, s) }) ||
			slices.ContainsFunc(unusedEnds, func(s string) bool { return strings.HasSuffix(name, s) })
		if !t.asked[name] && !spared {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		t.fail(names[0], "is no tensor of such a model (%d are not)", len(names))
	}
	return t.err
}
