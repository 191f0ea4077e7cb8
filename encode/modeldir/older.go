package modeldir

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// olderForm is how a class of tokenizers is made of the files that there were before tokenizer.json.
type olderForm struct {
	files []string // the vocabulary, and of BPE the merges
	// Names that special tokens have where no file names them, in the order of specialKeys.
	special [7]string
	lstrip  bool // the mask takes the blank before it
}

// specialKeys are the special tokens, in the order in which transformers adds them.
var specialKeys = [7]string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

var (
	olderBERT = &olderForm{
		files: []string{"vocab.txt"}, special: [7]string{"", "", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"},
	}
	olderMPNet = &olderForm{
		files: []string{"vocab.txt"}, lstrip: true,
		special: [7]string{"<s>", "</s>", "[UNK]", "</s>", "<pad>", "<s>", "<mask>"},
	}
	olderRoBERTa = &olderForm{
		files:   []string{"vocab.json", "merges.txt"},
		special: [7]string{"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"},
	}

	olderClasses = map[string]*olderForm{
		"BertTokenizer": olderBERT, "DistilBertTokenizer": olderBERT, "ElectraTokenizer": olderBERT,
		"MPNetTokenizer": olderMPNet, "RobertaTokenizer": olderRoBERTa,
	}
	olderTypes = map[string]*olderForm{
		"bert": olderBERT, "distilbert": olderBERT, "electra": olderBERT, "mpnet": olderMPNet, "roberta": olderRoBERTa,
	}
)

// ofClass are what classes of tokenizers take from tokenizer_config.json, whatever tokenizer.json says
// of its part of the type; absent is nil, as is null.
var ofClass = []classSetting{
	{"add_prefix_space", false, "pre_tokenizer", "ByteLevel", "add_prefix_space"},
	{"do_lower_case", true, "normalizer", "BertNormalizer", "lowercase"},
	{"tokenize_chinese_chars", true, "normalizer", "BertNormalizer", "handle_chinese_chars"},
	{"strip_accents", nil, "normalizer", "BertNormalizer", "strip_accents"},
}

type classSetting struct {
	key               string
	absent            any
	part, kind, field string
}

func (c *classSetting) value(f *file) (any, error) {
	if v, ok, err := f.bool(c.key); err != nil || ok {
		return v, err
	}
	return c.absent, nil
}

// asClass is tokenizer.json with the settings of the class that tokenizer_config.json names.
func (r *reader) asClass(b []byte) ([]byte, error) {
	if r.pieceClass() {
		return r.asPieceClass(b)
	}
	f := r.special.config
	var m map[string]json.RawMessage
	if json.Unmarshal(jsontext.WithoutMark(b), &m) != nil {
		return b, nil // which the tokenizer says better
	}
	changed := false
	for _, c := range ofClass {
		want, err := c.value(f)
		if err != nil {
			return nil, err
		}
		var part map[string]any
		if json.Unmarshal(m[c.part], &part) != nil || part["type"] != c.kind || part[c.field] == want {
			continue
		}
		r.warnf("%s: %s is %v, but %s has %s.%s %v: the class takes the first", r.name(f.path), c.key, shownAs(want),
			r.name(r.tokenizerPath), c.part, c.field, shownAs(part[c.field]))
		part[c.field], changed = want, true
		if m[c.part], err = json.Marshal(part); err != nil {
			return nil, err
		}
	}
	if !changed {
		return b, nil
	}
	return json.Marshal(m)
}

// pieceClasses are the classes of pieces that make normalizer and pre-tokenizer themselves. Of the file's
// normalizer they keep the table of characters.
var pieceClasses = []string{"XLMRobertaTokenizer", "CamembertTokenizer"}

// asPieceClass is tokenizer.json with the steps of such a class.
func (r *reader) asPieceClass(b []byte) ([]byte, error) {
	var m map[string]json.RawMessage
	var table json.RawMessage
	type step struct {
		Type        string
		Normalizers []json.RawMessage
	}
	if json.Unmarshal(jsontext.WithoutMark(b), &m) != nil {
		return b, nil // which the tokenizer says better
	}
	steps := []json.RawMessage{m["normalizer"]}
	var whole, part step
	if json.Unmarshal(m["normalizer"], &whole) == nil && whole.Type == "Sequence" {
		steps = whole.Normalizers
	}
	for _, s := range steps {
		if json.Unmarshal(s, &part) == nil && part.Type == "Precompiled" {
			table = s
			break
		}
	}
	space, ok, err := r.special.config.bool("add_prefix_space")
	if err != nil {
		return nil, err
	}
	scheme := "always"
	if ok && !space {
		scheme = "never"
	}
	pre, err := json.Marshal(map[string]any{"type": "Sequence", "pretokenizers": []any{
		map[string]any{"type": "WhitespaceSplit"},
		map[string]any{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": true},
	}})
	if err != nil {
		return nil, err
	}
	changed := false
	if n := m["normalizer"]; len(steps) > 1 || table == nil && len(n) > 0 && string(n) != "null" {
		m["normalizer"], changed = table, true
	}
	if !splitsPieces(m["pre_tokenizer"], scheme) {
		m["pre_tokenizer"], changed = pre, true
	}
	if !changed {
		return b, nil
	}
	r.warnf("%s: its normalizer or pre-tokenizer is not that of %s, the class that %s names: the class takes its own",
		r.name(r.tokenizerPath), r.tokenizerClass(), r.name(r.special.config.path))
	return json.Marshal(m)
}

// splitsPieces reports whether a pre-tokenizer is that of pieceClasses, as any version writes it.
func splitsPieces(raw json.RawMessage, scheme string) bool {
	var v struct {
		Type          string
		PreTokenizers []struct {
			Type, Replacement string
			Scheme            string `json:"prepend_scheme"`
			Space             *bool  `json:"add_prefix_space"`
			Split             *bool
		}
	}
	if json.Unmarshal(raw, &v) != nil || v.Type != "Sequence" || len(v.PreTokenizers) != 2 {
		return false
	}
	first, second := v.PreTokenizers[0], v.PreTokenizers[1]
	if second.Scheme == "" {
		if second.Scheme = "always"; second.Space != nil && !*second.Space {
			second.Scheme = "never"
		}
	}
	return first.Type == "WhitespaceSplit" && second.Type == "Metaspace" && second.Replacement == "\u2581" &&
		second.Scheme == scheme && (second.Split == nil || *second.Split)
}

// shownAs is a value as JSON has it.
func shownAs(v any) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(v)
}

// ownClass reports whether tokenizer_config.json names a class with settings of its own.
func (r *reader) ownClass() bool { return olderClasses[r.tokenizerClass()] != nil || r.pieceClass() }

// warnOfClass warns of a class whose steps, if it makes them itself, are not known here.
func (r *reader) warnOfClass() {
	class := r.tokenizerClass()
	if class != "" && class != "GemmaTokenizer" && !r.plainTokenizer() && !r.ownClass() {
		r.warnf("%s: tokenizer_class is %s, which may have steps of its own: %s is read as it stands",
			r.name(r.special.config.path), class, r.name(r.tokenizerPath))
	}
}

// pieceClass reports whether it names one that has steps of its own.
func (r *reader) pieceClass() bool { return slices.Contains(pieceClasses, r.tokenizerClass()) }

// tokenizerClass is the class that tokenizer_config.json names; "": none.
func (r *reader) tokenizerClass() string {
	class, _, _ := r.special.config.text("tokenizer_class")
	return strings.TrimSuffix(class, "Fast")
}

// olderForm is that of the folder, by the class that a file names or by the kind of model; nil if not
// all of its files are there.
func (r *reader) olderForm() (*olderForm, error) {
	kind, _, err := r.config.text("model_type")
	if err != nil {
		return nil, err
	}
	form := olderTypes[kind]
	for _, f := range []*file{r.special.config, r.config} {
		if class, ok, err := f.text("tokenizer_class"); err != nil {
			return nil, err
		} else if ok {
			form = olderClasses[strings.TrimSuffix(class, "Fast")]
			break
		}
	}
	if form == nil || slices.ContainsFunc(form.files, func(name string) bool { return !r.exists(r.find(name)) }) {
		return nil, nil
	}
	return form, nil
}

// addedToken is a token as files of tokenizers have it: its name alone, or an object.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized *bool  `json:"normalized"` // nil: unless it is special
	Special    bool   `json:"special"`
}

