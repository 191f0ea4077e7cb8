// Package weights reads the tensors of a model from its folder: from safetensors, in
// one file or sharded. Numbers of half precision become float32.
//
// Every tensor must have the name and shape that the settings ask for, and be
// finite; a tensor that is not asked for is an error too, because a model that
// has one is another model.
package weights
