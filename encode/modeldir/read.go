package modeldir

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// punctuation holds the tokens that documents skip by default: the ASCII punctuation of Python's
// string.punctuation.
const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// reader reads one folder.
type reader struct {
	resolver
	settings
	source    Files // nil means that the folder is complete
	sourceErr error // the first error of source, which explains later ones
	c         Config
	override  Override

	sentence, sentenceBert, config, artifact, onnx *file // nil means that a file does not exist
	modules                                        []module
	transformer                                    string // the folder of the first module
	multiVector                                    bool   // a model of sentence-transformers 6 or later
	special                                        special
	tokenizerPath                                  string     // tokenizer.json, or the vocabulary of an older form
	olderTokenizer                                 *olderForm // nil means that tokenizer.json exists
	forgottenTokens                                []string   // added tokens without embeddings in the model
	skipWords                                      []string
	onnxSaysExpand                                 bool     // do_query_expansion of onnx_config.json
	graphs                                         []string // possible names of the graph. nil means weights
}

// Read reads the folder of a model. Errors are [*ModelError].
func Read(dir string, o *Override) (*Config, error) { return read(dir, nil, nil, o) }

// ReadGraph reads the folder of a model whose graph is run as a whole, including its
// heads. The graph is the first of the names, paths within the folder, that exists. So
// config.json may be missing or of an unsupported family,
// and heads need no weights. Errors are of type [*ModelError].
func ReadGraph(dir string, names []string, o *Override) (*Config, error) {
	return read(dir, nil, names, o)
}

// ReadFiles is [ReadGraph], or [Read] if names is empty, for a folder whose files f fetches when they are
// read. It does not fetch the files of [Config.Tensors]. Errors are of type [*ModelError], or those of
// f.
func ReadFiles(f Files, names []string, o *Override) (*Config, error) {
	return read(f.Dir(), f, names, o)
}

// read reads a folder. f may be nil, for a complete folder, and graphs, for a model with weights.
func read(dir string, f Files, graphs []string, o *Override) (*Config, error) {
	r := &reader{
		resolver:    resolver{dir: dir, origin: map[string]string{}},
		source:      f,
		transformer: dir,
		graphs:      graphs,
	}
	r.c = Config{Dir: dir}
	r.settings = r.newSettings()
	if o != nil {
		r.override = *o
	}
	err := r.read()
	if r.sourceErr != nil { // later errors may follow from it
		err = r.sourceErr
	}
	if err != nil {
		return nil, err
	}
	r.c.Origin, r.c.Warnings = r.origin, r.warnings
	return &r.c, nil
}

// olderSettings are older names of sentence_bert_config.json, in the order in which
// sentence-transformers tries them.
var olderSettings = []string{
	"sentence_roberta_config.json", "sentence_distilbert_config.json", "sentence_camembert_config.json",
	"sentence_albert_config.json", "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
}