// UnmarshalJSON reads either form.
func (t *addedToken) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte(`"`)) {
		return json.Unmarshal(b, &t.Content)
	}
	type plain addedToken
	return json.Unmarshal(b, (*plain)(t))
}

// older is a tokenizer.json made of older files, as AutoTokenizer of transformers makes it.
func (r *reader) older(form *olderForm) ([]byte, error) {
	vocab, model, err := r.olderModel(form)
	if err != nil {
		return nil, err
	}
	// Special tokens by their keys.
	var special [7]addedToken
	for i, key := range specialKeys {
		special[i] = addedToken{Content: form.special[i], LStrip: form.lstrip && key == "mask_token"}
		for _, f := range r.special.files() {
			if !f.has(key) {
				continue
			}
			if special[i], _, err = value[addedToken](f, key, "a token"); err != nil {
				return nil, err
			}
			break
		}
	}
	added, err := r.olderAdded(vocab, special[:])
	if err != nil {
		return nil, err
	}
	ids := map[string]int{}
	for _, t := range added {
		ids[t.Content] = t.ID
	}
	named := func(key int) []any { return []any{special[key].Content, ids[special[key].Content]} }
	file := map[string]any{
		"added_tokens": added, "model": model,
		"post_processor": map[string]any{"type": "BertProcessing", "sep": named(3), "cls": named(5)},
	}
	if form == olderRoBERTa {
		space, err := ofClass[0].value(r.special.config)
		if err != nil {
			return nil, err
		}
		file["pre_tokenizer"] = map[string]any{"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true}
		return json.Marshal(file)
	}
	model["unk_token"] = special[2].Content
	normalizer := map[string]any{"type": "BertNormalizer", "clean_text": true}
	for _, c := range ofClass {
		if c.part == "normalizer" {
			if normalizer[c.field], err = c.value(r.special.config); err != nil {
				return nil, err
			}
		}
	}
	file["normalizer"], file["pre_tokenizer"] = normalizer, map[string]any{"type": "BertPreTokenizer"}
	return json.Marshal(file)
}

// olderModel reads the vocabulary, and the merges.
func (r *reader) olderModel(form *olderForm) (vocab map[string]int, model map[string]any, err error) {
	var texts [2]string
	for i, name := range form.files {
		path := r.find(name)
		b, err := r.readJSON(path)
		switch {
		case err != nil:
			return nil, nil, err
		case len(b) > maxJSON:
			return nil, nil, Faultf(path, "", ErrTokenizer, "has more than %d bytes", maxJSON)
		case !utf8.Valid(b):
			return nil, nil, Faultf(path, "", ErrTokenizer, "is not valid UTF-8")
		}
		texts[i] = string(b)
	}
	if form != olderRoBERTa {
		// Of lines that are the same the last one counts.
		vocab = map[string]int{}
		number := 0
		for line := range strings.Lines(texts[0]) {
			vocab[strings.TrimRightFunc(line, unicode.IsSpace)] = number
			number++
		}
		return vocab, map[string]any{"type": "WordPiece", "vocab": vocab}, nil
	}
	if err := json.Unmarshal([]byte(texts[0]), &vocab); err != nil {
		path := r.find(form.files[0])
		return nil, nil, Faultf(path, "", ErrTokenizer, "is no object of pieces and their ids: %w", err)
	}
	var merges []string
	for line := range strings.Lines(texts[1]) {
		merges = append(merges, strings.TrimRight(line, "\r\n"))
	}
	return vocab, map[string]any{"type": "BPE", "vocab": vocab, "merges": merges}, nil
}

// olderAdded are all tokens that are added, with their ids: those that files list, then special ones.
func (r *reader) olderAdded(vocab map[string]int, special []addedToken) ([]addedToken, error) {
	config := r.special.config
	listed, ok, err := value[map[string]addedToken](config, "added_tokens_decoder", "an object of tokens by their ids")
	if err != nil {
		return nil, err
	}
	var all []addedToken
	if !ok {
		f, err := r.open(r.find("added_tokens.json"))
		if err != nil {
			return nil, err
		}
		if f != nil {
			for _, content := range sortedKeys(f.m) {
				id, _, err := f.int(content, 0)
				if err != nil {
					return nil, err
				}
				all = append(all, addedToken{ID: id, Content: content})
			}
		}
	}
	for key, t := range listed {
		if t.ID, err = strconv.Atoi(key); err != nil {
			return nil, config.faultf("added_tokens_decoder", ErrTokenizer, "%q is no id", key)
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b addedToken) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.Content, b.Content))
	})
	count := len(all)
	all = append(all, special...)
	for _, key := range []string{"additional_special_tokens", "extra_special_tokens"} {
		for _, f := range r.special.files() {
			tokens, _, err := value[[]addedToken](f, key, "a list of tokens")
			if err != nil {
				return nil, err
			}
			all = append(all, tokens...)
		}
	}
	// Each once, special ones under the number of the vocabulary or the next one.
	place, next := map[string]int{}, len(vocab)
	var added []addedToken
	for i, t := range all {
		index, known := place[t.Content]
		switch {
		case t.Content == "":
		case known && i >= count:
			added[index].Special = true
		case !known:
			if id, ok := vocab[t.Content]; i >= count {
				if t.ID, t.Special = id, true; !ok {
					t.ID = next
				}
			}
			place[t.Content], next = len(added), max(next, t.ID+1)
			added = append(added, t)
		}
	}
	for i := range added {
		if t := &added[i]; t.Normalized == nil {
			normalized := !t.Special
			t.Normalized = &normalized
		}
	}
	return added, nil
}
