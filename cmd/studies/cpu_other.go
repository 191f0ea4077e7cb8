//go:build !unix

package main

import "time"

// processorTime returns 0: it is unknown on these systems.
func processorTime() time.Duration { return 0 }
