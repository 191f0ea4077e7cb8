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

// olderForm describes how transformers builds a class of tokenizers from the files that were used before
// tokenizer.json.
type olderForm struct {
	files   []string  // the vocabulary and, for BPE, the merges
	special [7]string // default names of the special tokens, in the order of specialKeys
	lstrip  bool      // the mask includes the blank before it
}

// specialKeys are the keys of the special tokens, in the order in which transformers adds them.
var specialKeys = [7]string{
	"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
}

// Indexes in specialKeys.
const (
	unkToken = 2
	sepToken = 3
	clsToken = 5
)

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

// classSettings are the settings that classes of tokenizers read from tokenizer_config.json and that
// override those in tokenizer.json. add_prefix_space has to be the first: olderTokenizerJSON uses it by itself.
var classSettings = []classSetting{
	{"add_prefix_space", false, "pre_tokenizer", "ByteLevel", "add_prefix_space"},
	{"do_lower_case", true, "normalizer", "BertNormalizer", "lowercase"},
	{"tokenize_chinese_chars", true, "normalizer", "BertNormalizer", "handle_chinese_chars"},
	{"strip_accents", nil, "normalizer", "BertNormalizer", "strip_accents"},
}

// classSetting is a key of tokenizer_config.json with its default (nil is null), and the field that it
// overrides in a section of tokenizer.json, if the section has the type kind.
type classSetting struct {
	key                  string
	defaultValue         any
	section, kind, field string
}

// value returns the value in a file, or the default.
func (c *classSetting) value(f *file) (any, error) {
	if v, ok, err := f.boolValue(c.key); err != nil || ok {
		return v, err
	}
	return c.defaultValue, nil
}

// withClassSettings returns tokenizer.json with the settings of the class that tokenizer_config.json
// names. JSON that cannot be parsed is returned as it is, since the tokenizer's error is better.
func (r *reader) withClassSettings(b []byte) ([]byte, error) {
	if r.isPieceClass() {
		return r.withPieceSteps(b)
	}
	f := r.special.config
	var m map[string]json.RawMessage
	if json.Unmarshal(jsontext.TrimByteOrderMark(b), &m) != nil {
		return b, nil
	}
	changed := false
	for _, c := range classSettings {
		want, err := c.value(f)
		if err != nil {
			return nil, err
		}
		var section map[string]any
		if json.Unmarshal(m[c.section], &section) != nil || section["type"] != c.kind || section[c.field] == want {
			continue
		}
		r.warnf("%s: %s is %v, but %s has %s.%s %v: the class takes the first",
			r.relativePath(f.path), c.key, jsonText(want),
			r.relativePath(r.tokenizerPath), c.section, c.field, jsonText(section[c.field]))
		section[c.field], changed = want, true
		if m[c.section], err = json.Marshal(section); err != nil {
			return nil, err
		}
	}
	if !changed {
		return b, nil
	}
	return json.Marshal(m)
}

// pieceClasses are the classes of SentencePiece tokenizers that build normalizer and pre-tokenizer
// themselves. Of the normalizer in tokenizer.json they keep only the table of characters.
var pieceClasses = []string{"XLMRobertaTokenizer", "CamembertTokenizer"}

// withPieceSteps returns tokenizer.json with the normalizer and pre-tokenizer of one of pieceClasses.
func (r *reader) withPieceSteps(b []byte) ([]byte, error) {
	var m map[string]json.RawMessage
	var table json.RawMessage
	type step struct {
		Type        string
		Normalizers []json.RawMessage
	}
	if json.Unmarshal(jsontext.TrimByteOrderMark(b), &m) != nil {
		return b, nil
	}
	// Find the table of characters among the steps of the normalizer.
	steps := []json.RawMessage{m["normalizer"]}
	var normalizer, parsed step
	if json.Unmarshal(m["normalizer"], &normalizer) == nil && normalizer.Type == "Sequence" {
		steps = normalizer.Normalizers
	}
	for _, s := range steps {
		if json.Unmarshal(s, &parsed) == nil && parsed.Type == "Precompiled" {
			table = s
			break
		}
	}
	// Build the pre-tokenizer.
	space, ok, err := r.special.config.boolValue("add_prefix_space")
	if err != nil {
		return nil, err
	}
	scheme := "always"
	if ok && !space {
		scheme = "never"
	}
	preTokenizer, err := json.Marshal(map[string]any{"type": "Sequence", "pretokenizers": []any{
		map[string]any{"type": "WhitespaceSplit"},
		map[string]any{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": true},
	}})
	if err != nil {
		return nil, err
	}
	// Replace the steps that differ.
	changed := false
	if n := m["normalizer"]; len(steps) > 1 || table == nil && len(n) > 0 && string(n) != "null" {
		m["normalizer"], changed = table, true
	}
	if !splitsPieces(m["pre_tokenizer"], scheme) {
		m["pre_tokenizer"], changed = preTokenizer, true
	}
	if !changed {
		return b, nil
	}
	r.warnf("%s: its normalizer or pre-tokenizer is not that of %s, the class that %s names: the class takes its own",
		r.relativePath(r.tokenizerPath), r.tokenizerClass(), r.relativePath(r.special.config.path))
	return json.Marshal(m)
}

// splitsPieces reports whether a pre-tokenizer is that of pieceClasses, in the form of any version.
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

// jsonText returns a value as JSON writes it.
func jsonText(v any) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(v)
}

