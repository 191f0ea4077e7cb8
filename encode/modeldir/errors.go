// Package modeldir reads the settings of a late-interaction model from the
// folder that it was published in.
//
// Three kinds of folders are read, and mixtures of them: those of PyLate and of
// sentence-transformers (config_sentence_transformers.json, modules.json), those
// of Stanford's ColBERT (artifact.metadata, or a section "colbert" in
// config.json), and exports to ONNX (onnx_config.json). [Read] takes the files in
// this order; a later one fills gaps. Where two of them say different things
// that would give different vectors, that is an error which names both, unless
// an [Override] decides. [Config.Origin] tells where each value comes from.
package modeldir

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/encode/tokenizer"
)

// Errors of model folders; test with errors.Is.
var (
	// ErrIncomplete: files are missing. The error names all of them.
	ErrIncomplete = errors.New("model folder is incomplete")
	// ErrContradiction: two files say different things that would give different vectors.
	ErrContradiction = errors.New("files contradict each other")
	// ErrConfig: a file is damaged, or has a value of the wrong kind or size.
	ErrConfig = errors.New("unusable configuration")
	// ErrFamily: a model of a kind that is not computed here.
	ErrFamily = errors.New("kind of model is not supported")
	// ErrTokenizer: tokenizer.json is not understood, or lacks a token that is needed.
	ErrTokenizer = errors.New("unusable tokenizer")
	// ErrWeights: a tensor is missing, too many, of another shape or not finite.
	ErrWeights = errors.New("unusable weights")
	// ErrGraph: onnxruntime cannot use the ONNX graph.
	ErrGraph = errors.New("graph cannot be run")
)

// ModelError names the place of a fault of a model folder.
type ModelError struct {
	Path  string // the file, or the folder
	Field string // the value, tensor or node within it; "" for the whole
	Err   error
	// Setting is the key of an [Override] that decides in the place of the files; "": none does.
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

// Unwrap gives the cause.
func (e *ModelError) Unwrap() error { return e.Err }

// LengthError is a length of texts, asked for in the place of a folder's, that a model does not take.
type LengthError struct{ Length, Least, Most int }

// Error reads like: 100000: the model takes 512 at most.
func (e *LengthError) Error() string {
	if e.Length < e.Least {
		return fmt.Sprintf("%d: %d are the least", e.Length, e.Least)
	}
	return fmt.Sprintf("%d: the model takes %d at most", e.Length, e.Most)
}

// Unwrap gives the kind.
func (e *LengthError) Unwrap() error { return ErrConfig }

// Faultf is a fault of one of the kinds of this package.
func Faultf(path, field string, kind error, format string, args ...any) *ModelError {
	return &ModelError{Path: path, Field: field, Err: fmt.Errorf("%w: %w", kind, fmt.Errorf(format, args...))}
}

// mostMissing bounds the files that an error names.
const mostMissing = 20

// incomplete lists what is missing, relative to the folder.
func incomplete(dir string, missing []string) error {
	var names []string
	more := ""
	for i, m := range missing {
		if i == mostMissing {
			more = fmt.Sprintf(", and %d more", len(missing)-i)
			break
		}
		if rel, err := filepath.Rel(dir, m); err == nil {
			m = filepath.ToSlash(rel)
		}
		names = append(names, m)
	}
	return Faultf(dir, "", ErrIncomplete, "there is no %s%s", strings.Join(names, ", no "), more)
}

// decided adds the key of an [Override] that decides the setting of a name, if there is one.
func (e *ModelError) decided(name string) *ModelError {
	if name != "dim" {
		e.Setting = strings.ReplaceAll(name, ".", "_")
	}
	return e
}

// unpath drops the path of a tokenizer's error, which ModelError names, and
// marks it as one of this package.
func unpath(err error) error {
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
