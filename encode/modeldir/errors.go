// Package modeldir reads the settings of a late-interaction model from the
// folder that it was published in.
//
// It reads three kinds of folders, and mixtures of them: those of PyLate and of
// sentence-transformers (config_sentence_transformers.json, modules.json), those
// of Stanford's ColBERT (artifact.metadata, or a section "colbert" in
// config.json), and exports to ONNX (onnx_config.json). [Read] reads the files in
// this order; later files fill gaps. If two files have different values
// that would lead to different vectors, the error names both, unless
// an [Override] decides. [Config.Origin] names the source of each value.
package modeldir

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/encode/tokenizer"
)

// Errors of model folders. Test for them with errors.Is.
var (
	// ErrIncomplete reports missing files. The error names all of them.
	ErrIncomplete = errors.New("model folder is incomplete")
	// ErrContradiction reports two files with values that would lead to different vectors.
	ErrContradiction = errors.New("files contradict each other")
	// ErrConfig reports a damaged file, or a value of the wrong kind or size.
	ErrConfig = errors.New("unusable configuration")
	// ErrFamily reports a model or a setting that is not supported.
	ErrFamily = errors.New("kind of model is not supported")
	// ErrTokenizer reports a tokenizer.json that cannot be read, or lacks a required token.
	ErrTokenizer = errors.New("unusable tokenizer")
	// ErrWeights reports a tensor that is missing, unexpected, of another shape or not finite.
	ErrWeights = errors.New("unusable weights")
	// ErrGraph reports an ONNX graph that onnxruntime cannot use.
	ErrGraph = errors.New("graph cannot be run")
)

// ModelError is an error of a model folder, with its place.
type ModelError struct {
	Path  string // the file, or the folder
	Field string // the value, tensor or node in the file. "" means the whole file
	Err   error
	// Setting is the key of [Override] that sets the value instead of the files. "" means that no
	// key does.
	Setting string
}

// Error reads like: m/config.json: hidden_size: unusable configuration: is "x", want a whole number.
func (e *ModelError) Error() string {
	s := e.Path + ": "
	if e.Field != "" {
		s += e.Field + ": "
	}
	return s + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ModelError) Unwrap() error { return e.Err }

// LengthError reports a length of texts, set by an [Override], that the model does not support.
type LengthError struct{ Length, Min, Max int }

// Error reads like: 100000: the model takes 512 at most.
func (e *LengthError) Error() string {
	if e.Length < e.Min {
		return fmt.Sprintf("%d: %d are the least", e.Length, e.Min)
	}
	return fmt.Sprintf("%d: the model takes %d at most", e.Length, e.Max)
}

// Unwrap returns ErrConfig.
func (e *LengthError) Unwrap() error { return ErrConfig }

// Errorf returns a [ModelError] that wraps kind, an error of this package.
func Errorf(path, field string, kind error, format string, args ...any) *ModelError {
	return &ModelError{Path: path, Field: field, Err: fmt.Errorf("%w: %w", kind, fmt.Errorf(format, args...))}
}

// maxMissing limits the missing files that an error names.
const maxMissing = 20

// incompleteError returns the error of missing files, with their paths relative to the folder.
func incompleteError(dir string, missing []string) error {
	var names []string
	unnamed := ""
	for i, m := range missing {
		if i == maxMissing {
			unnamed = fmt.Sprintf(", and %d more", len(missing)-i)
			break
		}
		if rel, err := filepath.Rel(dir, m); err == nil {
			m = filepath.ToSlash(rel)
		}
		names = append(names, m)
	}
	return Errorf(dir, "", ErrIncomplete, "there is no %s%s", strings.Join(names, ", no "), unnamed)
}

// withSetting sets the key of [Override] that sets a value. The dimension has no such key.
func (e *ModelError) withSetting(name string) *ModelError {
	if name != "dim" {
		e.Setting = strings.ReplaceAll(name, ".", "_")
	}
	return e
}

// tokenizerError wraps the error of a tokenizer in ErrTokenizer, without its path, which ModelError
// names.
func tokenizerError(err error) error {
	if err == nil {
		return nil
	}
	var te *tokenizer.Error
	if errors.As(err, &te) {
		bare := *te
		bare.Path = ""
		err = &bare
	}
	return fmt.Errorf("%w: %w", ErrTokenizer, err)
}
