// Package cuda searches and builds indexes on NVIDIA GPUs. It registers itself
// when imported:
//
//	import _ "github.com/plaid-ir/plaid/kernels/cuda"
//
// Neither building nor running without a GPU needs CUDA: the driver is bound at
// run time, and the compiled device code (sources in src) is embedded by package
// module.
//
// # What is where
//
//	cuda                  finds and opens devices
//	internal/compressed   the search of compressed tokens
//	internal/nearest      nearest centroids, and encoding of tokens, for builds
//	internal/dense        scores and gradients of plain token vectors
//	internal/encoder      text encoders: ids to token vectors
//	internal/resident     token vectors that stay on the device for a build
//	internal/runtime      the queue, the goroutine, memory and device code of a device
//	internal/driver       libcuda, without cgo
//
// A new family of kernels gets a package next to compressed and nearest, and its
// sources in src. Package runtime has the code that families share.
//
// # What happens to a search
//
//	Attach            chunks → staging → pack → tiles of 16 tokens, resident
//	Search            checks queries, and puts requests into the device's queue
//	Device            one goroutine takes the requests that can share launches
//	prep_query, centroid_scores, [probe], scan, pick, fine
//	order             by fine scores, in the caller's goroutine
//
// The scan scores every document approximately, and the device computes for each query
// a bound of the error of these scores. By that bound it lists all documents that may be
// among the first K, and gives them fine scores, which order them. This is one pass,
// which the host does not interrupt. If the list was too short, or the K-th fine score is
// lower than expected, the search is repeated with a longer list or a wider bound;
// [kernels.DeviceStats] counts the repetitions. For single queries one after another, the
// driver gets the whole pass as one graph.
//
// An index that does not fit into its memory limit is streamed: a piece crosses the bus
// while the previous one is scanned.
package cuda

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/compressed"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/dense"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/encoder"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/nearest"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/cuda/module"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Errors of this package and of its devices; test with errors.Is.
var (
	// ErrNoDriver: there is no CUDA driver, or it has no device.
	ErrNoDriver = driver.ErrNoDriver
	// ErrDriverTooOld: the driver lacks functions, or cannot run the kernels.
	ErrDriverTooOld = driver.ErrDriverTooOld
	// ErrNoDevice: no device has the requested number.
	ErrNoDevice = driver.ErrNoDevice
	// ErrUnsupported: the kernels do not support the device or the index.
	ErrUnsupported = driver.ErrUnsupported
	// ErrOutOfMemory: the device, or page-locked host memory, is full.
	ErrOutOfMemory = driver.ErrOutOfMemory
	// ErrDeviceLost: the device failed; close it and open it again.
	ErrDeviceLost = driver.ErrDeviceLost
)

// moduleFiles has the device code of all families of kernels.
var moduleFiles = module.Families{module.Plaid, module.Dense, module.Encoder}

func init() { kernels.RegisterDevices(kind{load: driver.Load, modules: moduleFiles}) }

// kind finds the devices of a driver.
type kind struct {
	load    func() (*driver.API, error)
	modules fs.FS // device code
}

// Kind is "cuda".
func (kind) Kind() string { return runtime.Kind }

// findDevices loads the driver and describes its devices.
func (k kind) findDevices() (*driver.API, []driver.Info, error) {
	api, err := k.load()
	if err != nil {
		return nil, nil, err
	}
	found, err := driver.Devices(api)
	return api, found, err
}

// Devices lists the GPUs.
func (k kind) Devices() ([]kernels.DeviceInfo, error) {
	_, found, err := k.findDevices()
	if err != nil {
		return nil, err
	}
	infos := make([]kernels.DeviceInfo, len(found))
	for i := range found {
		infos[i] = runtime.Describe(&found[i], k.modules)
	}
	return infos, nil
}

// Open opens the GPU with the given number.
func (k kind) Open(ctx context.Context, ordinal int) (kernels.Device, error) {
	d, err := k.open(ctx, ordinal)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (k kind) open(ctx context.Context, ordinal int) (*device, error) {
	api, found, err := k.findDevices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= len(found) {
		return nil, fmt.Errorf("%w: number %d; the driver has %d devices, numbered from 0",
			ErrNoDevice, ordinal, len(found))
	}
	d, err := runtime.Open(ctx, api, found[ordinal], k.modules)
	if err != nil {
		return nil, err
	}
	return &device{d}, nil
}

// device is one GPU. It is safe for concurrent use: a single goroutine of the
// [runtime.Device] makes all calls of the driver.
type device struct{ dev *runtime.Device }

// Info describes the device.
func (d *device) Info() kernels.DeviceInfo { return d.dev.Info() }

// Attach uploads an index; see [kernels.Device].
func (d *device) Attach(ctx context.Context, c kernels.Corpus, o kernels.AttachOptions) (kernels.Attachment, error) {
	return compressed.Attach(ctx, d.dev, c, o)
}

// Builder returns a backend for index builds; see [kernels.Device].
func (d *device) Builder(cpu kernels.Backend) kernels.Builder { return nearest.NewBuilder(d.dev, cpu) }

// MaxSim returns a backend for plain token vectors; see [maxsim.OnDevice].
func (d *device) MaxSim() (maxsim.Backend, error) { return dense.New(d.dev), nil }

// Transformer uploads a text encoder; see [transformer.OnDevice].
func (d *device) Transformer(
	ctx context.Context, c transformer.Config, w *transformer.Weights, o transformer.Options,
) (transformer.Model, error) {
	return encoder.New(ctx, d.dev, c, w, o)
}

// Close answers waiting requests with [kernels.ErrDeviceClosed] and frees everything.
// It may be called more than once.
func (d *device) Close() error { return d.dev.Close() }

// Code lists the embedded modules, such as "plaid_80.ptx": family, compute capability and kind.
func (k kind) Code() []string {
	files, _ := fs.Glob(k.modules, "*.gz") // the pattern is valid
	names := []string{}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f, ".gz"))
	}
	return names
}
