// Package encoder runs text encoders on a device. Package transformer defines the interface.
//
//	layout      the layout of matrices in device memory
//	weights     copies tensors to the device: rounded, padded, interleaved
//	memory      the memory of a model, and the layout of a batch
//	choose      the choice of a kernel for a product
//	activation  the activations of feed-forward layers as parameters of epilogues
//	forward     the launches of a pass; a small pass is launched as one graph
//	request     divides calls into passes; two passes are under way at the same time
//
// A batch has texts one after another, without padding, and the vectors of a text do not
// depend on the other texts. The device code is in src/encoder; encoder.cuh documents its
// kernels and their structs.
package encoder

import (
	"context"
	"fmt"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/resident"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// headSizes are the numbers of columns of a head that attention kernels exist for.
var headSizes = []int{16, 32, 48, 64, 96, 128, 256}

// headColumns returns the number of columns that kernels use for a head of size dimensions, 0 if it is
// too large.
func headColumns(size int) int {
	for _, columns := range headSizes {
		if size <= columns {
			return columns
		}
	}
	return 0
}

// The limits of rows in the kernels that embed and normalize. A warp keeps a whole row in registers;
// rows of more than narrowColumns have kernels of their own.
const (
	narrowColumns = 1024
	maxColumns    = 2560
)

// model is a model on a device. Fields that New does not set belong to the device's goroutine.
type model struct {
	dev        *runtime.Device
	rt         *runtime.Runtime
	config     transformer.Config
	vocabulary int // of the vocabulary
	about      transformer.About
	tensors    *tensors

	weights           driver.Mem
	memory            batchMemory // of a batch
	workspace         driver.Mem
	slots             [2]slot
	graphs            map[graphKey]driver.Graph
	graphsUnsupported bool // the driver could not capture a pass
	freed             bool

	mu          sync.Mutex
	closed      bool
	activeCalls sync.WaitGroup
}

// New copies a validated model to a device.
func New(
	ctx context.Context, d *runtime.Device, c transformer.Config, w *transformer.Weights, o transformer.Options,
) (transformer.Model, error) {
	if headColumns(c.HeadSize) == 0 {
		return nil, fmt.Errorf("%w: heads of %d dimensions; on a device they have up to %d", transformer.ErrConfig,
			c.HeadSize, headSizes[len(headSizes)-1])
	}
	for _, size := range []int{c.Hidden, c.EmbeddingSize()} {
		if roundUp(size, tile) > maxColumns {
			return nil, fmt.Errorf("%w: a hidden size of %d; on a device there are rows of up to %d values",
				transformer.ErrConfig, size, maxColumns)
		}
	}
	p, t := layOutWeights(&c, w)
	m := &model{
		dev:        d,
		config:     c,
		vocabulary: len(w.Words) / c.EmbeddingSize(),
		tensors:    t,
		graphs:     map[graphKey]driver.Graph{},
	}
	m.about = transformer.About{Device: d.Info(), Precision: transformer.F16, Dim: c.Hidden}
	if n := len(t.heads); n > 0 {
		m.about.Dim = t.heads[n-1].outputs
	}
	image, err := p.writeImage(ctx)
	if err != nil {
		return nil, err
	}
	err = d.Call(ctx, func(rt *runtime.Runtime) (err error) {
		m.rt = rt
		rt.AddOwner(m)
		if err = m.load(ctx, rt, o, image); err != nil {
			rt.Drain()
			m.Free()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("model on %s: %w", d.Info().Name, err)
	}
	return m, nil
}

// load allocates the memory of the model and copies its weights, the image, to the device.
func (m *model) load(ctx context.Context, rt *runtime.Runtime, o transformer.Options, image []byte) error {
	tokens, err := m.maxBatchTokens(rt, o)
	if err != nil {
		return err
	}
	m.memory = m.layOutBatch(tokens)
	m.about.Tokens, m.about.Weights, m.about.Batches = tokens, m.tensors.bytes, m.memory.totalBytes()
	c := rt.Driver
	if m.weights, err = c.Alloc(m.tensors.bytes); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	if m.workspace, err = c.Alloc(m.memory.totalBytes()); err != nil {
		return fmt.Errorf("batches: %w", err)
	}
	// The padding columns of rows must be finite; kernels do not change them.
	if err := c.Set(m.workspace.Ptr, 0, m.workspace.Bytes, rt.Stream); err != nil {
		return err
	}
	for i := range m.slots {
		if err := m.slots[i].allocate(c, m, i); err != nil {
			return err
		}
	}
	return upload(ctx, rt, m.weights, image)
}

// Free implements [runtime.Owner].
func (m *model) Free() {
	if m.freed {
		return
	}
	m.freed = true
	c := m.rt.Driver
	for _, g := range m.graphs {
		_ = c.FreeGraph(g)
	}
	m.graphs = nil
	for i := range m.slots {
		m.slots[i].release(c)
	}
	_ = c.Free(m.workspace)
	_ = c.Free(m.weights)
	m.workspace, m.weights = driver.Mem{}, driver.Mem{}
	m.rt.RemoveOwner(m)
}

// About implements [transformer.Model].
func (m *model) About() transformer.About { return m.about }

// Close implements [transformer.Model].
func (m *model) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.activeCalls.Wait()
	return m.dev.FreeOwner(m)
}

// beginCall registers a call, so that Close waits for it; end it with activeCalls.Done.
func (m *model) beginCall() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("encoder: %w", kernels.ErrDeviceClosed)
	}
	m.activeCalls.Add(1)
	return nil
}

