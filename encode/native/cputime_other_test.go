//go:build !linux

package native

import "time"

var started = time.Now()

// cpuTime is the time since the program began.
func cpuTime() time.Duration { return time.Since(started) }
