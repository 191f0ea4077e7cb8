package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// maxFile is the size in bytes of the largest file that is read.
const maxFile = 1 << 30

// Read reads a tokenizer.json. An error in its contents is an [*Error].
func Read(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if info.Size() > maxFile {
		return nil, &Error{Path: path, Err: fmt.Errorf("has %d bytes, at most %d are read", info.Size(), maxFile)}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t, err := Parse(b)
	var fault *Error
	if errors.As(err, &fault) {
		fault.Path = path
	}
	return t, err
}

// Parse parses the contents of a tokenizer.json. Errors are of type [*Error].
func Parse(b []byte) (*Tokenizer, error) {
	chars.Load()
	b = jsontext.TrimByteOrderMark(b)
	if err := checkJSON(b); err != nil {
		return nil, err
	}
	o, err := value{raw: b}.objectValue()
	if err != nil {
		return nil, err
	}
	t, err := parse(o)
	if err != nil {
		return nil, err
	}
	return t, o.checkAllRead()
}

// parse builds the tokenizer from the file's object.
func parse(o object) (*Tokenizer, error) {
	if v := o.read("version"); !v.absent() {
		if s, err := v.stringValue(); err != nil || s != "1.0" {
			return nil, v.errorf("is %s, want \"1.0\"", v.abbreviated())
		}
	}
	o.read("decoder")
	parts := map[string]value{}
	for _, key := range []string{"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "model"} {
		parts[key] = o.read(key)
	}
	// Build the steps in the order in which they depend on each other.
	t := &Tokenizer{vocab: &vocabulary{}, cache: newCache()}
	t.pool.New = func() any { return &scratch{} }
	var err error
	for i, key := range []string{"padding", "truncation"} {
		if t.sides[i], err = readSide(o.read(key)); err != nil {
			return nil, err
		}
	}
	if t.normalizers, err = newNormalizers(parts["normalizer"], 0); err != nil {
		return nil, err
	}
	if err = t.readModel(parts["model"]); err != nil {
		return nil, err
	}
	if t.preTokenizers, err = newPreTokenizers(parts["pre_tokenizer"], 0); err != nil {
		return nil, err
	}
	if err := t.joinByteLevel(parts["pre_tokenizer"].field); err != nil {
		return nil, err
	}
	if t.added, err = readAdded(parts["added_tokens"], t.vocab); err != nil {
		return nil, err
	}
	if err := t.buildAddedSets(parts["added_tokens"].field); err != nil {
		return nil, err
	}
	if t.prefix, t.suffix, err = t.newTemplate(parts["post_processor"], 0); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(t.prefix, t.suffix) {
		if int(id) >= len(t.vocab.pieces) || t.vocab.pieces[id] == "" {
			return nil, parts["post_processor"].errorf("id %d has no token", id)
		}
	}
	t.fingerprint, err = fingerprint(t, parts)
	return t, err
}

// readSide returns the direction of the part "padding" or "truncation" of the file, in lower case. "" means
// that it has none.
func readSide(v value) (string, error) {
	if v.absent() {
		return "", nil
	}
	o, err := v.objectValue()
	if err != nil {
		return "", err
	}
	side := o.read("direction")
	if side.absent() {
		return "", nil
	}
	s, err := side.stringValue()
	return strings.ToLower(s), err
}

// readModel reads the part "model" of the file.
func (t *Tokenizer) readModel(v value) error {
	o, err := v.objectValue()
	if err != nil {
		return err
	}
	if kind := o.read("type"); !kind.absent() {
		if t.kind, err = kind.stringValue(); err != nil {
			return err
		}
	} else {
		t.kind = modelKind(o)
	}
	settings := maps.Clone(o.m)
	for _, key := range []string{"vocab", "merges"} {
		delete(settings, key)
	}
	if t.settings, err = json.Marshal(settings); err != nil {
		return v.errorf("%w", err)
	}
	switch t.kind {
	case "WordPiece":
		t.model, err = newWordPiece(o, t.vocab)
	case "BPE":
		t.model, err = newBPE(o, t.vocab)
	case "Unigram":
		t.model, err = newUnigram(o, t.vocab)
	default:
		return o.unknownTypeError(t.kind)
	}
	if err != nil {
		return err
	}
	return o.checkAllRead()
}

// modelKind returns the kind of model in an older file, which does not name it.
func modelKind(o object) string {
	for _, k := range []struct{ key, kind string }{
		{"merges", "BPE"}, {"max_input_chars_per_word", "WordPiece"}, {"unk_id", "Unigram"},
	} {
		if _, ok := o.m[k.key]; ok {
			return k.kind
		}
	}
	return ""
}

// joinByteLevel changes the symbols of the model to bytes if the last pre-tokenizer is ByteLevel,
// and removes that step. If the merges allow it, it adds the step beforeMarks, which makes words shorter.
// It also sets needsSources.
func (t *Tokenizer) joinByteLevel(field string) error {
	for i, p := range t.preTokenizers {
		switch p := p.(type) {
		case byteLevel:
			m, ok := t.model.(*bpe)
			if !ok || i != len(t.preTokenizers)-1 {
				return errorf(field, "ByteLevel is known only as the last step before BPE")
			}
			m.setByteLevel()
			t.preTokenizers = t.preTokenizers[:i]
		case *metaspace:
			t.needsSources = t.needsSources || p.prepend == prependFirst
		}
	}
	if m, ok := t.model.(*bpe); ok && m.cutsAtMarks(t.vocab) {
		t.preTokenizers = append(t.preTokenizers, beforeMarks{})
	}
	return nil
}

// buildAddedSets builds the sets of added tokens: those that are found in the raw text, and those that
// are found, with normalized spellings, in normalized text.
func (t *Tokenizer) buildAddedSets(field string) error {
	var raw, normalized []addedToken
	var rawSpellings, normalizedSpellings []string
	for i, a := range t.added {
		if !a.normalized {
			raw, rawSpellings = append(raw, a), append(rawSpellings, a.content)
			continue
		}
		w := &scratch{}
		w.cur = &w.normBuffers[0]
		w.cur.text = append(w.cur.text, a.content...)
		if err := t.normalize(w); err != nil {
			return errorf(fmt.Sprintf("%s[%d].content", field, i), "%w", err)
		}
		if len(w.cur.text) == 0 {
			return errorf(fmt.Sprintf("%s[%d].content", field, i), "%q is empty once it is normalized", a.content)
		}
		normalized = append(normalized, a)
		normalizedSpellings = append(normalizedSpellings, string(w.cur.text))
	}
	t.rawAdded, t.normalizedAdded = newAddedSet(raw, rawSpellings), newAddedSet(normalized, normalizedSpellings)
	return nil
}

// newTemplate reads the part "post_processor" of the file, and returns the ids before and
// after a single text.
func (t *Tokenizer) newTemplate(v value, depth int) (prefix, suffix []int32, err error) {
	if v.absent() {
		return nil, nil, nil
	}
	o, kind, err := v.typedObject()
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case "BertProcessing", "RobertaProcessing":
		for _, end := range []struct {
			key    string
			target *[]int32
		}{{"cls", &prefix}, {"sep", &suffix}} {
			id, err := tokenPairID(o.read(end.key))
			if err != nil {
				return nil, nil, err
			}
			*end.target = []int32{id}
		}
		o.read("trim_offsets")
		o.read("add_prefix_space")
	case "TemplateProcessing":
		if prefix, suffix, err = t.templateIDs(o); err != nil {
			return nil, nil, err
		}
	case "ByteLevel": // its keys only concern spans
		for _, key := range []string{"add_prefix_space", "trim_offsets", "use_regex"} {
			o.read(key)
		}
	case "Sequence":
		type template struct{ prefix, suffix []int32 }
		templates, err := newSequence(o, "processors", depth, func(v value, depth int) ([]template, error) {
			p, s, err := t.newTemplate(v, depth)
			return []template{{p, s}}, err
		})
		if err != nil {
			return nil, nil, err
		}
		for _, next := range templates { // each surrounds the output of the one before
			prefix, suffix = slices.Concat(next.prefix, prefix), slices.Concat(suffix, next.suffix)
		}
		return prefix, suffix, nil
	default:
		return nil, nil, o.unknownTypeError(kind)
	}
	return prefix, suffix, o.checkAllRead()
}

