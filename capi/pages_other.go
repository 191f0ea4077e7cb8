//go:build !linux

package main

import "unsafe"

// useLargePages does nothing on this system.
func useLargePages(unsafe.Pointer, int) {}
