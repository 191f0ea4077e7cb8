//go:build !linux

package drivertest

import "errors"

// threadID returns 0 on this platform, so that the thread of a call is not checked.
func threadID() int { return 0 }

// mapGuarded is not supported on this platform.
func mapGuarded(int) (b []byte, free func(), err error) {
	return nil, nil, errors.ErrUnsupported
}
