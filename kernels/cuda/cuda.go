// Package cuda searches and builds indexes on NVIDIA GPUs. It registers itself
// when imported:
//
//	import _ "github.com/plaid-ir/plaid/kernels/cuda"
//
// Nothing of CUDA is needed to build, nor to run on a machine without a GPU:
// the driver is bound at run time, the device code is embedded, compiled (src,
// module).
//
// # What is where
//
//	cuda                  finds and opens devices
//	internal/compressed   the search of compressed tokens
//	internal/nearest      nearest centroids and tokens encoded, for builds
//	internal/dense        scores and gradients of plain token vectors
//	internal/encoder      text encoders: ids to token vectors
//	internal/resident     token vectors that stay on the device for a build
//	internal/runtime      the queue, the goroutine, memory and device code of a device
//	internal/driver       libcuda, without cgo
//
// A further family of kernels is a folder beside compressed and nearest, with
// its sources in src; what it shares with the others is package runtime.
//
// # What happens to a search
//
//	Attach            chunks → staging → pack → tiles of 16 tokens, resident
//	Search            checks, and puts requests into the device's queue
//	Device            takes what can share launches, in one goroutine
//	prep_query, centroid_scores, [probe], scan, pick, fine
//	order             by fine scores, in the asking goroutine
//
// The scan scores every document, and the device computes for each query how much
// too low those scores may be. It lists all documents that may belong among the
// first K by that, and gives them fine scores, by which they are ordered: one pass,
// which the host does not interrupt. If there was no room for the list, or the K-th
// fine score is lower than was expected, the search is repeated with more room;
// [kernels.DeviceStats] counts that. Of one query after the other, the driver is
// given the whole pass as one graph.
//
// An index that does not fit into the memory given to it is streamed: pieces
// cross the bus while the one before is scanned.
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

// Errors of this package, and of what its devices do; test with errors.Is.
var (
	// ErrNoDriver: there is no CUDA driver, or it has no device.
	ErrNoDriver = driver.ErrNoDriver
	// ErrDriverTooOld: the driver lacks functions, or cannot run the kernels.
	ErrDriverTooOld = driver.ErrDriverTooOld
	// ErrNoDevice: no device has the number asked for.
	ErrNoDevice = driver.ErrNoDevice
	// ErrUnsupported: the device, or the index, is not one that the kernels are for.
	ErrUnsupported = driver.ErrUnsupported
	// ErrOutOfMemory: the device, or page-locked host memory, is full.
	ErrOutOfMemory = driver.ErrOutOfMemory
	// ErrDeviceLost: the device failed; it cannot be used until it is opened anew.
	ErrDeviceLost = driver.ErrDeviceLost
)

// moduleFiles is the device code of all families.
var moduleFiles = module.Families{module.Plaid, module.Dense, module.Encoder}

func init() { kernels.RegisterDevices(kind{load: driver.Load, modules: moduleFiles}) }

// kind finds the devices of a driver.
type kind struct {
	load    func() (*driver.API, error)
	modules fs.FS // device code
}

// Kind is "cuda".
func (kind) Kind() string { return runtime.Kind }

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

// Open opens a GPU.
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
		return nil, fmt.Errorf("%w: number %d; there are %d", ErrNoDevice, ordinal, len(found))
	}
	d, err := runtime.Open(ctx, api, found[ordinal], k.modules)
	if err != nil {
		return nil, err
	}
	return &device{d}, nil
}

// device is one GPU. Any number of goroutines may use it; one goroutine of its
// own makes all calls of the driver.
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

// Transformer brings a text encoder to the device; see [transformer.OnDevice].
func (d *device) Transformer(ctx context.Context, c transformer.Config, w *transformer.Weights, o transformer.Options) (transformer.Model, error) {
	return encoder.New(ctx, d.dev, c, w, o)
}

// Close answers what waits with [kernels.ErrDeviceClosed] and frees everything.
// It may be called more than once.
func (d *device) Close() error { return d.dev.Close() }

// Code lists the modules that are embedded: their family and the compute capability.
func (k kind) Code() []string {
	files, _ := fs.Glob(k.modules, "*.gz") // the pattern is valid
	names := []string{}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f, ".gz"))
	}
	return names
}
