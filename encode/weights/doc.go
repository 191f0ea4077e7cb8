// Package weights reads the tensors of a model from its folder: from
// safetensors, in one file or sharded, or from an ONNX graph that is understood
// as a whole. Numbers of half precision become float32.
//
// Every tensor must have the name and shape that the settings ask for, and be
// finite; a tensor that nobody asks for is an error too, because a model that
// has one is another model.
package weights
