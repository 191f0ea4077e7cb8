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

// maxFile is the size above which a file is not read as JSON at all.
const maxFile = 1 << 30

// Read reads a tokenizer.json. What is wrong with its contents is an [*Error].
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

// Parse reads the contents of a tokenizer.json. Errors are [*Error].
func Parse(b []byte) (*Tokenizer, error) {
	chars.Load()
	b = jsontext.WithoutMark(b)
	if err := checkJSON(b); err != nil {
		return nil, err
	}
	o, err := value{raw: b}.object()
	if err != nil {
		return nil, err
	}
	t, err := parse(o)
	if err != nil {
		return nil, err
	}
	return t, o.rest()
}

func parse(o object) (*Tokenizer, error) {
	if v := o.get("version"); !v.absent() {
		if s, err := v.str(); err != nil || s != "1.0" {
			return nil, v.faultf("is %s, want \"1.0\"", v.shown())
		}
	}
	o.get("decoder")
	parts := map[string]value{}
	for _, key := range []string{"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "model"} {
		parts[key] = o.get(key)
	}
	t := &Tokenizer{vocab: &vocabulary{}, cache: newCache()}
	t.pool.New = func() any { return &work{} }
	var err error
	for i, key := range []string{"padding", "truncation"} {
		if t.sides[i], err = sideOf(o.get(key)); err != nil {
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
	if err := t.setAdded(parts["added_tokens"].field); err != nil {
		return nil, err
	}
	if t.prefix, t.suffix, err = t.newTemplate(parts["post_processor"], 0); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(t.prefix, t.suffix) {
		if int(id) >= len(t.vocab.pieces) || t.vocab.pieces[id] == "" {
			return nil, parts["post_processor"].faultf("id %d has no token", id)
		}
	}
	t.fingerprint, err = fingerprint(t, parts)
	return t, err
}

// sideOf is the direction of the part "padding" or "truncation" of the file, in lower case; "": it has none.
func sideOf(v value) (string, error) {
	if v.absent() {
		return "", nil
	}
	o, err := v.object()
	if err != nil {
		return "", err
	}
	side := o.get("direction")
	if side.absent() {
		return "", nil
	}
	s, err := side.str()
	return strings.ToLower(s), err
}

// readModel reads the part "model" of the file.
func (t *Tokenizer) readModel(v value) error {
	o, err := v.object()
	if err != nil {
		return err
	}
	if kind := o.get("type"); !kind.absent() {
		if t.kind, err = kind.str(); err != nil {
			return err
		}
	} else {
		t.kind = kindOf(o)
	}
	settings := maps.Clone(o.m)
	for _, key := range []string{"vocab", "merges"} {
		delete(settings, key)
	}
	if t.settings, err = json.Marshal(settings); err != nil {
		return v.faultf("%w", err)
	}
	switch t.kind {
	case "WordPiece":
		t.model, err = newWordPiece(o, t.vocab)
	case "BPE":
		t.model, err = newBPE(o, t.vocab)
	case "Unigram":
		t.model, err = newUnigram(o, t.vocab)
	default:
		return o.unknown(t.kind)
	}
	if err != nil {
		return err
	}
	return o.rest()
}

// kindOf is the kind of model in a file of before kinds were written.
func kindOf(o object) string {
	for _, k := range []struct{ key, kind string }{
		{"merges", "BPE"}, {"max_input_chars_per_word", "WordPiece"}, {"unk_id", "Unigram"},
	} {
		if _, ok := o.m[k.key]; ok {
			return k.kind
		}
	}
	return ""
}

// joinByteLevel makes the model take bytes where the last pre-tokenizer is ByteLevel,
// and drops that step. Where no merge joins a blank to a character before it, a step makes words
// shorter.
func (t *Tokenizer) joinByteLevel(field string) error {
	for i, p := range t.preTokenizers {
		switch p := p.(type) {
		case byteLevel:
			m, ok := t.model.(*bpe)
			if !ok || i != len(t.preTokenizers)-1 {
				return faultf(field, "ByteLevel is known only as the last step before BPE")
			}
			m.setByteLevel()
			t.preTokenizers = t.preTokenizers[:i]
		case *metaspace:
			t.places = t.places || p.prepend == first
		}
	}
	if m, ok := t.model.(*bpe); ok && m.cutsAtMarks(t.vocab) {
		t.preTokenizers = append(t.preTokenizers, beforeMarks{})
	}
	return nil
}

// setAdded makes added tokens findable.
func (t *Tokenizer) setAdded(field string) error {
	var raw, mid []addedToken
	var rawText, midText []string
	for i, a := range t.added {
		if !a.normalized {
			raw, rawText = append(raw, a), append(rawText, a.content)
			continue
		}
		w := &work{}
		w.cur = &w.norm[0]
		w.cur.text = append(w.cur.text, a.content...)
		if err := t.normalize(w); err != nil {
			return faultf(fmt.Sprintf("%s[%d].content", field, i), "%w", err)
		}
		if len(w.cur.text) == 0 {
			return faultf(fmt.Sprintf("%s[%d].content", field, i), "%q is empty once it is normalized", a.content)
		}
		mid, midText = append(mid, a), append(midText, string(w.cur.text))
	}
	t.raw, t.mid = newAddedSet(raw, rawText), newAddedSet(mid, midText)
	return nil
}

// newTemplate reads the part "post_processor" of the file: the ids before and
// after a single text.
func (t *Tokenizer) newTemplate(v value, depth int) (prefix, suffix []int32, err error) {
	if v.absent() {
		return nil, nil, nil
	}
	o, kind, err := v.typed()
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case "BertProcessing", "RobertaProcessing":
		for _, end := range []struct {
			key string
			to  *[]int32
		}{{"cls", &prefix}, {"sep", &suffix}} {
			id, err := namedID(o.get(end.key))
			if err != nil {
				return nil, nil, err
			}
			*end.to = []int32{id}
		}
		o.get("trim_offsets")
		o.get("add_prefix_space")
	case "TemplateProcessing":
		if prefix, suffix, err = t.templateIDs(o); err != nil {
			return nil, nil, err
		}
	case "ByteLevel": // spans only
		for _, key := range []string{"add_prefix_space", "trim_offsets", "use_regex"} {
			o.get(key)
		}
	case "Sequence":
		type ends struct{ prefix, suffix []int32 }
		all, err := newSequence(o, "processors", depth, func(v value, depth int) ([]ends, error) {
			p, s, err := t.newTemplate(v, depth)
			return []ends{{p, s}}, err
		})
		if err != nil {
			return nil, nil, err
		}
		for _, e := range all { // each works on what the one before gives
			prefix, suffix = slices.Concat(e.prefix, prefix), slices.Concat(suffix, e.suffix)
		}
		return prefix, suffix, nil
	default:
		return nil, nil, o.unknown(kind)
	}
	return prefix, suffix, o.rest()
}

// namedID reads ["[CLS]", 101].
func namedID(v value) (int32, error) {
	pair, err := v.list()
	if err != nil {
		return 0, err
	}
	if len(pair) != 2 {
		return 0, v.faultf("is %s, want a token and its id", v.shown())
	}
	return pair[1].id()
}

// templateIDs reads a template for a single text, such as [CLS] $A [SEP].
func (t *Tokenizer) templateIDs(o object) (prefix, suffix []int32, err error) {
	single := o.get("single")
	steps, err := single.list()
	if err != nil {
		return nil, nil, err
	}
	o.get("pair")
	special := map[string]value{}
	if v := o.get("special_tokens"); !v.absent() {
		m, err := v.object()
		if err != nil {
			return nil, nil, err
		}
		for name := range m.m {
			special[name] = m.get(name)
		}
	}
	texts, to := 0, &prefix
	for _, step := range steps {
		s, err := step.object()
		if err != nil {
			return nil, nil, err
		}
		token, text := s.get("SpecialToken"), s.get("Sequence")
		if err := s.rest(); err != nil {
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
			texts, to = texts+1, &suffix
			continue
		}
		ids, err := specialIDs(token, special)
		if err != nil {
			return nil, nil, err
		}
		*to = append(*to, ids...)
	}
	if texts != 1 {
		return nil, nil, single.faultf("has the text %d times, want once", texts)
	}
	return prefix, suffix, nil
}

// readType notes whether a step of a template gives another type than 0.
func (t *Tokenizer) readType(step value) error {
	s, err := step.object()
	if err != nil {
		return err
	}
	if v := s.get("type_id"); !v.absent() {
		id, err := v.int()
		if err != nil {
			return err
		}
		t.typed = t.typed || id != 0
	}
	return nil
}

// specialIDs are those of a template's step {"id": "[CLS]", "type_id": 0}.
func specialIDs(step value, special map[string]value) ([]int32, error) {
	s, err := step.object()
	if err != nil {
		return nil, err
	}
	name := s.get("id")
	text, err := name.str()
	if err != nil {
		return nil, err
	}
	v, ok := special[text]
	if !ok {
		return nil, name.faultf("%q is not among special_tokens (%s)", text, strings.Join(slices.Sorted(maps.Keys(special)), ", "))
	}
	o, err := v.object()
	if err != nil {
		return nil, err
	}
	list, err := o.get("ids").list()
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, item := range list {
		id, err := item.id()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
