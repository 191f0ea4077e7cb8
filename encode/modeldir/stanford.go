package modeldir

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
			return f.faultf(s.key, ErrContradiction, "is %d, but %s puts %v %s a text", id, r.name(r.find("tokenizer.json")), s.ids, s.what)
		}
	}
	if err := firstError(
		r.queryMarker().from(f, r.marker, "query_marker"), r.queryMarker().from(f, r.tokenID, "query_marker_id"),
		r.documentMarker().from(f, r.marker, "doc_marker"), r.documentMarker().from(f, r.tokenID, "doc_marker_id"),
		r.mask().from(f, r.tokenID, "mask_id"),
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
	if err := firstError(r.queryMarker().from(f, r.marker, "query_token_id"), r.documentMarker().from(f, r.marker, "doc_token_id")); err != nil {
		return err
	}
	if r.sentence == nil && r.modules == nil {
		for _, m := range []struct {
			to   setting[int32]
			name string
		}{{r.queryMarker(), "[unused0]"}, {r.documentMarker(), "[unused1]"}} {
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
		r.queryLength().from(f, size, "query_maxlen"), r.documentLength().from(f, size, "doc_maxlen"),
		r.attend().from(f, (*file).bool, "attend_to_mask_tokens"), r.dim().from(f, (*file).size1, "dim"),
	); err != nil {
		return err
	}
	mask, ok, err := f.bool("mask_punctuation")
	if err != nil {
		return err
	}
	if skip := r.skip(); ok && !mask {
		return skip.say(f, "mask_punctuation", nil)
	} else if ok && !skip.decided() {
		skip.set(r.name(f.path), asciiPunctuation())
	}
	// Stanford's code always fills queries up.
	if s := r.expand(); !s.decided() {
		s.set(r.name(f.path), true)
	}
	return nil
}

// size1 reads a dimension.
func (f *file) size1(key string) (int, bool, error) { return f.int(key, 1) }
