package modeldir

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/vectors/pool"
)

// module is an entry of modules.json.
type module struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

// className returns the name of a class of sentence-transformers or PyLate. "" means a class of another
// package.
func (m *module) className() string {
	root, _, _ := strings.Cut(m.Type, ".")
	if root != "sentence_transformers" && root != "pylate" {
		return ""
	}
	return m.Type[strings.LastIndexByte(m.Type, '.')+1:]
}

// torchActivations and hubActivations are the activations of torch and of transformers by the names of
// their classes, constructed without arguments.
var (
	torchActivations = map[string]string{
		"Identity": "identity", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "Tanh": "tanh",
	}
	hubActivations = map[string]string{
		"GELUActivation": "gelu", "SiLUActivation": "silu",
		"NewGELUActivation": "gelu_tanh", "GELUTanh": "gelu_tanh", "PytorchGELUTanh": "gelu_tanh",
	}
)

// activationByClass returns the activation of a class. "" means that it is unknown. The packages store only
// the name of the class, so that all of them read an approximate GELU as an exact one.
func activationByClass(class string) string {
	name := class[strings.LastIndexByte(class, '.')+1:]
	switch {
	case strings.HasPrefix(class, "torch.nn."):
		return torchActivations[name]
	case strings.HasPrefix(class, "transformers.activations."):
		return hubActivations[name]
	}
	return ""
}

// argumentKeys are the keys of the arguments that sentence-transformers passes to the classes of
// transformers, by their older and newer names. harmlessArguments are the arguments that do not change
// vectors.
var (
	argumentKeys = []string{
		"model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs",
	}
	harmlessArguments = []string{
		"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "use_cache",
	}
)

// checkArguments returns an error for arguments that override config.json or the tokenizer's files.
func (r *reader) checkArguments() error {
	for _, name := range argumentKeys {
		o, err := r.sentenceBert.objectValue(name)
		if err != nil || o == nil {
			if err != nil {
				return err
			}
			continue
		}
		for _, key := range sortedKeys(o.m) {
			if !slices.Contains(harmlessArguments, key) {
				return o.errorf(key, ErrFamily, "is not supported here, where it goes before the files of its class: "+
					"write it there")
			}
		}
	}
	return nil
}

// checkTransformer returns an error for a Transformer of version 6 that returns vectors of another layer
// than the last, or that prepares texts for its tokenizer.
func (r *reader) checkTransformer() error {
	f := r.sentenceBert
	if err := r.checkArguments(); err != nil || f == nil || !r.multiVector {
		return err
	}
	tasks := []string{"feature-extraction", "fill-mask"}
	if task, ok, err := f.stringValue("transformer_task"); err != nil || ok && !slices.Contains(tasks, task) {
		return firstError(err, f.errorf("transformer_task", ErrFamily, "is %q, want %s", task, tasks[0]))
	}
	if name, ok, err := f.stringValue("module_output_name"); err != nil || ok && name != "token_embeddings" {
		return firstError(err, f.errorf("module_output_name", ErrFamily, "is %q, want token_embeddings", name))
	}
	if kwargs, err := f.objectValue("processing_kwargs"); err != nil {
		return err
	} else if kwargs != nil {
		for _, key := range sortedKeys(kwargs.m) {
			if o, err := kwargs.objectValue(key); err != nil || o != nil && len(o.m) > 0 {
				value := abbreviate(kwargs.rawValue(key))
				return firstError(err, kwargs.errorf(key, ErrFamily, "is %s, want none", value))
			}
		}
	}
	kinds, err := f.objectValue("modality_config")
	if err != nil || kinds == nil {
		return err
	}
	if kinds.hasKey("message") {
		return kinds.errorf("message", ErrFamily, "texts would go through a template of chats")
	}
	text, err := kinds.objectValue("text")
	if err != nil {
		return err
	}
	if name, _, err := text.stringValue("method_output_name"); err != nil || name != "last_hidden_state" {
		return firstError(err,
			kinds.errorf("text", ErrFamily, "has method_output_name %q, want last_hidden_state", name))
	}
	return nil
}

