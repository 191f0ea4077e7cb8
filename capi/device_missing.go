//go:build linux && (amd64 || arm64) && !nocuda

package main

// #include "plaid_maxsim.h"
import "C"

import "github.com/plaid-ir/plaid/kernels/cuda/tensor"

var errNotThere = &fault{C.PLAID_ERR_UNSUPPORTED, "not there yet on memory of a GPU"}

func missing(w *work) error {
	return onDevice(w, func(*tensor.Device) error { return errNotThere }, func(*tensor.Device) (int64, error) { return 0, errNotThere })
}

func deviceHead(w *work, _ *cHead) error { return missing(w) }
