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
