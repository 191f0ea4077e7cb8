package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// kernelSet is the loaded device code of one device.
type kernelSet struct {
	mod    driver.Module
	arch   string
	fn     map[string]driver.Function
	shared map[string]int
	occ    map[occupied]int
}

type occupied struct {
	kernel          string
	threads, shared int
}

func (k *kernelSet) load(c *driver.Context, props *driver.Info, modules fs.FS) error {
	name, err := imageFor(modules, props.Major, props.Minor)
	if err != nil {
		return err
	}
	image, err := readImage(modules, name)
	if err != nil {
		return err
	}
	*k = kernelSet{arch: archOf(name), fn: map[string]driver.Function{}, shared: map[string]int{}, occ: map[occupied]int{}}
	if k.mod, err = c.LoadModule(image); err != nil {
		if errors.Is(err, driver.ErrDriverTooOld) {
			return fmt.Errorf("%w: %s needs CUDA %s or newer, the driver knows %s: %w",
				driver.ErrDriverTooOld, name, driver.Version(driver.MinVersion), props.Driver, err)
		}
		return fmt.Errorf("loading %s: %w", name, err)
	}
	return nil
}

func (k *kernelSet) unload(c *driver.Context) error { return c.FreeModule(k.mod) }

// Arch is the architecture that the device code is for, such as "80" or "90a".
func (rt *Runtime) Arch() string { return rt.kernels.arch }

// kernel finds a kernel, once, and allows it the shared memory.
func (rt *Runtime) kernel(name string, shared int) (driver.Function, error) {
	k := &rt.kernels
	f, ok := k.fn[name]
	if ok && shared <= k.shared[name] {
		return f, nil
	}
	if shared > rt.Props.Shared {
		return f, fmt.Errorf("%w: %s needs %d bytes of shared memory, a block may have %d", driver.ErrUnsupported, name, shared, rt.Props.Shared)
	}
	f, err := rt.Driver.Function(k.mod, name, shared)
	if err == nil {
		k.fn[name], k.shared[name] = f, shared
	}
	return f, err
}

// Launch starts a kernel on Stream, with the parameters in args: a struct as in
// the sources of the device code, on the heap. An empty grid is nothing to do.
func Launch[T any](rt *Runtime, name string, gx, gy, gz, block, shared int, args *T) error {
	if gx == 0 || gy == 0 || gz == 0 {
		return nil
	}
	f, err := rt.kernel(name, shared)
	if err != nil {
		return err
	}
	return rt.Driver.Launch(f, driver.Dim3{X: uint32(gx), Y: uint32(gy), Z: uint32(gz)}, driver.Dim3{X: uint32(block), Y: 1, Z: 1},
		shared, rt.Stream, unsafe.Pointer(args), unsafe.Sizeof(*args))
}

// FillingBlocks is how many blocks of a kernel fill the device.
func (rt *Runtime) FillingBlocks(name string, threads, shared int) (int, error) {
	key := occupied{name, threads, shared}
	if n, ok := rt.kernels.occ[key]; ok {
		return n, nil
	}
	f, err := rt.kernel(name, shared)
	if err != nil {
		return 0, err
	}
	n, err := rt.Driver.Occupancy(f, threads, shared)
	if err != nil {
		return 0, err
	}
	n = max(n, 1) * rt.Props.Multiprocessors
	rt.kernels.occ[key] = n
	return n, nil
}