// tokenPairID reads the id of a pair such as ["[CLS]", 101].
func tokenPairID(v value) (int32, error) {
	pair, err := v.listValue()
	if err != nil {
		return 0, err
	}
	if len(pair) != 2 {
		return 0, v.errorf("is %s, want a token and its id", v.abbreviated())
	}
	return pair[1].idValue()
}

// templateIDs reads a template for a single text, such as [CLS] $A [SEP].
func (t *Tokenizer) templateIDs(o object) (prefix, suffix []int32, err error) {
	single := o.read("single")
	steps, err := single.listValue()
	if err != nil {
		return nil, nil, err
	}
	o.read("pair")
	special := map[string]value{}
	if v := o.read("special_tokens"); !v.absent() {
		m, err := v.objectValue()
		if err != nil {
			return nil, nil, err
		}
		for name := range m.m {
			special[name] = m.read(name)
		}
	}
	texts, target := 0, &prefix
	for _, step := range steps {
		s, err := step.objectValue()
		if err != nil {
			return nil, nil, err
		}
		token, text := s.read("SpecialToken"), s.read("Sequence")
		if err := s.checkAllRead(); err != nil {
			return nil, nil, err
		}
		step := text
		if !token.absent() {
			step = token
		}
		if err := t.readType(step); err != nil {
			return nil, nil, err
		}
		if token.absent() {
			texts, target = texts+1, &suffix
			continue
		}
		ids, err := specialIDs(token, special)
		if err != nil {
			return nil, nil, err
		}
		*target = append(*target, ids...)
	}
	if texts != 1 {
		return nil, nil, single.errorf("has the text %d times, want once", texts)
	}
	return prefix, suffix, nil
}

// readType sets hasTypes if a step of a template has another token type than 0.
func (t *Tokenizer) readType(step value) error {
	s, err := step.objectValue()
	if err != nil {
		return err
	}
	if v := s.read("type_id"); !v.absent() {
		id, err := v.intValue()
		if err != nil {
			return err
		}
		t.hasTypes = t.hasTypes || id != 0
	}
	return nil
}

// specialIDs returns the ids of a template's step such as {"id": "[CLS]", "type_id": 0}.
func specialIDs(step value, special map[string]value) ([]int32, error) {
	s, err := step.objectValue()
	if err != nil {
		return nil, err
	}
	name := s.read("id")
	text, err := name.stringValue()
	if err != nil {
		return nil, err
	}
	v, ok := special[text]
	if !ok {
		return nil, name.errorf("%q is not among special_tokens (%s)",
			text, strings.Join(slices.Sorted(maps.Keys(special)), ", "))
	}
	o, err := v.objectValue()
	if err != nil {
		return nil, err
	}
	list, err := o.read("ids").listValue()
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, item := range list {
		id, err := item.idValue()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
