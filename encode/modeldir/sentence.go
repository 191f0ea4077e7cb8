package modeldir

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// readModules reads modules.json and the modules that it lists.
func (r *reader) readModules() error {
	path := filepath.Join(r.dir, "modules.json")
	b, err := r.readJSON(path)
	if err != nil || b == nil {
		return err
	}
	f, err := parse(path, slices.Concat([]byte(`{"modules":`), b, []byte("}")))
	if err != nil {
		return err
	}
	list, err := required[[]module](f, "modules")(decodeValue[[]module](f, "modules", "a list of modules"))
	if err != nil {
		return err
	}
	r.modules = list
	normalized := false
	for i, m := range list {
		class := m.className()
		if !filepath.IsLocal(filepath.FromSlash(m.Path)) && m.Path != "" {
			return f.errorf("modules", ErrConfig, "has the path %q, which is not within the folder", m.Path)
		}
		folder := filepath.Join(r.dir, filepath.FromSlash(m.Path))
		if (i == 0) != (class == "Transformer") {
			return f.errorf("modules", ErrFamily, "module %d is a %s: want one Transformer, at the beginning",
				i, cmp.Or(class, m.Type))
		}
		if normalized && class == "Dense" || r.c.Pooling != nil && class != "Normalize" {
			after := "Normalize"
			if r.c.Pooling != nil {
				after = "HierarchicalTokenPooling"
			}
			return f.errorf("modules", ErrFamily, "module %d, a %s, comes after %s", i, class, after)
		}
		switch class {
		case "Transformer":
			r.transformer = folder
		case "Dense":
			err = r.readDense(folder)
		case "MultiVectorMask":
			r.multiVector = true
			err = r.readMask(folder)
		case "Normalize":
			normalized = true
			if err = r.readNormalize(folder); r.c.Pooling != nil {
				r.c.Pooling.Unit = true
			}
		case "HierarchicalTokenPooling":
			if !normalized {
				return f.errorf("modules", ErrFamily, "module %d, a %s, comes before Normalize", i, class)
			}
			err = r.readPooling(folder)
		case "Pooling":
			err = f.errorf("modules", ErrFamily,
				"module %d is a %s, which makes one vector of a text: no late-interaction model", i, class)
		default:
			err = f.errorf("modules", ErrFamily, "module %d is a %s, which is not known", i, m.Type)
		}
		if err != nil {
			return err
		}
	}
	if r.multiVector && !normalized {
		return f.errorf("modules", ErrFamily,
			"there is no Normalize: vectors that are not of unit length are not supported")
	}
	return nil
}

// readDense reads the settings of a head.
func (r *reader) readDense(folder string) error {
	path := filepath.Join(folder, "config.json")
	d := Dense{Activation: "tanh", Bias: true, Path: filepath.Join(folder, weightFiles[0])}
	if bin := filepath.Join(folder, weightFiles[1]); !r.exists(d.Path) && r.exists(bin) {
		d.Path = bin
	}
	f, err := r.open(path)
	if err != nil {
		return err
	}
	if f == nil && r.graphs != nil {
		return nil // the graph has the head
	}
	if f == nil {
		missing := []string{path}
		if !r.exists(d.Path) {
			missing = append(missing, d.Path)
		}
		return incompleteError(r.dir, missing)
	}
	for _, s := range []struct {
		key    string
		target *int
	}{{"in_features", &d.In}, {"out_features", &d.Out}} {
		if *s.target, err = required[int](f, s.key)(f.intValue(s.key, 1)); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		key    string
		target *bool
	}{{"bias", &d.Bias}, {"use_residual", &d.Residual}} {
		if *s.target, err = withDefault(*s.target)(f.boolValue(s.key)); err != nil {
			return err
		}
	}
	if name, ok, err := f.stringValue("activation_function"); err != nil {
		return err
	} else if ok {
		if d.Activation = activationByClass(name); d.Activation == "" {
			return f.errorf("activation_function", ErrFamily, "%q is not known", name)
		}
	}
	for _, key := range []string{"module_input_name", "module_output_name"} {
		if name, ok, err := f.stringValue(key); err != nil || ok && name != "token_embeddings" {
			return firstError(err, f.errorf(key, ErrFamily, "is %q, want token_embeddings", name))
		}
	}
	for _, key := range sortedKeys(f.m) {
		switch key {
		case "in_features", "out_features", "bias", "use_residual", "activation_function",
			"module_input_name", "module_output_name":
		default:
			r.warnf("%s: %s is not known: ignored", r.relativePath(path), key)
		}
	}
	r.c.Dense = append(r.c.Dense, d)
	return nil
}

// similarities are the names of MaxSim of unit vectors. Folders that an older PyLate wrote may
// have another name than maxsim.
var similarities = []string{"maxsim", "cosine", "dot"}

