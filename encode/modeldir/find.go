package modeldir

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// findPath returns the path of a file of the transformer: in the folder that
// modules.json names, if it exists there, or else in the model's folder.
func (r *reader) findPath(name string) string {
	if path := filepath.Join(r.transformer, name); r.transformer == r.dir || r.exists(path) {
		return path
	}
	return filepath.Join(r.dir, name)
}

// findFiles finds the tokenizer and the weights. Its error names all files that are missing.
func (r *reader) findFiles() error {
	// The settings and the tokenizer.
	var missing []string
	if path := r.findPath("config.json"); !r.exists(path) && r.graphs == nil {
		missing = append(missing, path)
	}
	r.tokenizerPath = r.findPath("tokenizer.json")
	if path := r.tokenizerPath; !r.exists(path) {
		form, err := r.findOlderForm()
		if err != nil {
			return err
		}
		if r.olderTokenizer = form; form != nil {
			r.tokenizerPath = r.findPath(form.files[0])
		}
	}
	if path := r.tokenizerPath; r.olderTokenizer == nil && !r.exists(path) {
		older := slices.IndexFunc(olderTokenizers, func(name string) bool { return r.exists(r.findPath(name)) })
		if older >= 0 {
			path += fmt.Sprintf(" (%s is the tokenizer's older form: transformers' "+
				"AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes the file)", olderTokenizers[older])
		}
		missing = append(missing, path)
	}
	if r.sentence == nil && r.modules == nil && !r.isStanford() && r.onnx == nil {
		missing = append(missing, filepath.Join(r.dir, "config_sentence_transformers.json or artifact.metadata "+
			"or onnx_config.json (one of which says how a late-interaction model treats texts)"))
	}
	// The graph, or the weights.
	if r.graphs != nil {
		graph, err := r.graphFiles()
		if err != nil {
			return err
		}
		if missing = append(missing, graph...); missing != nil {
			return incompleteError(r.dir, missing)
		}
		return nil
	}
	for _, d := range r.c.Dense {
		if !r.exists(d.Path) {
			missing = append(missing, d.Path)
		}
	}
	if err := r.findWeights(); err != nil {
		return err
	}
	if r.c.Weights == nil {
		wanted := r.findPath(weightFiles[0]) + " or " + weightFiles[1]
		if r.exists(r.findPath("model.onnx")) || r.exists(r.findPath("onnx/model.onnx")) {
			wanted += " (the folder has a graph, which the backend onnxruntime runs)"
		}
		missing = append(missing, wanted)
	}
	for _, path := range r.c.Weights {
		if !r.exists(path) {
			missing = append(missing, path)
		}
	}
	if missing != nil {
		return incompleteError(r.dir, missing)
	}
	// The files must not be pointers of git-lfs.
	paths := append([]string{r.tokenizerPath}, r.c.Weights...)
	for _, d := range r.c.Dense {
		paths = append(paths, d.Path)
	}
	for _, path := range paths {
		if r.source == nil && isPointer(path) {
			return Errorf(path, "", ErrIncomplete,
				"is a pointer of git-lfs in the place of the file, which git lfs pull fetches")
		}
	}
	return nil
}

// isPointer reports whether a file is a pointer of git-lfs to a large file. It returns false for a file
// that cannot be read: opening it later reports why.
func isPointer(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	const begin = "version https://git-lfs"
	head := make([]byte, len(begin))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == begin
}

// olderTokenizers are the names of tokenizers' files before tokenizer.json.
var olderTokenizers = []string{
	"vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model",
}

// weightFiles are the names of files with tensors. The first that exists is read.
var weightFiles = []string{"model.safetensors", "pytorch_model.bin"}

// findWeights sets the files of the backbone's tensors: one file, its shards, or none if they do not
// exist.
func (r *reader) findWeights() (err error) {
	for _, name := range weightFiles {
		file, index := r.findPath(name), r.findPath(name+".index.json")
		switch {
		case r.exists(file):
			r.c.Weights = []string{file}
		case r.exists(index):
			r.c.Weights, err = r.readShards(index, filepath.Ext(name))
		default:
			continue
		}
		return err
	}
	return nil
}

// isStanford reports whether the folder is one of Stanford's ColBERT.
func (r *reader) isStanford() bool {
	if r.artifact != nil || r.config.rawValue("colbert") != nil {
		return true
	}
	names, _, _ := decodeValue[[]string](r.config, "architectures", "a list")
	return slices.Contains(names, "HF_ColBERT")
}
