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

// punctuation are the tokens that are skipped in documents where a folder does
// not say otherwise: those of ASCII, as Python's string.punctuation.
const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// reader reads one folder.
type reader struct {
	resolver
	settings
	source Files // nil: all that there is lies in the folder
	failed error // of source
	c      Config
	o      Override

	sentence, bert, config, artifact, onnx *file // nil: not there
	modules                                []module
	transformer                            string // folder of the first module
	multiVector                            bool   // of sentence-transformers 6 or later
	special                                special
	tokenizerPath                          string     // of tokenizer.json, or of the vocabulary of an older form
	olderTokenizer                         *olderForm // nil: there is tokenizer.json
	forgotten                              []string   // added tokens that the model has no embeddings of
	skipWords                              []string
	onnxSaysExpand                         bool
	graphs                                 []string // names of the graph; nil: the weights are read
}

// Read reads the folder of a model. Errors are [*ModelError].
func Read(dir string, o *Override) (*Config, error) { return read(dir, nil, nil, o) }

// ReadGraph reads the folder of a model whose graph is run as a whole, heads and
// all: the first of the names, paths within the folder, that is there. So
// config.json need not be there, nor be one of a family that is computed here,
// and heads need no weights. Errors are [*ModelError].
func ReadGraph(dir string, names []string, o *Override) (*Config, error) {
	return read(dir, nil, names, o)
}

// ReadFiles is [ReadGraph], or without names [Read], of a folder that is filled as its files are
// asked for. Those of [Config.Tensors] are named and not asked for. Errors are [*ModelError] and
// those of f.
func ReadFiles(f Files, names []string, o *Override) (*Config, error) {
	return read(f.Dir(), f, names, o)
}

func read(dir string, f Files, graphs []string, o *Override) (*Config, error) {
	r := &reader{resolver: resolver{dir: dir, origin: map[string]string{}}, source: f, transformer: dir, graphs: graphs}
	r.c = Config{Dir: dir}
	r.settings = r.newSettings()
	if o != nil {
		r.o = *o
	}
	err := r.read()
	if r.failed != nil { // later faults may come of it
		err = r.failed
	}
	if err != nil {
		return nil, err
	}
	r.c.Origin, r.c.Warnings = r.origin, r.warnings
	return &r.c, nil
}

// olderSettings are other names of sentence_bert_config.json, in the order in which the package looks.
var olderSettings = []string{
	"sentence_roberta_config.json", "sentence_distilbert_config.json", "sentence_camembert_config.json",
	"sentence_albert_config.json", "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
}

