// Package onnxruntime runs graphs of token vectors by the library onnxruntime,
// which is loaded while the program runs, without cgo.
//
// The library is the one that [Options.Library] or $PLAID_ONNXRUNTIME names; it
// is not searched for. A graph has the inputs input_ids and attention_mask, and
// maybe token_type_ids, of shape [texts, ids], and an output of shape
// [texts, ids, dimensions].
//
// The build tag noonnxruntime leaves the package empty: every call of Open is an
// [engine.ErrNotBuiltIn] then, as on platforms other than Linux and macOS.
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

// ErrGraph: the graph is damaged, or not one of token vectors.
var ErrGraph = errors.New("unusable graph")

// ErrClosed: the model was closed.
var ErrClosed = errors.New("onnxruntime: model is closed")

// wanted are the versions that can be used: functions up to API version 12 are
// called, and later versions have them all.
const (
	apiVersion = 12
	wanted     = "1.12 or later"
)

// Options of Open.
type Options struct {
	// Library is the path of libonnxruntime; "": that of $PLAID_ONNXRUNTIME.
	Library string
	Logger  *slog.Logger // nil: silent
}

// batchTokens is how many ids a batch has at most, with padding, unless one text alone has
// more. This many are the fastest: more no longer fit the caches, and pad more.
const batchTokens = 512

// chunkBatches is how many batches' worth of texts are sorted by length together.
const chunkBatches = 16

// library is the path of the library. The loader of the system would look for a
// bare name in its own folders, so the path is made absolute.
func library(named string) (string, error) {
	path := cmp.Or(named, os.Getenv(EnvLibrary))
	if path == "" {
		return "", &engine.LibraryError{Wanted: wanted, Err: fmt.Errorf("none is named, by the option or %s", EnvLibrary)}
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
