package modeldir

import (
	"path/filepath"
	"slices"
	"strings"
)

// applyColBERT applies the section "colbert" of config.json.
func (r *reader) applyColBERT() error {
	f, err := r.config.objectValue("colbert")
	if err != nil || f == nil {
		return err
	}
	for _, s := range []struct {
		key  string
		ids  []int32
		side string
	}{
		{"cls_id", r.c.Tokenizer.Prefix(), "before"},
		{"sep_id", r.c.Tokenizer.Suffix(), "after"},
	} {
		id, ok, err := r.readTokenID(f, s.key)
		if err != nil {
			return err
		}
		if ok && (len(s.ids) != 1 || s.ids[0] != id) {
			return f.errorf(s.key, ErrContradiction, "is %d, but %s puts %v %s a text",
				id, r.relativePath(r.tokenizerPath), s.ids, s.side)
		}
	}
	if err := firstError(
		r.queryMarker.setFromKeys(f, r.readMarker, "query_marker"),
		r.queryMarker.setFromKeys(f, r.readTokenID, "query_marker_id"),
		r.documentMarker.setFromKeys(f, r.readMarker, "doc_marker"),
		r.documentMarker.setFromKeys(f, r.readTokenID, "doc_marker_id"),
		r.mask.setFromKeys(f, r.readTokenID, "mask_id"),
	); err != nil {
		return err
	}
	return r.applyStanfordKeys(f)
}

// applyArtifact applies artifact.metadata.
func (r *reader) applyArtifact() error {
	f := r.artifact
	if f == nil {
		return nil
	}
	if err := firstError(
		r.queryMarker.setFromKeys(f, r.readMarker, "query_token_id"),
		r.documentMarker.setFromKeys(f, r.readMarker, "doc_token_id"),
	); err != nil {
		return err
	}
	if r.sentence == nil && r.modules == nil {
		for _, m := range []struct {
			setting setting[int32]
			name    string
		}{{r.queryMarker, "[unused0]"}, {r.documentMarker, "[unused1]"}} {
			if id, ok := r.tokenByName(m.name); ok {
				m.setting.setDefault(id)
			}
		}
	}
	return r.applyStanfordKeys(f)
}

// applyStanfordKeys applies the keys that artifact.metadata and the section "colbert" share.
// A missing key means Stanford's default only if no other file sets the value.
func (r *reader) applyStanfordKeys(f *file) error {
	if s, ok, err := f.stringValue("similarity"); err != nil || ok && s != "cosine" {
		return firstError(err, f.errorf("similarity", ErrFamily, "is %q, want cosine", s))
	}
	if err := firstError(
		r.queryLength.setFromKeys(f, lengthValue, "query_maxlen"),
		r.documentLength.setFromKeys(f, lengthValue, "doc_maxlen"),
		r.attend.setFromKeys(f, (*file).boolValue, "attend_to_mask_tokens"),
		r.dim.setFromKeys(f, (*file).dimensionValue, "dim"),
	); err != nil {
		return err
	}
	mask, ok, err := f.boolValue("mask_punctuation")
	if err != nil {
		return err
	}
	if skip := r.skip; ok && !mask {
		return skip.setByFile(f, "mask_punctuation", nil)
	} else if ok && !skip.isSet() {
		skip.set(r.relativePath(f.path), asciiPunctuation())
	}
	// Stanford's code always fills queries up.
	if s := r.expand; !s.isSet() {
		s.set(r.relativePath(f.path), true)
	}
	return nil
}

// dimensionValue reads a dimension.
func (f *file) dimensionValue(key string) (int, bool, error) { return f.intValue(key, 1) }

// applyONNX applies onnx_config.json, which exporters write next to a graph.
func (r *reader) applyONNX() error {
	f := r.onnx
	if f == nil {
		return nil
	}
	if err := firstError(
		r.queryMarker.setFromKeys(f, r.readTokenID, "query_prefix_id"),
		r.queryMarker.setFromKeys(f, r.readMarker, "query_prefix"),
		r.documentMarker.setFromKeys(f, r.readTokenID, "document_prefix_id"),
		r.documentMarker.setFromKeys(f, r.readMarker, "document_prefix"),
		r.mask.setFromKeys(f, r.readTokenID, "mask_token_id"),
		r.queryLength.setFromKeys(f, lengthValue, "query_length"),
		r.documentLength.setFromKeys(f, lengthValue, "document_length"),
		r.attend.setFromKeys(f, (*file).boolValue, "attend_to_expansion_tokens"),
		r.dim.setFromKeys(f, (*file).dimensionValue, "embedding_dim"),
		r.skip.setFromKeys(f, stringList, "skiplist_words"),
	); err != nil {
		return err
	}
	// Exporters write do_query_expansion false even if the model was trained with it, so
	// that false is not a contradiction; see applyDefaults.
	on, ok, err := f.boolValue("do_query_expansion")
	if err != nil {
		return err
	}
	r.onnxSaysExpand = on || !ok
	if s := r.expand; ok && on && s.isSet() {
		return s.setByFile(f, "do_query_expansion", on)
	}
	return nil
}

// graphFiles sets the graph and the files next to it that may have its tensors,
// or returns the missing paths.
func (r *reader) graphFiles() (missing []string, err error) {
	for _, name := range r.graphs {
		name = filepath.FromSlash(name)
		if !filepath.IsLocal(name) {
			return nil, Errorf(r.dir, "", ErrConfig, "the graph %q is not within the folder", name)
		}
		path := r.findPath(name)
		if !r.exists(path) {
			continue
		}
		r.c.Weights, r.c.graph = []string{path}, true
		for _, end := range []string{"_data", ".data"} {
			if r.exists(path + end) {
				r.c.Weights = append(r.c.Weights, path+end)
			}
		}
		return nil, nil
	}
	return []string{filepath.Join(r.dir, strings.Join(r.graphs, " or "))}, nil
}

// graphHeads drops the heads, since the graph includes them, and warns of heads that
// exporters leave out.
func (r *reader) graphHeads() {
	for _, d := range r.c.Dense {
		if d.Activation != "identity" || d.Residual {
			r.warnf("%s has an activation or a residual, which exporters to ONNX are known to leave out of the graph: "+
				"compare vectors", r.relativePath(filepath.Dir(d.Path)))
		}
	}
	r.c.Dense = nil
}

// readShards returns the files that the index of a sharded model names.
func (r *reader) readShards(index, suffix string) ([]string, error) {
	f, err := r.open(index)
	if err != nil {
		return nil, err
	}
	m, err := required[map[string]string](f, "weight_map")(
		decodeValue[map[string]string](f, "weight_map", "an object of file names"))
	if err != nil {
		return nil, err
	}
	var shards []string
	for _, name := range sortedKeys(m) {
		file := m[name]
		if !filepath.IsLocal(filepath.FromSlash(file)) || !strings.HasSuffix(file, suffix) {
			return nil, f.errorf("weight_map."+name, ErrConfig, "is %q, want a %s file of the folder", file, suffix)
		}
		shards = append(shards, filepath.Join(filepath.Dir(index), filepath.FromSlash(file)))
	}
	if slices.Sort(shards); len(shards) == 0 {
		return nil, f.errorf("weight_map", ErrConfig, "names no file")
	}
	return slices.Compact(shards), nil
}
