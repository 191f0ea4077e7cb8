//go:build !noonnxruntime && (linux || darwin) && (amd64 || arm64)

package onnxruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/kernels"
)

// BuiltIn tells whether this build has the engine.
const BuiltIn = true

// Model is a graph, ready to run, safe for concurrent use. It has to be closed.
type Model struct {
	api     *api
	session handle
	in      []port // ids, mask, and maybe types
	out     port
	all     []port // whose names are to be freed
	dim     int
	length  int  // that every text is padded to; 0: any
	single  bool // one text at a time
	batch   int  // ids of a batch

	mu     sync.RWMutex // held while the session is used
	closed bool
}

// Open loads the library, and the graph in the file.
//
// Errors: [engine.ErrLibrary], [engine.ErrNotBuiltIn],
// [ErrGraph], [os.ErrNotExist].
func Open(path string, o Options) (*Model, error) {
	lib, err := library(o.Library)
	if err != nil {
		return nil, fmt.Errorf("onnxruntime: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("onnxruntime: %w", err)
	}
	a, err := load(lib)
	if err != nil {
		return nil, fmt.Errorf("onnxruntime: %w", err)
	}
	m := &Model{api: a, batch: batchTokens}
	if err := m.open(path); err != nil {
		m.release()
		return nil, fmt.Errorf("onnxruntime %s: %w", a.version, err)
	}
	if log := o.Logger; log != nil {
		log.Log(context.Background(), slog.LevelDebug, "onnxruntime", "version", a.version, "library", lib, "graph", path,
			"inputs", listed(m.in), "output", m.out.String(), "dim", m.dim, "batch", m.batch)
	}
	return m, nil
}

func (m *Model) open(path string) error {
	a := m.api
	var options handle
	if err := a.check(a.createOptions(&options)); err != nil {
		return err
	}
	defer a.releaseOptions(options)
	const all = 99 // optimizations
	// One thread works on a batch: many batches are run at once.
	if err := a.first(a.disableMemPattern(options), a.optimization(options, all),
		a.intraThreads(options, 1), a.interThreads(options, 1)); err != nil {
		return err
	}
	if err := a.check(a.createSession(a.env, path, options, &m.session)); err != nil {
		return fmt.Errorf("%w: %w", ErrGraph, err)
	}
	in, err := a.ports(m.session, inputs)
	m.all = append(m.all, in...)
	if err != nil {
		return err
	}
	out, err := a.ports(m.session, outputs)
	m.all = append(m.all, out...)
	if err != nil {
		return err
	}
	if err := m.choose(in, out); err != nil {
		return err
	}
	// One run tells the dimension, and that the graph can be run at all.
	if err := m.run(context.Background(), []int32{0}, []int{1}, 1, func(_ int, x []float32) error {
		m.dim = len(x)
		return nil
	}); err != nil {
		return fmt.Errorf("%w: %w", ErrGraph, err)
	}
	return nil
}

// Dim implements [engine.Engine].
func (m *Model) Dim() int { return m.dim }

// Chunk implements [engine.Engine]: batches of texts of about the same length can
// be made of many texts only.
func (m *Model) Chunk() int { return chunkBatches * m.batch }

// Workers implements [engine.Engine].
func (m *Model) Workers() int { return 0 }

// Close implements [engine.Engine]. It may be called twice.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.release()
	}
	return nil
}

func (m *Model) release() {
	m.api.freeNames(m.all)
	if m.session != nil {
		m.api.releaseSession(m.session)
	}
	m.all, m.session = nil, nil
}