// applySentence applies config_sentence_transformers.json.
func (r *reader) applySentence() error {
	f := r.sentence
	if f != nil {
		name, ok, err := f.stringValue("similarity_fn_name")
		if err != nil || ok && !slices.Contains(similarities, strings.ToLower(name)) {
			return firstError(err, f.errorf("similarity_fn_name", ErrFamily, "is %q, want MaxSim", name))
		}
	}
	if err := firstError(
		r.queryMarker.setFromKeys(f, r.readMarker, "query_prefix"),
		r.documentMarker.setFromKeys(f, r.readMarker, "document_prefix"),
		r.queryLength.setFromKeys(f, lengthValue, "query_length"),
		r.documentLength.setFromKeys(f, lengthValue, "document_length"),
		r.expand.setFromKeys(f, (*file).boolValue, "do_query_expansion"),
		r.attend.setFromKeys(f, (*file).boolValue, "attend_to_expansion_tokens"),
		r.skip.setFromKeys(f, stringList, "skiplist_words"),
		r.applyExpansion(f),
		r.applyPrompts(f),
	); err != nil {
		return err
	}
	// In PyLate's folders a missing key means that queries are expanded.
	if f != nil && !r.multiVector {
		if s := r.expand; !s.isSet() {
			s.set(byDefault+" of "+r.relativePath(f.path), true)
		}
	}
	return nil
}

// applySentenceBert applies sentence_bert_config.json, which has the lengths in version 6.
func (r *reader) applySentenceBert() error {
	f := r.sentenceBert
	return firstError(
		r.checkTransformer(),
		r.queryLength.setFromKeys(f, lengthValue, "query_length"),
		r.documentLength.setFromKeys(f, lengthValue, "document_length"),
		r.applyExpansion(f),
	)
}

// applyExpansion applies query_expansion, an object, or null for no expansion.
func (r *reader) applyExpansion(f *file) error {
	const key = "query_expansion"
	if !f.hasKey(key) {
		return nil
	}
	o, err := f.objectValue(key)
	if err != nil {
		return err
	}
	if o == nil {
		return r.expand.setByFile(f, key, false)
	}
	strategy, ok, err := o.stringValue("strategy")
	if err != nil {
		return err
	}
	switch {
	case !ok || strategy == "fixed":
	case strategy == "min":
		r.c.Expand.Longer = true
	default:
		return o.errorf("strategy", ErrFamily, "%q is not known", strategy)
	}
	n, ok, err := lengthValue(o, "length")
	if err != nil {
		return err
	}
	if ok && r.override.QueryLength == nil {
		r.c.Expand.Length, r.origin["expand.length"] = n, r.relativePath(f.path)
		if !r.c.Expand.Longer {
			err = r.applyFixedLength(o, n)
		}
	}
	return firstError(
		err,
		r.expand.setByFile(f, key, true),
		r.attend.setFromKeys(o, (*file).boolValue, "attend"),
		r.mask.setFromKeys(o, r.readMarker, "token"),
	)
}

// applyFixedLength applies the length n at which queries are filled up and cut. In version 6 it overrides
// query_length, which must not be less.
func (r *reader) applyFixedLength(o *file, n int) error {
	if s := r.queryLength; r.multiVector && s.isSet() && *s.target >= n {
		s.set(r.relativePath(o.path), n)
		return nil
	}
	return r.queryLength.setByFile(o, "length", n)
}

// applyPrompts applies the prompts of queries and documents. In version 6 the markers are part of the
// prompts, and each role has a prompt, which may be empty, so that default_prompt_name does not
// apply to them.
func (r *reader) applyPrompts(f *file) error {
	o, err := f.objectValue("prompts")
	if err != nil || o == nil {
		return err
	}
	var standard string // for both roles
	if name, ok, err := f.stringValue("default_prompt_name"); err != nil {
		return err
	} else if ok {
		if !o.hasKey(name) && !(r.multiVector && (name == "query" || name == "document")) {
			return f.errorf("default_prompt_name", ErrConfig, "prompts has no %q", name)
		}
		if standard, _, err = o.stringValue(name); err != nil {
			return err
		}
	}
	for _, role := range []struct {
		key    string
		marker setting[int32]
		prompt setting[string]
	}{{"query", r.queryMarker, r.queryPrompt}, {"document", r.documentMarker, r.documentPrompt}} {
		text, ok, err := o.stringValue(role.key)
		if err != nil {
			return err
		}
		if !ok && !r.multiVector {
			text = standard
		}
		if r.multiVector && !role.marker.isSet() {
			role.marker.set(r.relativePath(f.path), -1)
		}
		if err := role.prompt.setByFile(o, role.key, text); err != nil {
			return err
		}
	}
	return nil
}

// asciiPunctuation returns the tokens that most models skip.
func asciiPunctuation() []string { return strings.Split(punctuation, "") }
