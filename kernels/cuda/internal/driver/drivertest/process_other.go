//go:build !linux

package drivertest

import "errors"

// thread is not known here, so that the thread of a call is not checked.
func thread() int { return 0 }

func mapped(int) (b []byte, free func(), err error) {
	return nil, nil, errors.ErrUnsupported
}