// Encode implements [transformer.Model].
func (m *model) Encode(ctx context.Context, dst []float32, b transformer.Batch) error {
	return m.encode(ctx, &request{batch: &b, dst: dst}, len(dst))
}

// EncodeHalves implements [transformer.Model].
func (m *model) EncodeHalves(ctx context.Context, dst []byte, b transformer.Batch, kept []int32) error {
	if err := b.CheckKept(kept, len(dst), m.about.Dim); err != nil {
		return fmt.Errorf("encoder: %w", err)
	}
	return m.encode(ctx, &request{
		batch:     &b,
		halves:    true,
		kept:      kept,
		halvesDst: dst,
	}, len(b.IDs)*m.about.Dim)
}

// NewVectors implements [transformer.ResidentModel].
func (m *model) NewVectors(ctx context.Context) (kernels.ResidentVectors, error) {
	v, err := resident.New(ctx, m.dev, m.about.Dim)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// EncodeResident implements [transformer.ResidentModel].
func (m *model) EncodeResident(
	ctx context.Context, to kernels.ResidentVectors, first int, b transformer.Batch, kept []int32,
) error {
	v, ok := to.(*resident.Vectors)
	if !ok || !v.IsOn(m.dev) || v.Dim() != m.about.Dim || first < 0 {
		return fmt.Errorf("encoder: %w: vectors of another device or model", transformer.ErrBatch)
	}
	if err := b.CheckKept(kept, 2*len(kept)*m.about.Dim, m.about.Dim); err != nil {
		return fmt.Errorf("encoder: %w", err)
	}
	return m.encode(ctx, &request{
		batch:       &b,
		halves:      true,
		kept:        kept,
		vectors:     v,
		firstVector: first,
	}, len(b.IDs)*m.about.Dim)
}

// encode validates a request, whose destination has room for capacity values, runs it and waits for
// its end.
func (m *model) encode(ctx context.Context, r *request, capacity int) error {
	b := r.batch
	r.model = m
	if err := m.config.CheckBatch(b, capacity, m.about.Dim, m.vocabulary); err != nil {
		return fmt.Errorf("encoder: %w", err)
	}
	for i := range b.Texts() { // the options may have limited a batch to few tokens
		if n := b.Length(i); n > m.memory.tokens {
			return fmt.Errorf("encoder: %w: text %d has %d tokens, more than the %d of a batch on the device",
				transformer.ErrBatch, i, n, m.memory.tokens)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("encoder: %w", context.Cause(ctx))
	}
	if len(b.IDs) == 0 || r.halves && len(r.kept) == 0 {
		return nil
	}
	if err := m.beginCall(); err != nil {
		return err
	}
	defer m.activeCalls.Done()
	if err := runtime.RunRequests(ctx, m.dev, []*request{r}); err != nil {
		return fmt.Errorf("encoder on %s: %w", m.about.Device.Name, err)
	}
	return nil
}
