package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
)

// mainModule is the module of kernels whose names have no module before a slash. It is loaded
// when a [Device] is opened, other modules when one of their kernels is launched first.
const mainModule = "plaid"

// waitCapability is the lowest compute capability whose code has griddepcontrol.wait. The
// PTX is compiled for a lower one, so that it has none.
const waitCapability = 90

// kernelSet is the loaded device code of one device.
type kernelSet struct {
	files        fs.FS
	props        *driver.Info
	modules      map[string]driver.Module
	arch         string
	supportsWait bool // kernels can wait for the previous one themselves, see LaunchAfter
	kernels      map[string]loadedKernel
	occupancy    map[occupancyKey]int
}

// loadedKernel is a kernel and the maximum of dynamic shared memory that was set for it.
type loadedKernel struct {
	driver.Function
	shared int // bytes
}

// occupancyKey is a launch configuration, which decides how many blocks run at the same time.
type occupancyKey struct {
	kernel          string
	threads, shared int
}

// load initializes the set and loads its first module, whose file decides the architecture.
func (k *kernelSet) load(c *driver.Context, props *driver.Info, files fs.FS, first string) error {
	*k = kernelSet{
		files:     files,
		props:     props,
		modules:   map[string]driver.Module{},
		kernels:   map[string]loadedKernel{},
		occupancy: map[occupancyKey]int{},
	}
	_, err := k.loadModule(c, first)
	return err
}

// loadModule returns a module, which it loads the first time.
func (k *kernelSet) loadModule(c *driver.Context, name string) (driver.Module, error) {
	if m, ok := k.modules[name]; ok {
		return m, nil
	}
	file, err := imageFor(k.files, name, k.props.Major, k.props.Minor)
	if err != nil {
		return driver.Module{}, err
	}
	image, err := readImage(k.files, file)
	if err != nil {
		return driver.Module{}, err
	}
	m, err := c.LoadModule(image)
	if errors.Is(err, driver.ErrDriverTooOld) {
		return m, fmt.Errorf("%w: %s needs CUDA %s or newer, the driver supports %s: %w",
			driver.ErrDriverTooOld, file, driver.Version(driver.MinVersion), k.props.Driver, err)
	}
	if err != nil {
		return m, fmt.Errorf("loading %s: %w", file, err)
	}
	k.modules[name] = m
	if k.arch == "" {
		k.arch = archFromName(file)
		n, _ := strconv.Atoi(strings.TrimSuffix(k.arch, "a"))
		k.supportsWait = n >= waitCapability
	}
	return m, nil
}

// unload frees all modules and returns the first error.
func (k *kernelSet) unload(c *driver.Context) error {
	var first error
	for _, m := range k.modules {
		if err := c.FreeModule(m); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Arch returns the architecture of the loaded device code, such as "80" or "90a".
func (rt *Runtime) Arch() string { return rt.kernels.arch }

// findKernel returns a kernel that may have shared bytes of dynamic shared memory, and keeps it.
// Its name is MODULE/KERNEL, or KERNEL in mainModule.
func (rt *Runtime) findKernel(name string, shared int) (driver.Function, error) {
	k := &rt.kernels
	loaded, ok := k.kernels[name]
	if ok && shared <= loaded.shared {
		return loaded.Function, nil
	}
	if shared > rt.Props.Shared {
		return driver.Function{}, fmt.Errorf("%w: %s needs %d bytes of shared memory, a block may have %d",
			driver.ErrUnsupported, name, shared, rt.Props.Shared)
	}
	module, plain, ok := strings.Cut(name, "/")
	if !ok {
		module, plain = mainModule, name
	}
	var f driver.Function
	err := rt.Driver.Relaxed(func() error { // the stream may be captured in the first call
		m, err := k.loadModule(rt.Driver, module)
		if err == nil {
			f, err = rt.Driver.Function(m, plain, shared)
		}
		return err
	})
	if err == nil {
		k.kernels[name] = loadedKernel{f, shared}
	}
	return f, err
}

// Launch starts a kernel on Stream. args is the struct of its parameters, as in the sources
// of the device code, on the heap. An empty grid does nothing.
func Launch[T any](rt *Runtime, name string, gx, gy, gz, block, shared int, args *T) error {
	return LaunchAfter(rt, false, name, gx, gy, gz, block, shared, args)
}

// LaunchAfter is Launch for a kernel that may start before the previous kernel of Stream has ended,
// if early is set and the device code supports it. The kernel itself waits for the end of that one,
// so that no time passes between the two.
func LaunchAfter[T any](rt *Runtime, early bool, name string, gx, gy, gz, block, shared int, args *T) error {
	if gx == 0 || gy == 0 || gz == 0 {
		return nil
	}
	f, err := rt.findKernel(name, shared)
	if err != nil {
		return err
	}
	return rt.Driver.Launch(f, driver.Dim3{
		X: uint32(gx),
		Y: uint32(gy),
		Z: uint32(gz),
	}, driver.Dim3{
		X: uint32(block),
		Y: 1,
		Z: 1,
	},
		shared, rt.Stream, early && rt.kernels.supportsWait, unsafe.Pointer(args), unsafe.Sizeof(*args))
}

// FindKernel returns a kernel for [LaunchFunction].
func (rt *Runtime) FindKernel(name string, shared int) (driver.Function, error) {
	return rt.findKernel(name, shared)
}

// LaunchFunction is [LaunchAfter] for a kernel that FindKernel returned.
func LaunchFunction[T any](rt *Runtime, early bool, f driver.Function, gx, block, shared int, args *T) error {
	if gx == 0 {
		return nil
	}
	return rt.Driver.Launch(f, driver.Dim3{
		X: uint32(gx),
		Y: 1,
		Z: 1,
	}, driver.Dim3{
		X: uint32(block),
		Y: 1,
		Z: 1,
	}, shared,
		rt.Stream, early && rt.kernels.supportsWait, unsafe.Pointer(args), unsafe.Sizeof(*args))
}

// FillingBlocks returns how many blocks of a kernel the device runs at the same time.
func (rt *Runtime) FillingBlocks(name string, threads, shared int) (int, error) {
	key := occupancyKey{name, threads, shared}
	if n, ok := rt.kernels.occupancy[key]; ok {
		return n, nil
	}
	f, err := rt.findKernel(name, shared)
	if err != nil {
		return 0, err
	}
	n, err := rt.Driver.Occupancy(f, threads, shared)
	if err != nil {
		return 0, err
	}
	n = max(n, 1) * rt.Props.Multiprocessors
	rt.kernels.occupancy[key] = n
	return n, nil
}