// hasOwnClass reports whether tokenizer_config.json names a class that overrides tokenizer.json.
func (r *reader) hasOwnClass() bool {
	return olderClasses[r.tokenizerClass()] != nil || r.isPieceClass()
}

// warnUnknownClass warns of a class that may override tokenizer.json in an unknown way.
func (r *reader) warnUnknownClass() {
	class := r.tokenizerClass()
	if class != "" && class != "GemmaTokenizer" && !r.plainTokenizer() && !r.hasOwnClass() {
		r.warnf("%s: tokenizer_class is %s, which may have steps of its own: %s is read as it stands",
			r.relativePath(r.special.config.path), class, r.relativePath(r.tokenizerPath))
	}
}

// isPieceClass reports whether tokenizer_config.json names one of pieceClasses.
func (r *reader) isPieceClass() bool { return slices.Contains(pieceClasses, r.tokenizerClass()) }

// tokenizerClass returns the class that tokenizer_config.json names. "" means that it names none.
func (r *reader) tokenizerClass() string {
	class, _, _ := r.special.config.stringValue("tokenizer_class")
	return strings.TrimSuffix(class, "Fast")
}

// findOlderForm returns the older form of the folder's tokenizer, by the class that a file names or by the
// model_type. nil means that its files are missing.
func (r *reader) findOlderForm() (*olderForm, error) {
	kind, _, err := r.config.stringValue("model_type")
	if err != nil {
		return nil, err
	}
	form := olderTypes[kind]
	for _, f := range []*file{r.special.config, r.config} {
		if class, ok, err := f.stringValue("tokenizer_class"); err != nil {
			return nil, err
		} else if ok {
			form = olderClasses[strings.TrimSuffix(class, "Fast")]
			break
		}
	}
	missing := func(name string) bool { return !r.exists(r.findPath(name)) }
	if form == nil || slices.ContainsFunc(form.files, missing) {
		return nil, nil
	}
	return form, nil
}

// addedToken is a token in the files of tokenizers: a string or an object.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized *bool  `json:"normalized"` // nil means the opposite of Special
	Special    bool   `json:"special"`
}

// UnmarshalJSON reads a string or an object.
func (t *addedToken) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte(`"`)) {
		return json.Unmarshal(b, &t.Content)
	}
	type plain addedToken
	return json.Unmarshal(b, (*plain)(t))
}

