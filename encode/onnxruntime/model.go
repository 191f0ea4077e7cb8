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

// BuiltIn reports whether this build has the engine.
const BuiltIn = true

// Model is a graph that is ready to run. It is safe for concurrent use, and has to be closed.
type Model struct {
	api     *api
	session handle
	in      []port // ids, mask, and possibly types
	out     port
	ports   []port // all inputs and outputs, whose names have to be freed
	dim     int
	length  int  // every text is padded to this length. 0 means any length
	single  bool // the graph computes one text at a time
	batch   int  // ids of a batch

	mu     sync.RWMutex // held while the session is used
	closed bool
}

// Open loads the library, and the graph in the file.
//
// Errors: [engine.ErrLibrary], [engine.ErrNotBuiltIn],
// [ErrGraph], [os.ErrNotExist].
func Open(path string, o Options) (*Model, error) {
	lib, err := libraryPath(o.Library)
	if err != nil {
		return nil, fmt.Errorf("onnxruntime: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("onnxruntime: %w", err)
	}
	a, err := loadLibrary(lib)
	if err != nil {
		return nil, fmt.Errorf("onnxruntime: %w", err)
	}
	m := &Model{api: a, batch: batchTokens}
	if err := m.open(path); err != nil {
		m.release()
		return nil, fmt.Errorf("onnxruntime %s: %w", a.version, err)
	}
	if log := o.Logger; log != nil {
		log.Log(context.Background(), slog.LevelDebug, "onnxruntime",
			"version", a.version, "library", lib, "graph", path,
			"inputs", joinPorts(m.in), "output", m.out.String(), "dim", m.dim, "batch", m.batch)
	}
	return m, nil
}

// open creates a session for the graph, and selects its inputs and its output.
func (m *Model) open(path string) error {
	// Create the session.
	a := m.api
	var options handle
	if err := a.statusError(a.createOptions(&options)); err != nil {
		return err
	}
	defer a.releaseOptions(options)
	const allOptimizations = 99
	// One thread computes a batch, since several batches run at the same time.
	if err := a.firstError(a.disableMemPattern(options), a.optimization(options, allOptimizations),
		a.intraThreads(options, 1), a.interThreads(options, 1)); err != nil {
		return err
	}
	if err := a.statusError(a.createSession(a.env, path, options, &m.session)); err != nil {
		return fmt.Errorf("%w: %w", ErrGraph, err)
	}
	// Select the inputs and the output.
	in, err := a.listPorts(m.session, inputs)
	m.ports = append(m.ports, in...)
	if err != nil {
		return err
	}
	out, err := a.listPorts(m.session, outputs)
	m.ports = append(m.ports, out...)
	if err != nil {
		return err
	}
	if err := m.selectPorts(in, out); err != nil {
		return err
	}
	// Run the graph once, to learn the dimension and to check that it works.
	if err := m.runBatch(context.Background(), []int32{0}, []int{1}, 1, func(_ int, x []float32) error {
		m.dim = len(x)
		return nil
	}); err != nil {
		return fmt.Errorf("%w: %w", ErrGraph, err)
	}
	return nil
}

// Dim implements [engine.Engine].
func (m *Model) Dim() int { return m.dim }

// Chunk implements [engine.Engine]. A chunk needs many texts for batches of texts of about the
// same length.
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

// release frees the memory and handles of the library.
func (m *Model) release() {
	m.api.freeNames(m.ports)
	if m.session != nil {
		m.api.releaseSession(m.session)
	}
	m.ports, m.session = nil, nil
}

// Encode implements [engine.Engine]. Texts are sorted by length and padded to the
// longest text of their batch. Vectors are scaled to unit length.
func (m *Model) Encode(ctx context.Context, dst []float32, b engine.Batch) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return ErrClosed
	}
	if err := b.Check(len(dst), m.dim); err != nil {
		return fmt.Errorf("onnxruntime: %w", err)
	}
	// Sort the texts by length.
	var order []int
	for i := range b.Texts() {
		n := b.Length(i)
		if m.length > 0 && n > m.length {
			return fmt.Errorf("onnxruntime: %w: text %d has %d tokens, but the graph takes %d",
				engine.ErrBatch, i, n, m.length)
		}
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return b.Length(i) - b.Length(j) })
	var ids []int32
	var attended []int
	for len(order) > 0 {
		// Select the texts of a batch.
		n, length := 0, 0
		for n < len(order) {
			next := max(m.length, b.Length(order[n]))
			if n > 0 && (m.single || (n+1)*next > m.batch) {
				break
			}
			length = next
			n++
		}
		// Run it, and copy the vectors without those of padding.
		ids, attended = slices.Grow(ids[:0], n*length)[:n*length], attended[:0]
		clear(ids)
		for r, i := range order[:n] {
			copy(ids[r*length:], b.IDs[b.Offsets[i]:b.Offsets[i+1]])
			attended = append(attended, b.AttendedLength(i))
		}
		err := m.runBatch(ctx, ids, attended, length, func(row int, x []float32) error {
			if i, token := order[row/length], row%length; token < b.Length(i) {
				vector := dst[(b.Offsets[i]+token)*m.dim:][:m.dim]
				copy(vector, x)
				if !normalize(vector) {
					return fmt.Errorf("%w: token %d of text %d", engine.ErrNotFinite, token, i)
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

// unitTolerance is the largest difference of a unit vector's squared length from 1.
// Most graphs return unit vectors, which are not changed.
const unitTolerance = 1e-3

// normalize scales a vector to unit length, unless it has that, and reports whether it is
// finite. As in PyTorch, a length below 1e-12 counts as 1e-12.
func normalize(x []float32) bool {
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

// runBatch computes a batch of texts that are padded to the same length, and calls visit with the
// vector of each id, including padding. row is the index of the id.
func (m *Model) runBatch(
	ctx context.Context, ids []int32, attended []int, length int, visit func(row int, x []float32) error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.length > length { // only in open, which runs one id
		ids, length = append(ids, make([]int32, m.length-length)...), m.length
	}
	// Create the tensors of the inputs.
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
		data, bytes := pinnedInput(&pin, p.kind, len(ids), func(j int) int32 {
			switch {
			case i == 0:
				return ids[j]
			case i == 1 && j%length < attended[j/length]:
				return 1
			}
			return 0
		})
		if err := a.statusError(a.createTensor(a.memory, data, bytes, &shape[0], 2, p.kind, &values[i])); err != nil {
			return err
		}
	}
	// Run the graph, and stop it when the context ends.
	var options, result handle
	if err := a.statusError(a.createRunOptions(&options)); err != nil {
		return err
	}
	defer a.releaseRunOptions(options)
	terminated := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(terminated)
		a.statusError(a.terminate(options))
	})
	outName := m.out.cname
	err := a.statusError(a.run(m.session, options, &cnames[0], &values[0], uintptr(len(values)), &outName, 1, &result))
	if !stop() {
		<-terminated // options is not used any longer
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
	return m.readVectors(result, len(attended), length, visit)
}

// pinnedInput returns pinned memory with n numbers of a type, and its size in bytes.
func pinnedInput(pin *runtime.Pinner, kind int32, n int, value func(i int) int32) (unsafe.Pointer, uintptr) {
	if kind == typeInt32 {
		x := make([]int32, n)
		for j := range x {
			x[j] = value(j)
		}
		pin.Pin(&x[0])
		return unsafe.Pointer(&x[0]), uintptr(4 * n)
	}
	x := make([]int64, n)
	for j := range x {
		x[j] = int64(value(j))
	}
	pin.Pin(&x[0])
	return unsafe.Pointer(&x[0]), uintptr(8 * n)
}

// readVectors checks the shape of a tensor, and calls visit with its vectors.
func (m *Model) readVectors(result handle, texts, length int, visit func(row int, x []float32) error) error {
	a := m.api
	var info handle
	if err := a.statusError(a.shapeOf(result, &info)); err != nil {
		return err
	}
	defer a.releaseTensorInfo(info)
	kind, shape, err := a.readShape(info)
	if err != nil {
		return err
	}
	if len(shape) != 3 || shape[0] != int64(texts) || shape[1] != int64(length) || shape[2] < 1 ||
		m.dim > 0 && shape[2] != int64(m.dim) {
		return fmt.Errorf("output %s has shape %v, want [%d, %d, dimensions]", m.out.name, shape, texts, length)
	}
	var data unsafe.Pointer
	if err := a.statusError(a.data(result, &data)); err != nil {
		return err
	}
	if data == nil {
		return errors.New("output " + m.out.name + " has no data")
	}
	dim := int(shape[2])
	var vector []float32
	for row := range texts * length {
		switch kind {
		case typeFloat32:
			vector = unsafe.Slice((*float32)(unsafe.Add(data, row*dim*4)), dim)
		case typeFloat16:
			vector = slices.Grow(vector[:0], dim)[:dim]
			for j, h := range unsafe.Slice((*uint16)(unsafe.Add(data, row*dim*2)), dim) {
				vector[j] = kernels.F16ToF32(h)
			}
		default:
			return fmt.Errorf("output %s has elements of type %d", m.out.name, kind)
		}
		if err := visit(row, vector); err != nil {
			return err
		}
	}
	return nil
}

var _ engine.Engine = (*Model)(nil)
