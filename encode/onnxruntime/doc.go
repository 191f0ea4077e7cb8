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
