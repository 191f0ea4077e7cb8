//go:build !linux || (!amd64 && !arm64)

package driver

import (
	"fmt"
	"runtime"
)

// Load returns the functions of the CUDA driver. On this platform it always
// fails with [ErrNoDriver].
func Load() (*API, error) {
	return nil, fmt.Errorf("%w on %s/%s", ErrNoDriver, runtime.GOOS, runtime.GOARCH)
}
