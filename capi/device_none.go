//go:build !linux || !(amd64 || arm64) || nocuda

package main

// #include "plaid_maxsim.h"
import "C"

// errNoKernels is the error of calls on a GPU.
var errNoKernels = &codedError{C.PLAID_ERR_DEVICE, "this library was built without kernels for GPUs"}

func deviceScore(*work, *cScore) error                      { return errNoKernels }
func deviceGradients(*work, *cGradient) error               { return errNoKernels }
func deviceChamfer(*work, *cChamfer) error                  { return errNoKernels }
func deviceChamferGradients(*work, *cChamferGradient) error { return errNoKernels }
func deviceHead(*work, *cHead) error                        { return errNoKernels }