// olderTokenizerJSON builds a tokenizer.json from older files, as AutoTokenizer of transformers does.
func (r *reader) olderTokenizerJSON(form *olderForm) ([]byte, error) {
	vocab, model, err := r.readOlderModel(form)
	if err != nil {
		return nil, err
	}
	// Special tokens by their keys.
	var special [7]addedToken
	for i, key := range specialKeys {
		special[i] = addedToken{Content: form.special[i], LStrip: form.lstrip && key == "mask_token"}
		for _, f := range r.special.tokenFiles() {
			if !f.hasKey(key) {
				continue
			}
			if special[i], _, err = decodeValue[addedToken](f, key, "a token"); err != nil {
				return nil, err
			}
			break
		}
	}
	// Added tokens, and the tokens around a text.
	added, err := r.olderAddedTokens(vocab, special[:])
	if err != nil {
		return nil, err
	}
	ids := map[string]int{}
	for _, t := range added {
		ids[t.Content] = t.ID
	}
	withID := func(key int) []any { return []any{special[key].Content, ids[special[key].Content]} }
	file := map[string]any{
		"added_tokens": added,
		"model":        model,
		"post_processor": map[string]any{
			"type": "BertProcessing", "sep": withID(sepToken), "cls": withID(clsToken),
		},
	}
	// Steps before the model.
	if form == olderRoBERTa {
		space, err := classSettings[0].value(r.special.config)
		if err != nil {
			return nil, err
		}
		file["pre_tokenizer"] = map[string]any{"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true}
		return json.Marshal(file)
	}
	model["unk_token"] = special[unkToken].Content
	normalizer := map[string]any{"type": "BertNormalizer", "clean_text": true}
	for _, c := range classSettings {
		if c.section == "normalizer" {
			if normalizer[c.field], err = c.value(r.special.config); err != nil {
				return nil, err
			}
		}
	}
	file["normalizer"], file["pre_tokenizer"] = normalizer, map[string]any{"type": "BertPreTokenizer"}
	return json.Marshal(file)
}

// readOlderModel reads the vocabulary and, for BPE, the merges.
func (r *reader) readOlderModel(form *olderForm) (vocab map[string]int, model map[string]any, err error) {
	var texts [2]string
	for i, name := range form.files {
		path := r.findPath(name)
		b, err := r.readJSON(path)
		switch {
		case err != nil:
			return nil, nil, err
		case len(b) > maxJSON:
			return nil, nil, Errorf(path, "", ErrTokenizer, "has more than %d bytes", maxJSON)
		case !utf8.Valid(b):
			return nil, nil, Errorf(path, "", ErrTokenizer, "is not valid UTF-8")
		}
		texts[i] = string(b)
	}
	if form != olderRoBERTa {
		// The last of equal lines counts.
		vocab = map[string]int{}
		number := 0
		for line := range strings.Lines(texts[0]) {
			vocab[strings.TrimRightFunc(line, unicode.IsSpace)] = number
			number++
		}
		return vocab, map[string]any{"type": "WordPiece", "vocab": vocab}, nil
	}
	if err := json.Unmarshal([]byte(texts[0]), &vocab); err != nil {
		path := r.findPath(form.files[0])
		return nil, nil, Errorf(path, "", ErrTokenizer, "is no object of pieces and their ids: %w", err)
	}
	var merges []string
	for line := range strings.Lines(texts[1]) {
		merges = append(merges, strings.TrimRight(line, "\r\n"))
	}
	return vocab, map[string]any{"type": "BPE", "vocab": vocab, "merges": merges}, nil
}

// olderAddedTokens returns all added tokens with their ids: those that files list, then the special ones.
func (r *reader) olderAddedTokens(vocab map[string]int, special []addedToken) ([]addedToken, error) {
	config := r.special.config
	listed, ok, err := decodeValue[map[string]addedToken](
		config, "added_tokens_decoder", "an object of tokens by their ids")
	if err != nil {
		return nil, err
	}
	var tokens []addedToken
	if !ok {
		f, err := r.open(r.findPath("added_tokens.json"))
		if err != nil {
			return nil, err
		}
		if f != nil {
			for _, content := range sortedKeys(f.m) {
				id, _, err := f.intValue(content, 0)
				if err != nil {
					return nil, err
				}
				tokens = append(tokens, addedToken{ID: id, Content: content})
			}
		}
	}
	for key, t := range listed {
		if t.ID, err = strconv.Atoi(key); err != nil {
			return nil, config.errorf("added_tokens_decoder", ErrTokenizer, "%q is no id", key)
		}
		tokens = append(tokens, t)
	}
	slices.SortFunc(tokens, func(a, b addedToken) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), strings.Compare(a.Content, b.Content))
	})
	// Special tokens.
	firstSpecial := len(tokens)
	tokens = append(tokens, special...)
	for _, key := range []string{"additional_special_tokens", "extra_special_tokens"} {
		for _, f := range r.special.tokenFiles() {
			extra, _, err := decodeValue[[]addedToken](f, key, "a list of tokens")
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, extra...)
		}
	}
	// Keep the first of equal tokens. A special token has its id in the vocabulary, or the next free one.
	indexes, next := map[string]int{}, len(vocab)
	var added []addedToken
	for i, t := range tokens {
		index, known := indexes[t.Content]
		switch {
		case t.Content == "":
		case known && i >= firstSpecial:
			added[index].Special = true
		case !known:
			if id, ok := vocab[t.Content]; i >= firstSpecial {
				if t.ID, t.Special = id, true; !ok {
					t.ID = next
				}
			}
			indexes[t.Content], next = len(added), max(next, t.ID+1)
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
