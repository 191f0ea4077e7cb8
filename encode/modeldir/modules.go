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

// kind is the name of a class of sentence-transformers or PyLate; "" stands for other packages' classes.
func (m *module) kind() string {
	root, _, _ := strings.Cut(m.Type, ".")
	if root != "sentence_transformers" && root != "pylate" {
		return ""
	}
	return m.Type[strings.LastIndexByte(m.Type, '.')+1:]
}

// torchActivations and hubActivations are those of torch and of transformers by the names of their
// classes, made without arguments.
var (
	torchActivations = map[string]string{
		"Identity": "identity", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "Tanh": "tanh",
	}
	hubActivations = map[string]string{
		"GELUActivation": "gelu", "SiLUActivation": "silu",
		"NewGELUActivation": "gelu_tanh", "GELUTanh": "gelu_tanh", "PytorchGELUTanh": "gelu_tanh",
	}
)

// activationOf is the activation of a class, "" of an unknown one. The packages keep the name of the
// class alone, so that a GELU that was made approximate is read as an exact one by all of them.
func activationOf(class string) string {
	name := class[strings.LastIndexByte(class, '.')+1:]
	switch {
	case strings.HasPrefix(class, "torch.nn."):
		return torchActivations[name]
	case strings.HasPrefix(class, "transformers.activations."):
		return hubActivations[name]
	}
	return ""
}

// argumentKeys are those of arguments that sentence-transformers gives to the classes of transformers, by
// their older and newer names, and harmlessArguments those that leave vectors as they are.
var (
	argumentKeys = []string{
		"model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs",
	}
	harmlessArguments = []string{
		"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "use_cache",
	}
)

// checkArguments refuses arguments that override config.json and the tokenizer's files.
func (r *reader) checkArguments() error {
	for _, name := range argumentKeys {
		o, err := r.bert.object(name)
		if err != nil || o == nil {
			if err != nil {
				return err
			}
			continue
		}
		for _, key := range sortedKeys(o.m) {
			if !slices.Contains(harmlessArguments, key) {
				return o.faultf(key, ErrFamily, "is not supported here, where it goes before the files of its class: "+
					"write it there")
			}
		}
	}
	return nil
}

// checkTransformer refuses a Transformer of version 6 that gives other vectors than those of the last
// layer, or gives texts to its tokenizer in a way of its own.
func (r *reader) checkTransformer() error {
	f := r.bert
	if err := r.checkArguments(); err != nil || f == nil || !r.multiVector {
		return err
	}
	tasks := []string{"feature-extraction", "fill-mask"}
	if task, ok, err := f.text("transformer_task"); err != nil || ok && !slices.Contains(tasks, task) {
		return firstError(err, f.faultf("transformer_task", ErrFamily, "is %q, want %s", task, tasks[0]))
	}
	if name, ok, err := f.text("module_output_name"); err != nil || ok && name != "token_embeddings" {
		return firstError(err, f.faultf("module_output_name", ErrFamily, "is %q, want token_embeddings", name))
	}
	if kwargs, err := f.object("processing_kwargs"); err != nil {
		return err
	} else if kwargs != nil {
		for _, key := range sortedKeys(kwargs.m) {
			if o, err := kwargs.object(key); err != nil || o != nil && len(o.m) > 0 {
				return firstError(err, kwargs.faultf(key, ErrFamily, "is %s, want none", shown(kwargs.raw(key))))
			}
		}
	}
	kinds, err := f.object("modality_config")
	if err != nil || kinds == nil {
		return err
	}
	if kinds.has("message") {
		return kinds.faultf("message", ErrFamily, "texts would go through a template of chats")
	}
	text, err := kinds.object("text")
	if err != nil {
		return err
	}
	if name, _, err := text.text("method_output_name"); err != nil || name != "last_hidden_state" {
		return firstError(err,
			kinds.faultf("text", ErrFamily, "has method_output_name %q, want last_hidden_state", name))
	}
	return nil
}

// readMask reads which vectors a MultiVectorMask drops.
func (r *reader) readMask(folder string) error {
	f, err := r.open(filepath.Join(folder, "config.json"))
	if err != nil || f == nil {
		return err
	}
	keep, _, err := value[[]int32](f, "keep_only_token_ids", "a list of ids")
	if err != nil {
		return err
	}
	if r.c.Keep = keep; len(keep) > 0 {
		r.origin["keep"] = r.name(f.path)
	}
	if r.o.Skip == nil {
		list, _, err := words(f, "skiplist_words")
		if err != nil {
			return err
		}
		r.skip.set(r.name(f.path), list)
	}
	tasks, ok, err := tasksOf(f, "skiplist_tasks")
	if err != nil || !ok {
		return err
	}
	r.origin["query.skip"], r.origin["document.skip"] = r.name(f.path), r.name(f.path)
	for _, task := range tasks {
		switch task {
		case "query":
			r.c.Query.Skip = true
		case "document":
			r.c.Document.Skip = true
		default:
			r.warnf("%s: skiplist_tasks has %q, which is neither query nor document: ignored", r.name(f.path), task)
		}
	}
	return nil
}

// tasksOf reads a list of tasks, or one of them.
func tasksOf(f *file, key string) ([]string, bool, error) {
	if task, ok, err := f.text(key); err == nil && ok {
		return []string{task}, true, nil
	}
	return words(f, key)
}

// readNormalize refuses a Normalize that does not scale the vectors of tokens.
func (r *reader) readNormalize(folder string) error {
	path := filepath.Join(folder, "config.json")
	f, err := r.open(path)
	if err != nil || !r.multiVector { // PyLate scales vectors whatever modules there are
		return err
	}
	if f == nil {
		f = &file{path: path}
	}
	for _, key := range []string{"module_input_name", "module_output_name"} {
		name, ok, err := f.text(key)
		switch {
		case err != nil:
			return err
		case !ok && key == "module_input_name":
			return f.faultf(key, ErrFamily, "is missing, want token_embeddings")
		case ok && name != "token_embeddings":
			return f.faultf(key, ErrFamily, "is %q, want token_embeddings", name)
		}
	}
	return nil
}

// readPooling reads how a HierarchicalTokenPooling pools. Absent values are those of its class.
func (r *reader) readPooling(folder string) error {
	f, err := r.open(filepath.Join(folder, "config.json"))
	if err != nil || f == nil {
		return err
	}
	h := &pool.Hierarchy{Factor: 1, Protected: 1}
	factor, ok, err := f.float("pool_factor")
	if err != nil {
		return err
	}
	if ok {
		if !(factor >= 1 && factor <= maxSize) {
			return f.faultf("pool_factor", ErrConfig, "is %s, want a number from 1 on", shown(f.raw("pool_factor")))
		}
		h.Factor = factor
	}
	if n, ok, err := f.int("num_protected_tokens", 0); err != nil {
		return err
	} else if ok {
		h.Protected = n
	}
	if h.Unit, err = orElse(false)(f.bool("normalize_embeddings")); err != nil {
		return err
	}
	tasks, ok, err := tasksOf(f, "tasks")
	if err != nil {
		return err
	}
	if ok && (len(tasks) != 1 || tasks[0] != "document") {
		return f.faultf("tasks", ErrFamily, "is %s, want the task document alone", shown(f.raw("tasks")))
	}
	if h.Factor > 1 {
		r.c.Pooling, r.origin["pooling"] = h, r.name(f.path)
	}
	return nil
}
