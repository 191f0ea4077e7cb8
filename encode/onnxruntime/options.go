// Package onnxruntime runs graphs of token vectors with the library onnxruntime,
// which it loads at run time, without cgo.
//
// The library is the one that [Options.Library] or $PLAID_ONNXRUNTIME names; the package
// does not search for it. A graph has the inputs input_ids and attention_mask, and
// possibly token_type_ids, of shape [texts, ids], and an output of shape
// [texts, ids, dimensions].
//
// With the build tag noonnxruntime, and on platforms other than Linux and macOS, the package is
// empty: every call of Open returns an [engine.ErrNotBuiltIn].
package onnxruntime

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/plaid-ir/plaid/encode/engine"
)

// EnvLibrary is the environment variable with the path of the library.
const EnvLibrary = "PLAID_ONNXRUNTIME"

// ErrGraph reports a graph that is damaged, or does not compute token vectors.
var ErrGraph = errors.New("unusable graph")

// ErrClosed reports a call after Close.
var ErrClosed = errors.New("onnxruntime: model is closed")

// wanted names the supported versions: the package calls functions up to API version 12,
// which later versions have too.
const (
	apiVersion = 12
	wanted     = "1.12 or later"
)

// Options of Open.
type Options struct {
	// Library is the path of libonnxruntime. "" means that of $PLAID_ONNXRUNTIME.
	Library string
	// Logger may be nil, which means silence.
	Logger *slog.Logger
}

// batchTokens is the maximum of ids in a batch, including padding, unless one text has
// more. This size is the fastest: larger batches do not fit into the caches, and have more padding.
const batchTokens = 512

// chunkBatches is the number of batches whose texts are sorted by length together.
const chunkBatches = 16

// libraryPath returns the absolute path of the library. The loader of the system would look for a
// bare name in its own folders.
func libraryPath(named string) (string, error) {
	path := cmp.Or(named, os.Getenv(EnvLibrary))
	if path == "" {
		err := fmt.Errorf("none is named, by the option or %s", EnvLibrary)
		return "", &engine.LibraryError{Wanted: wanted, Err: err}
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = errors.New("is a folder, want the file libonnxruntime")
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return "", &engine.LibraryError{Path: path, Wanted: wanted, Err: err}
	}
	return path, nil
}