// read reads the files of the folder into the configuration.
func (r *reader) read() error {
	if info, err := os.Stat(r.dir); r.source != nil {
	} else if err != nil {
		return &ModelError{Path: r.dir, Err: pathless(err)}
	} else if !info.IsDir() {
		return Errorf(r.dir, "", ErrConfig, "is a file, want the folder of a model")
	}
	// Open the files of settings.
	var err error
	if r.sentence, err = r.open(filepath.Join(r.dir, "config_sentence_transformers.json")); err != nil {
		return err
	}
	kind, _, err := r.sentence.stringValue("model_type")
	if err != nil {
		return err
	}
	r.multiVector = kind == "MultiVectorEncoder"
	if err := r.readModules(); err != nil {
		return err
	}
	for _, f := range []struct {
		target **file
		name   string
	}{
		{&r.sentenceBert, "sentence_bert_config.json"},
		{&r.config, "config.json"},
		{&r.artifact, "artifact.metadata"},
		{&r.onnx, "onnx_config.json"},
		{&r.special.config, "tokenizer_config.json"},
		{&r.special.tokens, "special_tokens_map.json"},
	} {
		if *f.target, err = r.open(r.findPath(f.name)); err != nil {
			return err
		}
	}
	for i := 0; r.sentenceBert == nil && r.modules != nil && i < len(olderSettings); i++ {
		if r.sentenceBert, err = r.open(r.findPath(olderSettings[i])); err != nil {
			return err
		}
	}
	if path := r.findPath("adapter_config.json"); r.exists(path) && r.graphs == nil {
		return Errorf(path, "", ErrFamily,
			"adapters are not computed: merge them into the weights, and save the model")
	}
	// Resolve the settings. Earlier steps decide; later ones fill gaps.
	if err := r.findFiles(); err != nil {
		return err
	}
	if err := r.readBackbone(); err != nil {
		return err
	}
	if err := r.setTokenizer(); err != nil {
		return err
	}
	for _, step := range []func() error{
		r.applyOverrides, r.applySentence, r.applySentenceBert, r.applyColBERT, r.applyArtifact, r.applyONNX,
		r.applyDefaults, r.checkValues,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// setTokenizer determines whether texts are lowered, and reads the tokenizer.
func (r *reader) setTokenizer() error {
	lower := newSetting(&r.resolver, "lower_case", &r.c.LowerCase)
	if v := r.override.LowerCase; v != nil {
		lower.set(byOverride, *v)
	}
	if err := firstError(
		lower.setFromKeys(r.sentenceBert, (*file).boolValue, "do_lower_case"),
		lower.setFromKeys(r.onnx, (*file).boolValue, "do_lower_case"),
	); err != nil {
		return err
	}
	lower.setDefault(false)
	t, err := r.readTokenizer()
	path := r.tokenizerPath
	if err != nil {
		var me *ModelError
		if errors.As(err, &me) {
			return err
		}
		return &ModelError{Path: path, Err: err}
	}
	if v, n := r.c.Backbone.Vocabulary, t.VocabSize(); n > v && (v > 0 || r.graphs == nil) {
		forgotten, ok := t.RemoveTokensFrom(v)
		if !ok {
			return Errorf(path, "", ErrContradiction, "has %d tokens, but %s says vocab_size %d",
				n, r.relativePath(r.config.path), v)
		}
		r.forgottenTokens = forgotten
		r.warnf("%s has %d tokens, but %s says vocab_size %d: added tokens from %d on are taken for other text",
			r.relativePath(path), n, r.relativePath(r.config.path), v, v)
	}
	r.c.Tokenizer = t
	r.warnUnknownClass()
	return nil
}

// readTokenizer reads tokenizer.json or the older files. To lower texts, sentence-transformers 6 adds
// a step before those of the file, which does not change special tokens; PyLate and others lower the
// whole text first.
func (r *reader) readTokenizer() (t *tokenizer.Tokenizer, err error) {
	path := r.tokenizerPath
	var b []byte // tokenizer.json with changes. nil means the file as it is
	lowers := r.c.LowerCase && r.multiVector
	if form := r.olderTokenizer; form != nil {
		b, err = r.olderTokenizerJSON(form)
	} else if err = r.fetchFile(path); err == nil && (lowers || r.hasOwnClass()) {
		if b, err = os.ReadFile(path); err == nil && r.hasOwnClass() {
			b, err = r.withClassSettings(b)
		}
		err = pathless(err)
	}
	if err != nil {
		return nil, err
	}
	if b == nil {
		t, err = tokenizer.Read(path)
	} else if !lowers {
		t, err = tokenizer.Parse(b)
	}
	if lowers {
		t, err = withLowercase(b)
	}
	if err == nil && r.olderTokenizer == nil {
		if t, err = r.withAdded(t, b, lowers); err != nil {
			return nil, err
		}
	}
	if err == nil && r.c.LowerCase && !lowers {
		t.LowerFirst()
	}
	return t, tokenizerError(err)
}

// withLowercase parses a tokenizer.json with an additional first step that lowers texts.
func withLowercase(b []byte) (t *tokenizer.Tokenizer, err error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(jsontext.TrimByteOrderMark(b), &m); err != nil {
		return nil, err
	}
	steps := []json.RawMessage{json.RawMessage(`{"type":"Lowercase"}`)}
	if n := m["normalizer"]; len(n) > 0 && string(n) != "null" {
		steps = append(steps, n)
	}
	if m["normalizer"], err = json.Marshal(map[string]any{"type": "Sequence", "normalizers": steps}); err != nil {
		return nil, err
	}
	if b, err = json.Marshal(m); err != nil {
		return nil, err
	}
	t, err = tokenizer.Parse(b)
	return t, tokenizerError(err)
}

// tokenByName returns the id of a marker or mask, which a file may spell with or without
// the blank between it and the text.
func (r *reader) tokenByName(name string) (int32, bool) {
	for _, s := range []string{name, strings.TrimSpace(name), strings.TrimSpace(name) + " "} {
		if id, ok := r.c.Tokenizer.ID(s); ok && strings.TrimSpace(s) != "" {
			return id, true
		}
	}
	return -1, false
}

// readMarker reads a token by its name. "" means −1, no marker.
func (r *reader) readMarker(f *file, key string) (int32, bool, error) {
	name, ok, err := f.stringValue(key)
	if err != nil || !ok || name == "" {
		return -1, ok, err
	}
	id, found := r.tokenByName(name)
	if !found {
		return -1, false, f.errorf(key, ErrTokenizer, "%q is not a token of %s", name, r.relativePath(r.tokenizerPath))
	}
	return id, true, nil
}

// readTokenID reads a token by its id.
func (r *reader) readTokenID(f *file, key string) (int32, bool, error) {
	n, ok, err := f.intValue(key, 0)
	if err == nil && ok && r.c.Tokenizer.Piece(int32(n)) == "" {
		err = f.errorf(key, ErrTokenizer, "%d is not a token of %s", n, r.relativePath(r.tokenizerPath))
	}
	return int32(n), ok, err
}

// applyOverrides sets the values of the override, which no file contradicts.
func (r *reader) applyOverrides() error {
	o := &r.override
	f := &file{path: byOverride}
	for _, m := range []struct {
		key     string
		name    *string
		setting setting[int32]
	}{
		{"query_marker", o.QueryMarker, r.queryMarker},
		{"document_marker", o.DocumentMarker, r.documentMarker},
		{"mask", o.Mask, r.mask},
	} {
		if m.name == nil {
			continue
		}
		id, ok := r.tokenByName(*m.name)
		if !ok && *m.name != "" {
			return f.errorf(m.key, ErrTokenizer, "%q is not a token of %s", *m.name, r.relativePath(r.tokenizerPath))
		}
		m.setting.set(byOverride, id)
	}
	for _, l := range []struct {
		key     string
		length  *int
		setting setting[int]
	}{
		{"query_length", o.QueryLength, r.queryLength},
		{"document_length", o.DocumentLength, r.documentLength},
	} {
		if l.length == nil {
			continue
		}
		if *l.length < minLength {
			err := &LengthError{*l.length, minLength, r.c.Backbone.MaxPositions}
			return &ModelError{Path: byOverride, Field: l.key, Err: err}
		}
		l.setting.set(byOverride, *l.length)
	}
	if o.QueryPrompt != nil {
		r.queryPrompt.set(byOverride, *o.QueryPrompt)
	}
	if o.DocumentPrompt != nil {
		r.documentPrompt.set(byOverride, *o.DocumentPrompt)
	}
	if o.Expand != nil {
		r.expand.set(byOverride, *o.Expand)
	}
	if o.Attend != nil {
		r.attend.set(byOverride, *o.Attend)
	}
	if o.Skip != nil {
		r.skip.set(byOverride, *o.Skip)
	}
	return nil
}

// settings are the values that files may set.
type settings struct {
	queryMarker, documentMarker, mask setting[int32]
	queryLength, documentLength, dim  setting[int]
	queryPrompt, documentPrompt       setting[string]
	expand, attend                    setting[bool]
	skip                              setting[[]string]
}

// newSettings returns the settings of the reader's configuration.
func (r *reader) newSettings() settings {
	v, c := &r.resolver, &r.c
	token := func(name string, target *int32) setting[int32] {
		s := newSetting(v, name, target)
		s.format = func(id int32) string {
			if id < 0 {
				return "none"
			}
			return c.Tokenizer.Piece(id)
		}
		return s
	}
	sameWords := func(a, b []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	joinWords := func(words []string) string { return strings.Join(words, " ") }
	return settings{
		queryMarker:    token("query.marker", &c.Query.Marker),
		documentMarker: token("document.marker", &c.Document.Marker),
		mask:           token("mask", &c.Expand.Mask),
		queryLength:    newSetting(v, "query.length", &c.Query.Length),
		documentLength: newSetting(v, "document.length", &c.Document.Length),
		dim:            newSetting(v, "dim", &c.Dim),
		queryPrompt:    newSetting(v, "query.prompt", &c.Query.Prompt),
		documentPrompt: newSetting(v, "document.prompt", &c.Document.Prompt),
		expand:         newSetting(v, "expand", &c.Expand.On),
		attend:         newSetting(v, "attend", &c.Expand.Attend),
		skip:           setting[[]string]{v, "skip", &r.skipWords, sameWords, joinWords},
	}
}

// stringList reads a list of strings.
func stringList(f *file, key string) ([]string, bool, error) {
	return decodeValue[[]string](f, key, "a list of strings")
}

// IsSpace reports whether Python's strip removes a character from the ends of a text.
func IsSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

// defaultMaxLength limits the lengths that no file sets.
const defaultMaxLength = 8192

// applyDefaults sets the values that no file sets: to the defaults of sentence-transformers 6, PyLate,
// or Stanford's ColBERT, by the files that exist.
func (r *reader) applyDefaults() error {
	// Lengths and prompts.
	query, document := 32, 180 // the lengths of PyLate
	switch {
	case r.multiVector:
		limit, origin, err := r.longestText()
		if err != nil {
			return err
		}
		for _, s := range []setting[int]{r.queryLength, r.documentLength} {
			if !s.isSet() {
				s.set(origin, limit)
			}
		}
	case r.sentence == nil && r.modules == nil && r.onnx == nil:
		document = 220 // Stanford's ColBERT
	case r.sentence == nil && r.modules == nil && !r.isStanford():
		query, document = 48, 300 // a folder with onnx_config.json alone: the exporter's lengths
	}
	limit := r.c.Backbone.MaxPositions
	r.queryLength.setDefault(min(query, limit))
	r.documentLength.setDefault(min(document, limit))
	r.queryPrompt.setDefault("")
	r.documentPrompt.setDefault("")
	if !r.multiVector { // a prompt and its text are trimmed as one
		r.c.Query.Prompt = strings.TrimLeftFunc(r.c.Query.Prompt, IsSpace)
		r.c.Document.Prompt = strings.TrimLeftFunc(r.c.Document.Prompt, IsSpace)
	}
	// Expansion of queries.
	r.attend.setDefault(false)
	if s := r.expand; !s.isSet() && r.onnx != nil && r.sentence == nil && r.modules == nil && !r.isStanford() {
		// The exporter to ONNX writes false even if the model was trained with expansion.
		s.set(r.relativePath(r.onnx.path), r.onnxSaysExpand)
		if !r.onnxSaysExpand {
			r.warnf("%s says do_query_expansion false, as its exporter always does: "+
				"if the model was trained with query expansion, override it", r.relativePath(r.onnx.path))
		}
	}
	r.expand.setDefault(!r.multiVector)
	// Skipped tokens, markers and the mask.
	if r.multiVector {
		r.c.KeepSpace = true
		r.skip.setDefault(nil)
		r.queryMarker.setDefault(-1)
		r.documentMarker.setDefault(-1)
	}
	r.skip.setDefault(asciiPunctuation())
	if r.origin["document.skip"] == "" {
		r.c.Document.Skip = true
		r.origin["query.skip"], r.origin["document.skip"] = byDefault, byDefault
	}
	for _, m := range []struct {
		setting setting[int32]
		name    string
		texts   string // for errors
	}{
		{r.queryMarker, "[Q] ", "queries"},
		{r.documentMarker, "[D] ", "documents"},
	} {
		if m.setting.isSet() {
			continue
		}
		id, ok := r.tokenByName(m.name)
		if !ok {
			err := Errorf(r.dir, m.setting.name, ErrConfig,
				"no file names the marker of %s, and %q is not a token", m.texts, m.name)
			return err.withSetting(m.setting.name)
		}
		m.setting.set(byDefault, id)
	}
	if err := r.findMask(); err != nil {
		return err
	}
	if r.c.Expand.Length == 0 || r.origin["query.length"] == byOverride {
		r.c.Expand.Length = r.c.Query.Length
		r.origin["expand.length"] = r.origin["query.length"]
	}
	return nil
}
