// Package cuda searches and builds indexes on NVIDIA GPUs. It registers itself
// when imported:
//
//	import _ "github.com/plaid-ir/plaid/kernels/cuda"
//
// Nothing of CUDA is needed to build, nor to run on a machine without a GPU:
// the driver is bound at run time (package driver), the device code is
// embedded, compiled (src, module).
//
// # What happens to a search
//
//	Attach            chunks → staging → pack → tiles of 16 tokens, resident
//	Search            checks, and puts searches into the device's queue
//	Device            takes what can share launches, in one goroutine
//	prep_query, centroid_scores, [probe], scan, topk, fine
//	order             by fine scores, in the asking goroutine
//
// The scan scores every document within a bound that the device computes for
// each query. The best of its scores, somewhat more than asked for, get a fine
// score in float32 and are ordered by it. If the bound leaves open whether a
// document without a fine score belongs among the first K, the search is
// repeated with more of them; [kernels.DeviceStats] counts that.
//
// An index that does not fit into the memory given to it is streamed: pieces
// cross the bus while the one before is scanned.
package cuda

import (
	"context"
	"fmt"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

const kindName = "cuda"

func init() { kernels.RegisterDevices(kind{load: driver.Load}) }

// kind finds the devices of a driver.
type kind struct {
	load func() (*driver.API, error)
}

// Kind is "cuda".
func (kind) Kind() string { return kindName }

func (k kind) found() (*driver.API, []driver.Info, error) {
	api, err := k.load()
	if err != nil {
		return nil, nil, err
	}
	found, err := driver.Devices(api)
	return api, found, err
}

// Devices lists the GPUs.
func (k kind) Devices() ([]kernels.DeviceInfo, error) {
	_, found, err := k.found()
	if err != nil {
		return nil, err
	}
	infos := make([]kernels.DeviceInfo, len(found))
	for i := range found {
		infos[i] = deviceInfo(&found[i])
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

func (k kind) open(ctx context.Context, ordinal int) (*Device, error) {
	api, found, err := k.found()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= len(found) {
		return nil, fmt.Errorf("%w: number %d; there are %d", driver.ErrNoDevice, ordinal, len(found))
	}
	return newDevice(ctx, api, found[ordinal])
}

// Open opens a GPU by number. Errors: those of package driver.
func Open(ctx context.Context, ordinal int) (*Device, error) {
	return kind{load: driver.Load}.open(ctx, ordinal)
}
