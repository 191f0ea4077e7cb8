//go:build !linux || !amd64

package main

import (
	"errors"
	"time"
)

// hidden cannot be had here.
func hidden(func() error) error { return errors.New("CPUID can be hidden on linux/amd64 alone") }

var start = time.Now()

// used is the time of the clock in seconds, where that of the processor is not known.
func used() float64 { return time.Since(start).Seconds() }
