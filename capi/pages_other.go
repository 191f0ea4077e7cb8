//go:build !linux

package main

import "unsafe"

// useLargePages does nothing: pages are the system's own matter.
func useLargePages(unsafe.Pointer, int) {}
