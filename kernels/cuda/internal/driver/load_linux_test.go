//go:build linux && (amd64 || arm64)

package driver

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// What cuLaunchKernelEx reads is laid out as in cuda.h.
func TestLayoutOfLaunchConfig(t *testing.T) {
	var e earlyLaunch
	for name, at := range map[string][2]uintptr{
		"gridDimX": {unsafe.Offsetof(e.grid), 0}, "blockDimX": {unsafe.Offsetof(e.block), 12}, "sharedMemBytes": {unsafe.Offsetof(e.shared), 24},
		"hStream": {unsafe.Offsetof(e.stream), 32}, "attrs": {unsafe.Offsetof(e.attributes), 40}, "numAttrs": {unsafe.Offsetof(e.count), 48},
		"the union of an attribute": {unsafe.Offsetof(e.attribute.value), 8}, "an attribute": {unsafe.Sizeof(e.attribute), 72},
	} {
		require.Equal(t, at[1], at[0], name)
	}
}
