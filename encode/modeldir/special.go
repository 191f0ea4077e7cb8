package modeldir

import (
	"bytes"
	"encoding/json"
	"slices"
)

// special has the files that name special tokens, and say on which side texts are filled up and cut.
type special struct {
	config, tokens *file // nil: not there
}

// files are those that name tokens, the first one that has a key decides.
func (s *special) files() []*file {
	if s.config.has("added_tokens_decoder") {
		return []*file{s.config}
	}
	return []*file{s.tokens, s.config}
}

// named reads the token of a key such as mask_token: a string, or an object with its content. said
// reports whether a file has the key, if only with null.
func (r *reader) named(key string) (f *file, id int32, said bool, err error) {
	for _, f := range r.special.files() {
		if !f.has(key) {
			continue
		}
		raw := f.raw(key)
		if raw == nil {
			return f, -1, true, nil
		}
		holder, field := f, key
		if bytes.HasPrefix(raw, []byte("{")) {
			if holder, err = f.object(key); err != nil {
				return f, -1, true, err
			}
			field = "content"
		}
		id, _, err := r.marker(holder, field)
		return f, id, true, err
	}
	return nil, -1, false, nil
}

// findMask finds the token that queries are filled up with where no file of the model's settings
// names it: as PyLate and sentence-transformers do, the tokenizer's mask, else its end of a text, and
// for PyLate its padding.
func (r *reader) findMask() error {
	mask := r.mask
	if mask.decided() {
		return nil
	}
	mask.set(byDefault, -1)
	keys := []string{"mask_token", "eos_token", "pad_token"}
	if r.multiVector {
		keys = keys[:2]
	}
	for i, key := range keys {
		f, id, said, err := r.named(key)
		if err != nil {
			// A token that is not needed may be wrong.
			if r.c.Expand.On {
				return err
			}
			continue
		}
		if id >= 0 {
			mask.set(r.name(f.path), id)
			return nil
		}
		// The classes of tokenizers have names of their own where the files have none.
		if i > 0 || said || r.plainTokenizer() {
			continue
		}
		for _, name := range []string{"[MASK]", "<mask>"} {
			if id, ok := r.token(name); ok {
				mask.set(byDefault, id)
				return nil
			}
		}
	}
	return nil
}

// plainTokenizer reports whether the class of the tokenizer is one that has no special tokens of its own.
func (r *reader) plainTokenizer() bool {
	return slices.Contains([]string{"PreTrainedTokenizer", "TokenizersBackend"}, r.tokenizerClass())
}

// leftClasses are the classes of tokenizers that fill up on the left where no file says on which side.
var leftClasses = []string{
	"GemmaTokenizer", "LlamaTokenizer", "CodeLlamaTokenizer", "CohereTokenizer", "XLNetTokenizer",
}

// sides refuses texts that are filled up or cut on the left, or whose special tokens are split.
// Without a query's expansion and a marker behind the first id, filling has no effect.
func (r *reader) sides() error {
	f := r.special.config
	if split, _, err := f.bool("split_special_tokens"); err != nil || split {
		return firstError(err, f.faultf("split_special_tokens", ErrFamily, "is true, want false"))
	}
	padding, truncation := r.c.Tokenizer.Sides()
	for _, s := range []struct{ key, standard string }{{"padding_side", padding}, {"truncation_side", truncation}} {
		key := s.key
		side, ok, err := f.text(key)
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
			return f.faultf(key, ErrFamily, "is %q, want right", side)
		}
	}
	return nil
}

// types refuses a tokenizer that gives tokens other types than the first, where the model has a table of them
// and is told the types.
func (r *reader) types() error {
	names, ok, err := words(r.special.config, "model_input_names")
	if err != nil || !r.c.Tokenizer.Typed() || ok && !slices.Contains(names, "token_type_ids") {
		return err
	}
	switch r.c.Backbone.Family {
	case DistilBERT, MPNet, ModernBERT, EuroBERT, Gemma3, LFM2:
		return nil // no table
	}
	return Faultf(r.tokenizerPath, "post_processor", ErrFamily, "gives tokens another type than 0, which is not supported")
}

// padding refuses models that give their padding token no position of its own and have it around texts.
func (r *reader) padding() error {
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
		return r.config.faultf("pad_token_id", ErrFamily, "%d is %q, which is put around texts: it would have no position",
			pad, c.Tokenizer.Piece(pad))
	}
	return nil
}

// longestText is how many ids sentence-transformers 6 gives a text for which no file has a length:
// max_seq_length, else the tokenizer's length, within the length that the model takes.
func (r *reader) longestText() (most int, origin string, err error) {
	most, origin = min(r.c.Backbone.MaxPositions, longest), byDefault
	n, ok, err := size(r.bert, "max_seq_length")
	if err != nil {
		return 0, "", err
	}
	if ok {
		return min(n, r.c.Backbone.MaxPositions), r.name(r.bert.path), nil
	}
	if raw := r.special.config.raw("model_max_length"); raw != nil {
		var n float64 // 1e30 means no bound
		if json.Unmarshal(raw, &n) != nil || !(n >= shortest) {
			return 0, "", r.special.config.faultf("model_max_length", ErrConfig, "is %s, want a number from %d on",
				shown(raw), shortest)
		}
		if n < float64(most) {
			most, origin = int(n), r.name(r.special.config.path)
		}
	}
	return most, origin, nil
}
