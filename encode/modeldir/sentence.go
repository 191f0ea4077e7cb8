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
	list, err := must[[]module](f, "modules")(value[[]module](f, "modules", "a list of modules"))
	if err != nil {
		return err
	}
	r.modules = list
	normalized := false
	for i, m := range list {
		kind := m.kind()
		if !filepath.IsLocal(filepath.FromSlash(m.Path)) && m.Path != "" {
			return f.faultf("modules", ErrConfig, "has the path %q, which is not within the folder", m.Path)
		}
		folder := filepath.Join(r.dir, filepath.FromSlash(m.Path))
		if (i == 0) != (kind == "Transformer") {
			return f.faultf("modules", ErrFamily, "module %d is a %s: want one Transformer, at the beginning",
				i, cmp.Or(kind, m.Type))
		}
		if normalized && kind == "Dense" || r.c.Pooling != nil && kind != "Normalize" {
			after := "Normalize"
			if r.c.Pooling != nil {
				after = "HierarchicalTokenPooling"
			}
			return f.faultf("modules", ErrFamily, "module %d, a %s, comes after %s", i, kind, after)
		}
		switch kind {
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
				return f.faultf("modules", ErrFamily, "module %d, a %s, comes before Normalize", i, kind)
			}
			err = r.readPooling(folder)
		case "Pooling":
			const what = "module %d is a %s, which makes one vector of a text: no late-interaction model"
			err = f.faultf("modules", ErrFamily, what, i, kind)
		default:
			err = f.faultf("modules", ErrFamily, "module %d is a %s, which is not known", i, m.Type)
		}
		if err != nil {
			return err
		}
	}
	if r.multiVector && !normalized {
		return f.faultf("modules", ErrFamily, "there is no Normalize: vectors that are not of unit length are not supported")
	}
	return nil
}

// readDense reads the config of a head.
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
		return incomplete(r.dir, missing)
	}
	for _, s := range []struct {
		key string
		to  *int
	}{{"in_features", &d.In}, {"out_features", &d.Out}} {
		if *s.to, err = must[int](f, s.key)(f.int(s.key, 1)); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		key string
		to  *bool
	}{{"bias", &d.Bias}, {"use_residual", &d.Residual}} {
		if *s.to, err = orElse(*s.to)(f.bool(s.key)); err != nil {
			return err
		}
	}
	if name, ok, err := f.text("activation_function"); err != nil {
		return err
	} else if ok {
		if d.Activation = activationOf(name); d.Activation == "" {
			return f.faultf("activation_function", ErrFamily, "%q is not known", name)
		}
	}
	for _, key := range []string{"module_input_name", "module_output_name"} {
		if name, ok, err := f.text(key); err != nil || ok && name != "token_embeddings" {
			return firstError(err, f.faultf(key, ErrFamily, "is %q, want token_embeddings", name))
		}
	}
	for _, key := range sortedKeys(f.m) {
		switch key {
		case "in_features", "out_features", "bias", "use_residual", "activation_function", "module_input_name", "module_output_name":
		default:
			r.warnf("%s: %s is not known: ignored", r.name(path), key)
		}
	}
	r.c.Dense = append(r.c.Dense, d)
	return nil
}

// similarities are MaxSim of unit vectors. PyLate's folders may have a name that
// is left from before it was written there.
var similarities = []string{"maxsim", "cosine", "dot"}

// fromSentence reads config_sentence_transformers.json.
func (r *reader) fromSentence() error {
	f := r.sentence
	if f != nil {
		if name, ok, err := f.text("similarity_fn_name"); err != nil || ok && !slices.Contains(similarities, strings.ToLower(name)) {
			return firstError(err, f.faultf("similarity_fn_name", ErrFamily, "is %q, want MaxSim", name))
		}
	}
	if err := firstError(
		r.queryMarker.from(f, r.marker, "query_prefix"), r.documentMarker.from(f, r.marker, "document_prefix"),
		r.queryLength.from(f, size, "query_length"), r.documentLength.from(f, size, "document_length"),
		r.expand.from(f, (*file).bool, "do_query_expansion"), r.attend.from(f, (*file).bool, "attend_to_expansion_tokens"),
		r.skip.from(f, words, "skiplist_words"), r.expansion(f), r.prompts(f),
	); err != nil {
		return err
	}
	// In PyLate's folders an absent key is a decision too.
	if f != nil && !r.multiVector {
		if s := r.expand; !s.decided() {
			s.set(byDefault+" of "+r.name(f.path), true)
		}
	}
	return nil
}

// fromBert reads sentence_bert_config.json, where version 6 keeps lengths.
func (r *reader) fromBert() error {
	f := r.bert
	return firstError(r.checkTransformer(),
		r.queryLength.from(f, size, "query_length"), r.documentLength.from(f, size, "document_length"), r.expansion(f))
}

// expansion reads query_expansion, an object or null: off.
func (r *reader) expansion(f *file) error {
	const key = "query_expansion"
	if !f.has(key) {
		return nil
	}
	o, err := f.object(key)
	if err != nil {
		return err
	}
	if o == nil {
		return r.expand.say(f, key, false)
	}
	strategy, ok, err := o.text("strategy")
	if err != nil {
		return err
	}
	switch {
	case !ok || strategy == "fixed":
	case strategy == "min":
		r.c.Expand.Longer = true
	default:
		return o.faultf("strategy", ErrFamily, "%q is not known", strategy)
	}
	n, ok, err := size(o, "length")
	if err != nil {
		return err
	}
	if ok && r.o.QueryLength == nil {
		r.c.Expand.Length, r.origin["expand.length"] = n, r.name(f.path)
		if !r.c.Expand.Longer {
			err = r.fixedLength(o, n)
		}
	}
	return firstError(err, r.expand.say(f, key, true), r.attend.from(o, (*file).bool, "attend"), r.mask.from(o, r.marker, "token"))
}

// fixedLength is that of queries which are filled up and cut at one length. In version 6 it goes before
// query_length, which must not be less.
func (r *reader) fixedLength(o *file, n int) error {
	if s := r.queryLength; r.multiVector && s.decided() && *s.to >= n {
		s.set(r.name(o.path), n)
		return nil
	}
	return r.queryLength.say(o, "length", n)
}

// prompts reads the prompts of queries and documents. In version 6 markers are part of them, and each role has
// one, if only an empty one, so that default_prompt_name is for other texts.
func (r *reader) prompts(f *file) error {
	o, err := f.object("prompts")
	if err != nil || o == nil {
		return err
	}
	var standard string // for both roles
	if name, ok, err := f.text("default_prompt_name"); err != nil {
		return err
	} else if ok {
		if !o.has(name) && !(r.multiVector && (name == "query" || name == "document")) {
			return f.faultf("default_prompt_name", ErrConfig, "prompts has no %q", name)
		}
		if standard, _, err = o.text(name); err != nil {
			return err
		}
	}
	for _, role := range []struct {
		key    string
		marker setting[int32]
		prompt setting[string]
	}{{"query", r.queryMarker, r.queryPrompt}, {"document", r.documentMarker, r.documentPrompt}} {
		text, ok, err := o.text(role.key)
		if err != nil {
			return err
		}
		if !ok && !r.multiVector {
			text = standard
		}
		if r.multiVector && !role.marker.decided() {
			role.marker.set(r.name(f.path), -1)
		}
		if err := role.prompt.say(o, role.key, text); err != nil {
			return err
		}
	}
	return nil
}

// asciiPunctuation is the skiplist that most models have.
func asciiPunctuation() []string { return strings.Split(punctuation, "") }
