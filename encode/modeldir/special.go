package modeldir

import (
	"bytes"
	"encoding/json"
	"slices"
)

// special holds the files that name special tokens, and the side at which texts are padded and cut.
type special struct {
	config, tokens *file // nil means that the file does not exist
}

// tokenFiles returns the files that name tokens. The first one that has a key decides.
func (s *special) tokenFiles() []*file {
	if s.config.hasKey("added_tokens_decoder") {
		return []*file{s.config}
	}
	return []*file{s.tokens, s.config}
}

// readSpecialToken reads the token of a key such as mask_token: a string, or an object with its content.
// present reports whether a file has the key, even with null.
func (r *reader) readSpecialToken(key string) (f *file, id int32, present bool, err error) {
	for _, f := range r.special.tokenFiles() {
		if !f.hasKey(key) {
			continue
		}
		raw := f.rawValue(key)
		if raw == nil {
			return f, -1, true, nil
		}
		holder, field := f, key
		if bytes.HasPrefix(raw, []byte("{")) {
			if holder, err = f.objectValue(key); err != nil {
				return f, -1, true, err
			}
			field = "content"
		}
		id, _, err := r.readMarker(holder, field)
		return f, id, true, err
	}
	return nil, -1, false, nil
}

// findMask finds the token that queries are filled up with if no file of the model's settings
// names it. Like PyLate and sentence-transformers, it uses the tokenizer's mask, or its end of a text,
// or, for PyLate, its padding.
func (r *reader) findMask() error {
	mask := r.mask
	if mask.isSet() {
		return nil
	}
	mask.set(byDefault, -1)
	keys := []string{"mask_token", "eos_token", "pad_token"}
	if r.multiVector {
		keys = keys[:2]
	}
	for i, key := range keys {
		f, id, present, err := r.readSpecialToken(key)
		if err != nil {
			// Without expansion, a wrong token does not matter.
			if r.c.Expand.On {
				return err
			}
			continue
		}
		if id >= 0 {
			mask.set(r.relativePath(f.path), id)
			return nil
		}
		// The classes of tokenizers have default names for the mask.
		if i > 0 || present || r.plainTokenizer() {
			continue
		}
		for _, name := range []string{"[MASK]", "<mask>"} {
			if id, ok := r.tokenByName(name); ok {
				mask.set(byDefault, id)
				return nil
			}
		}
	}
	return nil
}

// plainTokenizer reports whether the tokenizer's class is one without default special tokens.
func (r *reader) plainTokenizer() bool {
	return slices.Contains([]string{"PreTrainedTokenizer", "TokenizersBackend"}, r.tokenizerClass())
}

// leftClasses are the classes of tokenizers that pad on the left by default.
var leftClasses = []string{
	"GemmaTokenizer", "LlamaTokenizer", "CodeLlamaTokenizer", "CohereTokenizer", "XLNetTokenizer",
}

// checkSides returns an error for texts that are padded or cut on the left, or whose special tokens are
// split. Without expansion of queries and without markers, the side of padding has no effect.
func (r *reader) checkSides() error {
	f := r.special.config
	if split, _, err := f.boolValue("split_special_tokens"); err != nil || split {
		return firstError(err, f.errorf("split_special_tokens", ErrFamily, "is true, want false"))
	}
	padding, truncation := r.c.Tokenizer.Sides()
	for _, s := range []struct{ key, standard string }{{"padding_side", padding}, {"truncation_side", truncation}} {
		key := s.key
		side, ok, err := f.stringValue(key)
		if err != nil {
			return err
		}
		if !ok && s.standard != "" {
			side, ok = s.standard, true
		}
		if class := r.tokenizerClass(); !ok && key == "padding_side" && slices.Contains(leftClasses, class) {
			side, ok = "left, as "+class+" does", true
		}
		harmless := key == "padding_side" && !r.c.Expand.On && r.c.Query.Marker < 0 && r.c.Document.Marker < 0
		if ok && side != "right" && !harmless {
			if f == nil {
				f = &file{path: r.tokenizerPath}
			}
			return f.errorf(key, ErrFamily, "is %q, want right", side)
		}
	}
	return nil
}

// checkTokenTypes returns an error for a tokenizer with token types other than 0, if the model has a table of
// types and receives them.
func (r *reader) checkTokenTypes() error {
	names, ok, err := stringList(r.special.config, "model_input_names")
	if err != nil || !r.c.Tokenizer.HasTokenTypes() || ok && !slices.Contains(names, "token_type_ids") {
		return err
	}
	switch r.c.Backbone.Family {
	case DistilBERT, MPNet, ModernBERT, EuroBERT, Gemma3, LFM2:
		return nil // no table
	}
	return Errorf(r.tokenizerPath, "post_processor", ErrFamily,
		"gives tokens another type than 0, which is not supported")
}

// checkPadding returns an error for models whose padding token has no position, if it is put around
// texts.
func (r *reader) checkPadding() error {
	b, c := &r.c.Backbone, &r.c
	if b.PositionOffset == 0 {
		return nil
	}
	pad := int32(b.PositionOffset - 1)
	ids := slices.Concat(c.Tokenizer.Prefix(), c.Tokenizer.Suffix(), []int32{c.Query.Marker, c.Document.Marker})
	if c.Expand.On {
		ids = append(ids, c.Expand.Mask)
	}
	if slices.Contains(ids, pad) {
		return r.config.errorf("pad_token_id", ErrFamily,
			"%d is %q, which is put around texts: it would have no position", pad, c.Tokenizer.Piece(pad))
	}
	return nil
}

// longestText returns the default length of texts in sentence-transformers 6, in ids:
// max_seq_length, or else the tokenizer's length, at most the length that the model supports.
func (r *reader) longestText() (length int, origin string, err error) {
	length, origin = min(r.c.Backbone.MaxPositions, defaultMaxLength), byDefault
	n, ok, err := lengthValue(r.sentenceBert, "max_seq_length")
	if err != nil {
		return 0, "", err
	}
	if ok {
		return min(n, r.c.Backbone.MaxPositions), r.relativePath(r.sentenceBert.path), nil
	}
	if raw := r.special.config.rawValue("model_max_length"); raw != nil {
		var n float64 // 1e30 means no bound
		if json.Unmarshal(raw, &n) != nil || !(n >= minLength) {
			return 0, "", r.special.config.errorf("model_max_length", ErrConfig, "is %s, want a number from %d on",
				abbreviate(raw), minLength)
		}
		if n < float64(length) {
			length, origin = int(n), r.relativePath(r.special.config.path)
		}
	}
	return length, origin, nil
}