// readMask reads the settings of a MultiVectorMask, which drops vectors.
func (r *reader) readMask(folder string) error {
	f, err := r.open(filepath.Join(folder, "config.json"))
	if err != nil || f == nil {
		return err
	}
	keep, _, err := decodeValue[[]int32](f, "keep_only_token_ids", "a list of ids")
	if err != nil {
		return err
	}
	if r.c.Keep = keep; len(keep) > 0 {
		r.origin["keep"] = r.relativePath(f.path)
	}
	if r.override.Skip == nil {
		list, _, err := stringList(f, "skiplist_words")
		if err != nil {
			return err
		}
		r.skip.set(r.relativePath(f.path), list)
	}
	tasks, ok, err := readTasks(f, "skiplist_tasks")
	if err != nil || !ok {
		return err
	}
	r.origin["query.skip"], r.origin["document.skip"] = r.relativePath(f.path), r.relativePath(f.path)
	for _, task := range tasks {
		switch task {
		case "query":
			r.c.Query.Skip = true
		case "document":
			r.c.Document.Skip = true
		default:
			r.warnf("%s: skiplist_tasks has %q, which is neither query nor document: ignored",
				r.relativePath(f.path), task)
		}
	}
	return nil
}

// readTasks reads a list of tasks, or a single task.
func readTasks(f *file, key string) ([]string, bool, error) {
	if task, ok, err := f.stringValue(key); err == nil && ok {
		return []string{task}, true, nil
	}
	return stringList(f, key)
}

// readNormalize returns an error for a Normalize that does not scale the vectors of tokens.
func (r *reader) readNormalize(folder string) error {
	path := filepath.Join(folder, "config.json")
	f, err := r.open(path)
	if err != nil || !r.multiVector { // PyLate scales vectors even without the module
		return err
	}
	if f == nil {
		f = &file{path: path}
	}
	for _, key := range []string{"module_input_name", "module_output_name"} {
		name, ok, err := f.stringValue(key)
		switch {
		case err != nil:
			return err
		case !ok && key == "module_input_name":
			return f.errorf(key, ErrFamily, "is missing, want token_embeddings")
		case ok && name != "token_embeddings":
			return f.errorf(key, ErrFamily, "is %q, want token_embeddings", name)
		}
	}
	return nil
}

// readPooling reads the settings of a HierarchicalTokenPooling. Defaults are those of its class.
func (r *reader) readPooling(folder string) error {
	f, err := r.open(filepath.Join(folder, "config.json"))
	if err != nil || f == nil {
		return err
	}
	h := &pool.Hierarchy{Factor: 1, Protected: 1}
	factor, ok, err := f.floatValue("pool_factor")
	if err != nil {
		return err
	}
	if ok {
		if !(factor >= 1 && factor <= maxSize) {
			return f.errorf("pool_factor", ErrConfig, "is %s, want a number from 1 on",
				abbreviate(f.rawValue("pool_factor")))
		}
		h.Factor = factor
	}
	if n, ok, err := f.intValue("num_protected_tokens", 0); err != nil {
		return err
	} else if ok {
		h.Protected = n
	}
	if h.Unit, err = withDefault(false)(f.boolValue("normalize_embeddings")); err != nil {
		return err
	}
	tasks, ok, err := readTasks(f, "tasks")
	if err != nil {
		return err
	}
	if ok && (len(tasks) != 1 || tasks[0] != "document") {
		return f.errorf("tasks", ErrFamily, "is %s, want the task document alone", abbreviate(f.rawValue("tasks")))
	}
	if h.Factor > 1 {
		r.c.Pooling, r.origin["pooling"] = h, r.relativePath(f.path)
	}
	return nil
}
