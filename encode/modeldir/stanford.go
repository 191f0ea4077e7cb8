package modeldir

import (
	"path/filepath"
	"slices"
	"strings"
)

// fromColBERT reads the section "colbert" of config.json.
func (r *reader) fromColBERT() error {
	f, err := r.config.object("colbert")
	if err != nil || f == nil {
		return err
	}
	for _, s := range []struct {
		key  string
		ids  []int32
		what string
	}{{"cls_id", r.c.Tokenizer.Prefix(), "before"}, {"sep_id", r.c.Tokenizer.Suffix(), "after"}} {
		id, ok, err := r.tokenID(f, s.key)
		if err != nil {
			return err
		}
		if ok && (len(s.ids) != 1 || s.ids[0] != id) {
			return f.faultf(s.key, ErrContradiction, "is %d, but %s puts %v %s a text",
				id, r.name(r.tokenizerPath), s.ids, s.what)
		}
	}
	if err := firstError(
		r.queryMarker.from(f, r.marker, "query_marker"), r.queryMarker.from(f, r.tokenID, "query_marker_id"),
		r.documentMarker.from(f, r.marker, "doc_marker"), r.documentMarker.from(f, r.tokenID, "doc_marker_id"),
		r.mask.from(f, r.tokenID, "mask_id"),
	); err != nil {
		return err
	}
	return r.stanfordKeys(f)
}

// fromArtifact reads artifact.metadata.
func (r *reader) fromArtifact() error {
	f := r.artifact
	if f == nil {
		return nil
	}
	if err := firstError(r.queryMarker.from(f, r.marker, "query_token_id"), r.documentMarker.from(f, r.marker, "doc_token_id")); err != nil {
		return err
	}
	if r.sentence == nil && r.modules == nil {
		for _, m := range []struct {
			to   setting[int32]
			name string
		}{{r.queryMarker, "[unused0]"}, {r.documentMarker, "[unused1]"}} {
			if id, ok := r.token(m.name); ok {
				m.to.otherwise(id)
			}
		}
	}
	return r.stanfordKeys(f)
}

// stanfordKeys are those that artifact.metadata and the section "colbert" share.
// What is absent is Stanford's default only where no other file decides.
func (r *reader) stanfordKeys(f *file) error {
	if s, ok, err := f.text("similarity"); err != nil || ok && s != "cosine" {
		return firstError(err, f.faultf("similarity", ErrFamily, "is %q, want cosine", s))
	}
	if err := firstError(
		r.queryLength.from(f, size, "query_maxlen"), r.documentLength.from(f, size, "doc_maxlen"),
		r.attend.from(f, (*file).bool, "attend_to_mask_tokens"), r.dim.from(f, (*file).size1, "dim"),
	); err != nil {
		return err
	}
	mask, ok, err := f.bool("mask_punctuation")
	if err != nil {
		return err
	}
	if skip := r.skip; ok && !mask {
		return skip.say(f, "mask_punctuation", nil)
	} else if ok && !skip.decided() {
		skip.set(r.name(f.path), asciiPunctuation())
	}
	// Stanford's code always fills queries up.
	if s := r.expand; !s.decided() {
		s.set(r.name(f.path), true)
	}
	return nil
}

// size1 reads a dimension.
func (f *file) size1(key string) (int, bool, error) { return f.int(key, 1) }

// fromONNX reads onnx_config.json, which exporters write beside a graph.
func (r *reader) fromONNX() error {
	f := r.onnx
	if f == nil {
		return nil
	}
	if err := firstError(
		r.queryMarker.from(f, r.tokenID, "query_prefix_id"), r.queryMarker.from(f, r.marker, "query_prefix"),
		r.documentMarker.from(f, r.tokenID, "document_prefix_id"), r.documentMarker.from(f, r.marker, "document_prefix"),
		r.mask.from(f, r.tokenID, "mask_token_id"),
		r.queryLength.from(f, size, "query_length"), r.documentLength.from(f, size, "document_length"),
		r.attend.from(f, (*file).bool, "attend_to_expansion_tokens"), r.dim.from(f, (*file).size1, "embedding_dim"),
		r.skip.from(f, words, "skiplist_words"),
	); err != nil {
		return err
	}
	// Its do_query_expansion is false whatever the model was trained with, and
	// so no contradiction; see defaults.
	on, ok, err := f.bool("do_query_expansion")
	if err != nil {
		return err
	}
	r.onnxSaysExpand = on || !ok
	if s := r.expand; ok && on && s.decided() {
		return s.say(f, "do_query_expansion", on)
	}
	return nil
}

// graphFiles finds the graph and the file beside it that may have its tensors,
// or says what is missing.
func (r *reader) graphFiles() (missing []string, err error) {
	for _, name := range r.graphs {
		name = filepath.FromSlash(name)
		if !filepath.IsLocal(name) {
			return nil, Faultf(r.dir, "", ErrConfig, "the graph %q is not within the folder", name)
		}
		path := r.find(name)
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
func (r *reader) shardsOf(index, suffix string) ([]string, error) {
	f, err := r.open(index)
	if err != nil {
		return nil, err
	}
	m, err := must[map[string]string](f, "weight_map")(value[map[string]string](f, "weight_map", "an object of file names"))
	if err != nil {
		return nil, err
	}
	var shards []string
	for _, name := range sortedKeys(m) {
		file := m[name]
		if !filepath.IsLocal(filepath.FromSlash(file)) || !strings.HasSuffix(file, suffix) {
			return nil, f.faultf("weight_map."+name, ErrConfig, "is %q, want a %s file of the folder", file, suffix)
		}
		shards = append(shards, filepath.Join(filepath.Dir(index), filepath.FromSlash(file)))
	}
	if slices.Sort(shards); len(shards) == 0 {
		return nil, f.faultf("weight_map", ErrConfig, "names no file")
	}
	return slices.Compact(shards), nil
}