// Encode implements [engine.Engine]. Texts are sorted by length and padded to the
// longest one of their batch. A vector that is not of unit length is made so.
func (m *Model) Encode(ctx context.Context, dst []float32, b engine.Batch) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return ErrClosed
	}
	if err := b.Check(len(dst), m.dim); err != nil {
		return fmt.Errorf("onnxruntime: %w", err)
	}
	var order []int
	for i := range b.Texts() {
		n := b.Length(i)
		if m.length > 0 && n > m.length {
			return fmt.Errorf("onnxruntime: %w: text %d has %d tokens, but the graph takes %d", engine.ErrBatch, i, n, m.length)
		}
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return b.Length(i) - b.Length(j) })
	var ids []int32
	var attended []int
	for len(order) > 0 {
		n, length := 0, 0
		for n < len(order) {
			next := max(m.length, b.Length(order[n]))
			if n > 0 && (m.single || (n+1)*next > m.batch) {
				break
			}
			length = next
			n++
		}
		ids, attended = slices.Grow(ids[:0], n*length)[:n*length], attended[:0]
		clear(ids)
		for r, i := range order[:n] {
			copy(ids[r*length:], b.IDs[b.Offsets[i]:b.Offsets[i+1]])
			attended = append(attended, b.Attends(i))
		}
		err := m.run(ctx, ids, attended, length, func(at int, x []float32) error {
			if i := order[at/length]; at%length < b.Length(i) {
				to := (b.Offsets[i] + at%length) * m.dim
				copy(dst[to:to+m.dim], x)
				if !unit(dst[to : to+m.dim]) {
					return fmt.Errorf("%w: token %d of text %d", engine.ErrNotFinite, at%length, i)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("onnxruntime: %w", err)
		}
		order = order[n:]
	}
	return nil
}

// unitTolerance is how much the squared length of a unit vector may be off one.
// Most graphs give unit vectors, whose bits are kept.
const unitTolerance = 1e-3

// unit makes a vector one of unit length, unless it is, and says whether it is
// finite. As in PyTorch a length below 1e-12 counts as that.
func unit(x []float32) bool {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	if math.Abs(sum-1) <= unitTolerance {
		return true
	}
	length := max(math.Sqrt(sum), 1e-12)
	for i, v := range x {
		x[i] = float32(float64(v) / length)
	}
	return !math.IsNaN(sum) && !math.IsInf(sum, 0)
}

// run computes one batch of texts of one length and calls use with the vector of
// each id, padding too.
func (m *Model) run(ctx context.Context, ids []int32, attended []int, length int, use func(at int, x []float32) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.length > length { // only when the dimension is looked for
		ids, length = append(ids, make([]int32, m.length-length)...), m.length
	}
	a := m.api
	shape := []int64{int64(len(attended)), int64(length)}
	var pin runtime.Pinner
	defer pin.Unpin()
	values, cnames := make([]handle, len(m.in)), make([]handle, len(m.in))
	defer func() {
		for _, v := range values {
			if v != nil {
				a.releaseValue(v)
			}
		}
	}()
	for i, p := range m.in {
		cnames[i] = p.cname
		data, bytes := input(&pin, p.kind, len(ids), func(j int) int32 {
			switch {
			case i == 0:
				return ids[j]
			case i == 1 && j%length < attended[j/length]:
				return 1
			}
			return 0
		})
		if err := a.check(a.createTensor(a.memory, data, bytes, &shape[0], 2, p.kind, &values[i])); err != nil {
			return err
		}
	}
	var options, result handle
	if err := a.check(a.createRunOptions(&options)); err != nil {
		return err
	}
	defer a.releaseRunOptions(options)
	terminated := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(terminated)
		a.check(a.terminate(options))
	})
	outName := m.out.cname
	err := a.check(a.run(m.session, options, &cnames[0], &values[0], uintptr(len(values)), &outName, 1, &result))
	if !stop() {
		<-terminated // no longer uses the options
	}
	if result != nil {
		defer a.releaseValue(result)
	}
	if cerr := ctx.Err(); cerr != nil {
		return cerr
	}
	if err != nil {
		return fmt.Errorf("batch of %d texts of %d ids: %w", len(attended), length, err)
	}
	return m.read(result, len(attended), length, use)
}

// input is memory with n numbers of a kind, pinned.
func input(pin *runtime.Pinner, kind int32, n int, at func(int) int32) (unsafe.Pointer, uintptr) {
	if kind == typeInt32 {
		x := make([]int32, n)
		for j := range x {
			x[j] = at(j)
		}
		pin.Pin(&x[0])
		return unsafe.Pointer(&x[0]), uintptr(4 * n)
	}
	x := make([]int64, n)
	for j := range x {
		x[j] = int64(at(j))
	}
	pin.Pin(&x[0])
	return unsafe.Pointer(&x[0]), uintptr(8 * n)
}

// read takes the vectors out of a tensor.
func (m *Model) read(result handle, texts, length int, use func(at int, x []float32) error) error {
	a := m.api
	var info handle
	if err := a.check(a.shapeOf(result, &info)); err != nil {
		return err
	}
	defer a.releaseTensorInfo(info)
	kind, shape, err := a.shape(info)
	if err != nil {
		return err
	}
	if len(shape) != 3 || shape[0] != int64(texts) || shape[1] != int64(length) || shape[2] < 1 || m.dim > 0 && shape[2] != int64(m.dim) {
		return fmt.Errorf("output %s has shape %v, want [%d, %d, dimensions]", m.out.name, shape, texts, length)
	}
	var data unsafe.Pointer
	if err := a.check(a.data(result, &data)); err != nil {
		return err
	}
	if data == nil {
		return errors.New("output " + m.out.name + " has no data")
	}
	dim := int(shape[2])
	var row []float32
	for at := range texts * length {
		switch kind {
		case typeFloat32:
			row = unsafe.Slice((*float32)(unsafe.Add(data, at*dim*4)), dim)
		case typeFloat16:
			row = slices.Grow(row[:0], dim)[:dim]
			for j, h := range unsafe.Slice((*uint16)(unsafe.Add(data, at*dim*2)), dim) {
				row[j] = kernels.F16ToF32(h)
			}
		default:
			return fmt.Errorf("output %s has elements of type %d", m.out.name, kind)
		}
		if err := use(at, row); err != nil {
			return err
		}
	}
	return nil
}

var _ engine.Engine = (*Model)(nil)
