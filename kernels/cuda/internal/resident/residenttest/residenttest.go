// Package residenttest writes vectors to a fake device, for tests of the packages that read them.
package residenttest

import (
	"context"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver/drivertest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// gatherParams are the parameters of the kernel, as in package resident, which does not export them.
type gatherParams struct {
	in, numbers, out driver.Ptr
	n, rowBytes      uint32
}

// Gather is the kernel gather_rows in Go.
func Gather(f *drivertest.Fake, l *driver.Launch) {
	p := (*gatherParams)(l.Args)
	if l.ArgBytes != unsafe.Sizeof(*p) || l.Grid.X*8 < p.n || l.Block.X != 256 {
		panic("the launch does not fit its rows")
	}
	size := int(p.rowBytes)
	out := drivertest.Slice[byte](f, p.out, int(p.n)*size)
	for i, r := range drivertest.Slice[uint32](f, p.numbers, int(p.n)) {
		copy(out[i*size:(i+1)*size], drivertest.Slice[byte](f, p.in+driver.Ptr(int(r)*size), size))
	}
}

// WriteHalves writes vectors of half precision from number first on, as an encoder does.
func WriteHalves(ctx context.Context, d *runtime.Device, v *resident.Vectors, first int, halves []byte) error {
	return d.Call(ctx, func(rt *runtime.Runtime) error {
		if err := v.Grow(first + len(halves)/(2*v.Dim())); err != nil {
			return err
		}
		if err := rt.Driver.ToDevice(v.RowPtr(first), halves, rt.Stream); err != nil {
			return err
		}
		return rt.Sync()
	})
}
