package modeldir

import (
	"path/filepath"
	"slices"
	"strings"
)

// graphFiles finds the graph and the file beside it that may have its tensors,
// or says what is missing.
func (r *reader) graphFiles() (missing []string, err error) {
	for _, name := range r.graphs {
		name = filepath.FromSlash(name)
		if !filepath.IsLocal(name) {
			return nil, Faultf(r.dir, "", ErrConfig, "the graph %q is not within the folder", name)
		}
		path := r.find(name)
		if !exists(path) {
			continue
		}
		r.c.Weights, r.c.graph = []string{path}, true
		for _, end := range []string{"_data", ".data"} {
			if exists(path + end) {
				r.c.Weights = append(r.c.Weights, path+end)
			}
		}
		return nil, nil
	}
	return []string{filepath.Join(r.dir, strings.Join(r.graphs, " or "))}, nil
}

// graphHeads drops the heads, which the graph has, and warns of those that
// exporters leave out.
func (r *reader) graphHeads() {
	for _, d := range r.c.Dense {
		if d.Activation != "identity" || d.Residual {
			r.warnf("%s has an activation or a residual, which exporters to ONNX are known to leave out of the graph: compare vectors",
				r.name(filepath.Dir(d.Path)))
		}
	}
	r.c.Dense = nil
}

// shardsOf are the files that the index of a sharded model names.
func shardsOf(index string) ([]string, error) {
	f, err := open(index)
	if err != nil {
		return nil, err
	}
	m, ok, err := value[map[string]string](f, "weight_map", "an object of file names")
	if m, err = must(f, "weight_map", m, ok, err); err != nil {
		return nil, err
	}
	var shards []string
	for _, name := range sortedKeys(m) {
		file := m[name]
		if !filepath.IsLocal(filepath.FromSlash(file)) || !strings.HasSuffix(file, ".safetensors") {
			return nil, f.faultf("weight_map."+name, ErrConfig, "is %q, want a .safetensors file of the folder", file)
		}
		shards = append(shards, filepath.Join(filepath.Dir(index), filepath.FromSlash(file)))
	}
	if slices.Sort(shards); len(shards) == 0 {
		return nil, f.faultf("weight_map", ErrConfig, "names no file")
	}
	return slices.Compact(shards), nil
}
