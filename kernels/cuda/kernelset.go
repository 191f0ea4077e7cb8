package cuda

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

// kernelSet is the loaded device code of one device.
type kernelSet struct {
	ctx    *driver.Context
	props  *driver.Info
	mod    driver.Module
	fn     map[string]driver.Function
	shared map[string]int
	occ    map[occupied]int
	half   bool     // the image has scan_f*
	args   struct { // of the launch at hand; the driver copies them
		pack      packParams
		prep      prepParams
		centroid  centroidParams
		list      listParams
		scan      scanParams
		topkFirst topkFirstParams
		topkNext  topkNextParams
		fine      fineParams
		mark      markParams
		candidate candidateParams
		compact   compactParams
		half      halfParams
		nearest   nearestParams
	}
}

type occupied struct {
	kernel string
	shared int
}

func loadKernels(c *driver.Context, props *driver.Info) (*kernelSet, error) {
	name, err := imageFor(props.Major, props.Minor)
	if err != nil {
		return nil, err
	}
	image, err := readImage(name)
	if err != nil {
		return nil, err
	}
	k := &kernelSet{ctx: c, props: props, fn: map[string]driver.Function{}, shared: map[string]int{}, occ: map[occupied]int{}}
	k.half = strings.Contains(name, "_90a.")
	if k.mod, err = c.LoadModule(image); err != nil {
		if errors.Is(err, driver.ErrDriverTooOld) {
			return nil, fmt.Errorf("%w: %s needs CUDA %s or newer, the driver knows %s: %w",
				driver.ErrDriverTooOld, name, driver.Version(driver.MinVersion), props.Driver, err)
		}
		return nil, fmt.Errorf("loading %s: %w", name, err)
	}
	return k, nil
}

func (k *kernelSet) close() error { return k.ctx.FreeModule(k.mod) }

// get finds a kernel, once, and allows it the shared memory.
func (k *kernelSet) get(name string, shared int) (driver.Function, error) {
	f, ok := k.fn[name]
	if ok && shared <= k.shared[name] {
		return f, nil
	}
	if shared > k.props.Shared {
		return f, fmt.Errorf("%w: %s needs %d bytes of shared memory, a block may have %d", driver.ErrUnsupported, name, shared, k.props.Shared)
	}
	f, err := k.ctx.Function(k.mod, name, shared)
	if err == nil {
		k.fn[name], k.shared[name] = f, shared
	}
	return f, err
}

// launch starts a kernel; args is one of k.args.
func launch[T any](k *kernelSet, name string, gx, gy, gz, block int, shared int, st driver.Stream, args *T) error {
	if gx == 0 || gy == 0 || gz == 0 {
		return nil
	}
	f, err := k.get(name, shared)
	if err != nil {
		return err
	}
	return k.ctx.Launch(f, driver.Dim3{X: uint32(gx), Y: uint32(gy), Z: uint32(gz)}, driver.Dim3{X: uint32(block), Y: 1, Z: 1},
		shared, st, unsafe.Pointer(args), unsafe.Sizeof(*args))
}

// scanKernel names the scan for a shape and says what shared memory it takes.
func (s *shape) scanKernel(list bool) (name string, shared int) {
	ring := 4 * (3072 + 1024*s.lanes) // of tiles on their way
	switch {
	case s.mode == tableMode:
		name, shared = "scan_table", 4*s.fragStride+2048
	case s.mode > halfMode:
		name, shared = fmt.Sprintf("scan_f%d_w%d", s.mode-halfMode, s.lanes), 4*s.fragStride+ring
	case s.mode == 1 && s.lanes == 1, s.mode == 2 && s.lanes <= 2, s.mode == 4 && (s.lanes == 2 || s.lanes == 4):
		name, shared = fmt.Sprintf("scan_b%d_w%d", s.mode, s.lanes), ring
	default:
		name, shared = fmt.Sprintf("scan_b%d", s.mode), 4*s.fragStride
	}
	if list {
		name += "_list"
	}
	return name, shared
}

// scanBlocks is how many blocks fill the device with a scan.
func (k *kernelSet) scanBlocks(s *shape, list bool) (int, error) {
	name, shared := s.scanKernel(list)
	key := occupied{name, shared}
	if n, ok := k.occ[key]; ok {
		return n, nil
	}
	f, err := k.get(name, shared)
	if err != nil {
		return 0, err
	}
	n, err := k.ctx.Occupancy(f, scanThreads, shared)
	if err != nil {
		return 0, err
	}
	n = max(n, 1) * k.props.Multiprocessors
	k.occ[key] = n
	return n, nil
}
