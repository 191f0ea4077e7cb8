package main

// #include "plaid_maxsim.h"
import "C"

// errNoDevice is for calls on a GPU of a library that has no kernels for one.
var errNoDevice = &fault{C.PLAID_ERR_DEVICE, "this library was built without kernels for GPUs"}

func deviceScore(*work, *cScore) error                      { return errNoDevice }
func deviceGradients(*work, *cGradient) error               { return errNoDevice }
func deviceChamfer(*work, *cChamfer) error                  { return errNoDevice }
func deviceChamferGradients(*work, *cChamferGradient) error { return errNoDevice }
func deviceHead(*work, *cHead) error                        { return errNoDevice }