func (r *reader) read() error {
	if info, err := os.Stat(r.dir); r.source != nil {
	} else if err != nil {
		return &ModelError{Path: r.dir, Err: pathless(err)}
	} else if !info.IsDir() {
		return Faultf(r.dir, "", ErrConfig, "is a file, want the folder of a model")
	}
	var err error
	if r.sentence, err = r.open(filepath.Join(r.dir, "config_sentence_transformers.json")); err != nil {
		return err
	}
	kind, _, err := r.sentence.text("model_type")
	if err != nil {
		return err
	}
	r.multiVector = kind == "MultiVectorEncoder"
	if err := r.readModules(); err != nil {
		return err
	}
	for _, f := range []struct {
		to   **file
		name string
	}{
		{&r.bert, "sentence_bert_config.json"}, {&r.config, "config.json"}, {&r.artifact, "artifact.metadata"},
		{&r.onnx, "onnx_config.json"}, {&r.special.config, "tokenizer_config.json"}, {&r.special.tokens, "special_tokens_map.json"},
	} {
		if *f.to, err = r.open(r.find(f.name)); err != nil {
			return err
		}
	}
	for i := 0; r.bert == nil && r.modules != nil && i < len(olderSettings); i++ {
		if r.bert, err = r.open(r.find(olderSettings[i])); err != nil {
			return err
		}
	}
	if path := r.find("adapter_config.json"); r.exists(path) && r.graphs == nil {
		return Faultf(path, "", ErrFamily, "adapters are not computed: merge them into the weights, and save the model")
	}
	if err := r.files(); err != nil {
		return err
	}
	if err := r.backbone(); err != nil {
		return err
	}
	if err := r.tokenizer(); err != nil {
		return err
	}
	for _, step := range []func() error{
		r.overrides, r.fromSentence, r.fromBert, r.fromColBERT, r.fromArtifact, r.fromONNX, r.defaults, r.check,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// tokenizer reads tokenizer.json, once it is known whether texts are made lower case.
func (r *reader) tokenizer() error {
	lower := settingOf(&r.resolver, "lower_case", &r.c.LowerCase)
	if v := r.o.LowerCase; v != nil {
		lower.set(byOverride, *v)
	}
	if err := firstError(
		lower.from(r.bert, (*file).bool, "do_lower_case"),
		lower.from(r.onnx, (*file).bool, "do_lower_case"),
	); err != nil {
		return err
	}
	lower.otherwise(false)
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
		forgotten, ok := t.Forget(v)
		if !ok {
			return Faultf(path, "", ErrContradiction, "has %d tokens, but %s says vocab_size %d",
				n, r.name(r.config.path), v)
		}
		r.forgotten = forgotten
		r.warnf("%s has %d tokens, but %s says vocab_size %d: added tokens from %d on are taken for other text",
			r.name(path), n, r.name(r.config.path), v, v)
	}
	r.c.Tokenizer = t
	r.warnOfClass()
	return nil
}

// readTokenizer reads tokenizer.json. Where texts are made lower case, sentence-transformers 6 puts
// a step before those of the file, which leaves special tokens alone; PyLate and others lower the
// whole text first.
func (r *reader) readTokenizer() (t *tokenizer.Tokenizer, err error) {
	path := r.tokenizerPath
	var b []byte // nil: the file as it stands
	lowers := r.c.LowerCase && r.multiVector
	if form := r.olderTokenizer; form != nil {
		b, err = r.older(form)
	} else if err = r.get(path); err == nil && (lowers || r.ownClass()) {
		if b, err = os.ReadFile(path); err == nil && r.ownClass() {
			b, err = r.asClass(b)
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
	return t, unpath(err)
}

// withLowercase parses a tokenizer.json with a step that makes lower case before its own.
func withLowercase(b []byte) (t *tokenizer.Tokenizer, err error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(jsontext.WithoutMark(b), &m); err != nil {
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
	return t, unpath(err)
}

// token is the id of a marker or mask, which a file may spell with or without
// the blank that parts it from the text.
func (r *reader) token(name string) (int32, bool) {
	for _, s := range []string{name, strings.TrimSpace(name), strings.TrimSpace(name) + " "} {
		if id, ok := r.c.Tokenizer.ID(s); ok && strings.TrimSpace(s) != "" {
			return id, true
		}
	}
	return -1, false
}

// marker reads a token by its name, which may be "".
func (r *reader) marker(f *file, key string) (int32, bool, error) {
	name, ok, err := f.text(key)
	if err != nil || !ok || name == "" {
		return -1, ok, err
	}
	id, found := r.token(name)
	if !found {
		return -1, false, f.faultf(key, ErrTokenizer, "%q is no token of %s", name, r.name(r.tokenizerPath))
	}
	return id, true, nil
}

// tokenID reads a token by its number.
func (r *reader) tokenID(f *file, key string) (int32, bool, error) {
	n, ok, err := f.int(key, 0)
	if err == nil && ok && r.c.Tokenizer.Piece(int32(n)) == "" {
		err = f.faultf(key, ErrTokenizer, "%d is no token of %s", n, r.name(r.tokenizerPath))
	}
	return int32(n), ok, err
}

// overrides come first.
func (r *reader) overrides() error {
	o := &r.o
	f := &file{path: byOverride}
	for _, m := range []struct {
		key  string
		name *string
		to   setting[int32]
	}{{"query_marker", o.QueryMarker, r.queryMarker}, {"document_marker", o.DocumentMarker, r.documentMarker}, {"mask", o.Mask, r.mask}} {
		if m.name == nil {
			continue
		}
		id, ok := r.token(*m.name)
		if !ok && *m.name != "" {
			return f.faultf(m.key, ErrTokenizer, "%q is no token of %s", *m.name, r.name(r.tokenizerPath))
		}
		m.to.set(byOverride, id)
	}
	for _, n := range []struct {
		key string
		v   *int
		to  setting[int]
	}{{"query_length", o.QueryLength, r.queryLength}, {"document_length", o.DocumentLength, r.documentLength}} {
		if n.v == nil {
			continue
		}
		if *n.v < shortest {
			return &ModelError{Path: byOverride, Field: n.key, Err: &LengthError{*n.v, shortest, r.c.Backbone.MaxPositions}}
		}
		n.to.set(byOverride, *n.v)
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

// settings are the values that files may decide.
type settings struct {
	queryMarker, documentMarker, mask setting[int32]
	queryLength, documentLength, dim  setting[int]
	queryPrompt, documentPrompt       setting[string]
	expand, attend                    setting[bool]
	skip                              setting[[]string]
}

func (r *reader) newSettings() settings {
	v, c := &r.resolver, &r.c
	token := func(name string, to *int32) setting[int32] {
		s := settingOf(v, name, to)
		s.show = func(id int32) string {
			if id < 0 {
				return "none"
			}
			return c.Tokenizer.Piece(id)
		}
		return s
	}
	return settings{
		queryMarker: token("query.marker", &c.Query.Marker), documentMarker: token("document.marker", &c.Document.Marker),
		mask:        token("mask", &c.Expand.Mask),
		queryLength: settingOf(v, "query.length", &c.Query.Length), documentLength: settingOf(v, "document.length", &c.Document.Length),
		dim:         settingOf(v, "dim", &c.Dim),
		queryPrompt: settingOf(v, "query.prompt", &c.Query.Prompt), documentPrompt: settingOf(v, "document.prompt", &c.Document.Prompt),
		expand: settingOf(v, "expand", &c.Expand.On), attend: settingOf(v, "attend", &c.Expand.Attend),
		skip: setting[[]string]{v, "skip", &r.skipWords, func(a, b []string) bool {
			return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
		}, func(v []string) string { return strings.Join(v, " ") }},
	}
}

// words reads a list of tokens.
func words(f *file, key string) ([]string, bool, error) {
	return value[[]string](f, key, "a list of strings")
}

// IsSpace tells the characters that Python strips from the ends of a text.
func IsSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

// longest bounds lengths that no file says.
const longest = 8192

// defaults fills in what no file says: PyLate's values, or Stanford's where
// only its files are there.
func (r *reader) defaults() error {
	query, document := 32, 180
	switch {
	case r.multiVector:
		most, origin, err := r.longestText()
		if err != nil {
			return err
		}
		for _, s := range []setting[int]{r.queryLength, r.documentLength} {
			if !s.decided() {
				s.set(origin, most)
			}
		}
	case r.sentence == nil && r.modules == nil && r.onnx == nil:
		document = 220
	case r.sentence == nil && r.modules == nil && !r.stanford():
		query, document = 48, 300
	}
	most := r.c.Backbone.MaxPositions
	r.queryLength.otherwise(min(query, most))
	r.documentLength.otherwise(min(document, most))
	r.queryPrompt.otherwise("")
	r.documentPrompt.otherwise("")
	if !r.multiVector { // a prompt and its text are trimmed as one
		r.c.Query.Prompt = strings.TrimLeftFunc(r.c.Query.Prompt, IsSpace)
		r.c.Document.Prompt = strings.TrimLeftFunc(r.c.Document.Prompt, IsSpace)
	}
	r.attend.otherwise(false)
	if s := r.expand; !s.decided() && r.onnx != nil && r.sentence == nil && r.modules == nil && !r.stanford() {
		// The exporter to ONNX writes false whatever the model was trained with.
		s.set(r.name(r.onnx.path), r.onnxSaysExpand)
		if !r.onnxSaysExpand {
			r.warnf("%s says do_query_expansion false, as its exporter always does: if the model was trained with query expansion, "+
				"override it", r.name(r.onnx.path))
		}
	}
	r.expand.otherwise(!r.multiVector)
	if r.multiVector {
		r.c.KeepSpace = true
		r.skip.otherwise(nil)
		r.queryMarker.otherwise(-1)
		r.documentMarker.otherwise(-1)
	}
	r.skip.otherwise(asciiPunctuation())
	if r.origin["document.skip"] == "" {
		r.c.Document.Skip = true
		r.origin["query.skip"], r.origin["document.skip"] = byDefault, byDefault
	}
	for _, m := range []struct {
		to      setting[int32]
		name    string
		missing string
	}{{r.queryMarker, "[Q] ", "queries"}, {r.documentMarker, "[D] ", "documents"}} {
		if m.to.decided() {
			continue
		}
		id, ok := r.token(m.name)
		if !ok {
			err := Faultf(r.dir, m.to.name, ErrConfig, "no file names the marker of %s, and %q is no token", m.missing, m.name)
			return err.decided(m.to.name)
		}
		m.to.set(byDefault, id)
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
