package transformer

import (
	"context"
	"errors"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
)

// several is a model on several devices. A batch goes to the device with the fewest ids in
// running calls.
type several struct {
	models []Model
	info   kernels.DeviceInfo

	mu    sync.Mutex
	loads []int // ids in running calls, by device; guarded by mu
}

// About describes the model on the first device, with the info of all.
func (s *several) About() About {
	a := s.models[0].About()
	a.Device = s.info
	return a
}

func (s *several) Encode(ctx context.Context, dst []float32, b Batch) error {
	i := s.reserveDevice(len(b.IDs))
	defer s.releaseDevice(i, len(b.IDs))
	return s.models[i].Encode(ctx, dst, b)
}

func (s *several) EncodeHalves(ctx context.Context, dst []byte, b Batch, kept []int32) error {
	i := s.reserveDevice(len(b.IDs))
	defer s.releaseDevice(i, len(b.IDs))
	return s.models[i].EncodeHalves(ctx, dst, b, kept)
}

// reserveDevice adds ids to the device with the smallest load, and returns its number.
func (s *several) reserveDevice(ids int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := 0
	for i, load := range s.loads {
		if load < s.loads[best] {
			best = i
		}
	}
	s.loads[best] += ids
	return best
}

// releaseDevice subtracts ids from the load of device i.
func (s *several) releaseDevice(i, ids int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads[i] -= ids
}

func (s *several) Close() error {
	var errs []error
	for _, m := range s.models {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
