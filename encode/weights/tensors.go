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

// openContainer opens a file of safetensors, or a file that torch.save wrote.
func openContainer(path string) (container, error) {
	if filepath.Ext(path) == ".bin" {
		return torch.Open(path)
	}
	return vectors.OpenSafetensors(path)
}

// tensors reads the tensors of one or more files. The first error stays, and tensors that are read after
// it are nil.
type tensors struct {
	files     []container
	paths     []string
	fileIndex map[string]int  // the index of the file with each tensor
	used      map[string]bool // the tensors that were read
	ignored   []string        // beginnings of names that are ignored
	err       error
}

// openTensors opens files. The same name in two files is an error.
func openTensors(paths []string) (*tensors, error) {
	t := &tensors{fileIndex: map[string]int{}, used: map[string]bool{}}
	for i, path := range paths {
		s, err := openContainer(path)
		if err != nil {
			t.close()
			return nil, modelError(path, "", err)
		}
		t.files, t.paths = append(t.files, s), append(t.paths, path)
		for _, name := range s.Names() {
			if j, twice := t.fileIndex[name]; twice {
				t.close()
				return nil, modeldir.Errorf(path, name, modeldir.ErrWeights, "is in %s too", paths[j])
			}
			t.fileIndex[name] = i
		}
	}
	return t, nil
}

func (t *tensors) close() {
	for _, f := range t.files {
		f.Close()
	}
}

func (t *tensors) contains(name string) bool {
	_, ok := t.fileIndex[name]
	return ok
}

// setError keeps an error of a tensor, if it is the first.
func (t *tensors) setError(name, format string, args ...any) {
	if t.err == nil {
		path := t.paths[0]
		if i, ok := t.fileIndex[name]; ok {
			path = t.paths[i]
		}
		t.err = modeldir.Errorf(path, name, modeldir.ErrWeights, format, args...)
	}
}

// shapeOf returns the shape of a tensor. nil means that it is missing.
func (t *tensors) shapeOf(name string) []int {
	if i, ok := t.fileIndex[name]; ok {
		if a, err := t.files[i].Array(name); err == nil {
			return a.Shape
		}
	}
	return nil
}

// read reads a tensor, which must have the shape.
func (t *tensors) read(name string, shape ...int) []float32 {
	if t.err != nil {
		return nil
	}
	t.used[name] = true
	i, ok := t.fileIndex[name]
	if !ok {
		t.setError(name, "is missing")
		return nil
	}
	a, err := t.files[i].Array(name)
	if err != nil {
		t.err = modelError(t.paths[i], name, err)
		return nil
	}
	if !slices.Equal(a.Shape, shape) {
		t.setError(name, "has shape %v, want %v", a.Shape, shape)
		return nil
	}
	if !slices.Contains([]string{"<f4", "<f2", "bf16"}, a.Dtype) {
		t.setError(name, "has numbers of type %s, want float32, float16 or bfloat16", a.Dtype)
		return nil
	}
	x := make([]float32, a.Len())
	if err := a.Float32s(x, 0); err != nil {
		t.err = modelError(t.paths[i], name, err)
		return nil
	}
	if i := slices.IndexFunc(x, func(v float32) bool { return v-v != 0 }); i >= 0 { // infinite or NaN
		t.setError(name, "value %d is %v", i, x[i])
		return nil
	}
	return x
}

// prefix returns the prefix of all names of a model: the text before tensorName, a name that every model has.
func (t *tensors) prefix(tensorName string) string {
	var prefixes []string
	for name := range t.fileIndex {
		if p, ok := strings.CutSuffix(name, tensorName); ok && (p == "" || strings.HasSuffix(p, ".")) {
			prefixes = append(prefixes, p)
		}
	}
	if len(prefixes) > 1 {
		slices.Sort(prefixes)
		t.setError(prefixes[1]+tensorName, "is there, and %s too", prefixes[0]+tensorName)
	}
	if len(prefixes) == 0 {
		return ""
	}
	return prefixes[0]
}

// linear reads a weight [out, in] and its bias.
func (t *tensors) linear(name string, out, in int, bias bool) (l native.Linear) {
	l.Weight = t.read(name+".weight", out, in)
	if bias {
		l.Bias = t.read(name+".bias", out)
	}
	return l
}

// norm reads the weight and bias of a norm. Checkpoints that were converted from TensorFlow call
// them gamma and beta.
func (t *tensors) norm(name string, size int, bias bool) (n native.Norm) {
	gamma, beta := name+".weight", name+".bias"
	if !t.contains(gamma) && t.contains(name+".gamma") {
		gamma, beta = name+".gamma", name+".beta"
	}
	n.Gamma = t.read(gamma, size)
	if bias {
		n.Beta = t.read(beta, size)
	}
	return n
}

// ignore allows tensors that are not used, by the beginnings of their names.
func (t *tensors) ignore(beginnings ...string) { t.ignored = append(t.ignored, beginnings...) }

// finish returns the first error, or one that names a tensor that was neither read nor ignored.
func (t *tensors) finish() error {
	if t.err != nil {
		return t.err
	}
	var names []string
	for name := range t.fileIndex {
		allowed := slices.ContainsFunc(t.ignored, func(s string) bool { return strings.HasPrefix(name, s) }) ||
			slices.ContainsFunc(unusedEnds, func(s string) bool { return strings.HasSuffix(name, s) })
		if !t.used[name] && !allowed {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		t.setError(names[0], "is not a tensor of this kind of model (%d tensors are not)", len(names))
	}
	return t.err
}
