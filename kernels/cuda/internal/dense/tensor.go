package dense

import (
	"fmt"
	"io/fs"
	goruntime "runtime"
	"sync"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Batch describes token vectors in device memory, and how they are divided into items: queries,
// documents, or sets of points.
//
// Packed: item i has the rows Offsets[i] to Offsets[i+1]. Padded: item i has Longest rows
// from row i·Stride on. Its tokens are the first Lengths[i] of them, or those whose byte in
// Mask [Items][MaskStride] is not 0.
//
// An address of 0 means that the array is absent.
type Batch struct {
	Data       uint64 // [Rows][Dim], aligned to the element
	Scales     uint64 // float32 [Rows], the factor of each row, not negative; absent means 1
	Zeros      uint64 // int8 [Rows], of int8 only, subtracted before scaling; absent means 0
	Offsets    uint64 // int32 [Items+1]; absent means that the batch is padded
	Lengths    uint64 // int32 [Items]
	Mask       uint64 // uint8 [Items][MaskStride], instead of Lengths
	MaskStride int
	Type       maxsim.Type
	Dim        int
	Items      int
	Rows       int
	Stride     int // padded: rows from an item to the next
	Longest    int // rows of an item; packed: the maximum of all items
}

// PairKind is how queries and documents form pairs.
type PairKind int

// The kinds of pairs.
const (
	PairsAll    PairKind = iota // each query with each document: [queries][documents]
	PairsOwn                    // query i with the documents i·Count to (i+1)·Count: [queries][Count]
	PairsListed                 // Queries[i] with Documents[i]: [Count]
)

// PairList is the pairs of a call, in the order of its results.
type PairList struct {
	Kind      PairKind
	Count     int
	Queries   uint64 // int32 [Count], of PairsListed
	Documents uint64
}

// Place is the stream and the workspace of a call. Later work in the same stream may use the workspace
// again.
type Place struct {
	Stream         uint64 // CUstream
	Workspace      uint64 // memory of the device, aligned to 256 bytes
	WorkspaceBytes int64
}

// ScoreCall is a computation of MaxSim scores, as [maxsim.Call]. Scores of pairs without tokens are 0.
type ScoreCall struct {
	Place     Place
	Q, D      Batch
	Pairs     PairList
	Weights   uint64 // float32 [Q.Rows]; absent means 1. Rows that are not tokens have no weight.
	Normalize bool   // vectors are divided by their length first
	Scores    uint64 // out, float32 [pairs]
	Argmax    uint64 // out, int32 [pairs][Q.Longest], rows of the document, −1 for rows without a token; or 0

	head *HeadCall // computes the token vectors of D, nil means that D has them
}

// unitQueries reports whether queries are divided by their lengths. With a head only the token vectors
// that it computes are.
func (c *ScoreCall) unitQueries() bool { return c.Normalize && c.head == nil }

// Device is one GPU with the code for plain token vectors, for calls on the caller's memory and
// streams: a call puts its work into a stream of the primary context and
// does not wait for it. Any thread may call. Nothing is allocated in the stream; tables that depend on the
// shapes of a call are made once and kept.
type Device struct {
	mu sync.Mutex
	rt *runtime.Runtime // its Stream is that of the current call
	// tableStream is the stream in which tables are copied.
	tableStream driver.Stream
	plans       planCache
	limits      callLimits
	score       scoreLaunch     // the current call
	grad        denseGradParams // parameters of its kernel
}

// NewDevice loads the code for a device of the driver.
func NewDevice(api *driver.API, props driver.Info, modules fs.FS) (*Device, error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	previous, err := driver.Current(api)
	if err != nil {
		return nil, err
	}
	defer func() { _ = driver.SetCurrent(api, previous) }()
	rt, err := runtime.Borrow(api, props, modules, "dense")
	if err != nil {
		return nil, err
	}
	d := &Device{rt: rt, limits: tensorLimits}
	if d.tableStream, err = rt.Driver.NewStream(); err != nil {
		_ = rt.CloseBorrowed()
		return nil, err
	}
	return d, nil
}

// Close frees the plans, and releases the code and the context. The device must not have unfinished work.
func (d *Device) Close() error {
	return d.onStream(0, func() error {
		d.plans.freeAll(d.rt.Driver)
		_ = d.rt.Driver.FreeStream(d.tableStream)
		return d.rt.CloseBorrowed()
	})
}

// onStream calls fn with the device locked, its context current and its stream set to the given one.
func (d *Device) onStream(stream uint64, fn func() error) (err error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	d.mu.Lock()
	defer d.mu.Unlock()
	previous, err := d.rt.Driver.Enter()
	if err != nil {
		return err
	}
	defer func() {
		if leaveErr := d.rt.Driver.Leave(previous); err == nil {
			err = leaveErr
		}
	}()
	d.rt.Stream = driver.StreamFromHandle(driver.StreamHandle(stream))
	return fn()
}

// checkOperand validates the sizes and the addresses of a batch, not the values in the device's memory.
func (b *Batch) checkOperand(side string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", kernels.ErrShape, side, fmt.Sprintf(format, args...))
	}
	switch {
	case b.Type < maxsim.F32 || b.Type > maxsim.E4M3:
		return bad("there is no type %d", b.Type)
	case b.Dim < 1 || b.Dim > kernels.MaxDim:
		return bad("%d dimensions; 1 to %d are possible", b.Dim, kernels.MaxDim)
	case b.Items < 0 || b.Rows < 0 || b.Longest < 0 || b.Stride < 0 || b.MaskStride < 0:
		return bad("a size is negative")
	case b.Items >= 1<<31 || b.Rows >= 1<<31 || b.Longest >= 1<<31:
		return bad("%d items, %d rows, the longest of %d; all have to be below 2^31", b.Items, b.Rows, b.Longest)
	case b.Zeros != 0 && b.Type != maxsim.I8:
		return bad("zero points of %s; only int8 has some", b.Type)
	case b.Data%uint64(b.Type.Size()) != 0:
		return bad("data at %#x is not aligned to an element", b.Data)
	case b.Rows > 0 && b.Data == 0:
		return bad("no data")
	case b.Offsets == 0 && b.Items > 0 && b.Longest > 0 && (b.Items-1)*b.Stride+b.Longest > b.Rows:
		return bad("%d items of %d rows, %d apart, in %d rows", b.Items, b.Longest, b.Stride, b.Rows)
	case b.Lengths != 0 && b.Mask != 0:
		return bad("lengths and a mask")
	case b.Offsets != 0 && (b.Lengths != 0 || b.Mask != 0):
		return bad("offsets, and lengths or a mask")
	case b.Mask != 0 && b.Items > 1 && b.MaskStride < b.Longest:
		return bad("masks of %d rows are %d bytes apart", b.Longest, b.MaskStride)
	}
	return nil
}

// itemStride returns the number of rows from an item to the next. A single item may have any Stride: all
// rows are its own.
func (b *Batch) itemStride() int {
	if b.Items <= 1 {
		return max(b.Rows, 1)
	}
	return b.Stride
}

// countPairs validates the pairs, and returns their number.
func (p *PairList) countPairs(q, d *Batch) (int, error) {
	switch p.Kind {
	case PairsAll:
		if d.Items > 0 && q.Items > (1<<62)/d.Items {
			return 0, fmt.Errorf("%w: %d queries by %d documents", kernels.ErrShape, q.Items, d.Items)
		}
		return q.Items * d.Items, nil
	case PairsOwn:
		if p.Count < 0 || q.Items > 0 && p.Count > d.Items/q.Items || q.Items*p.Count != d.Items {
			return 0, fmt.Errorf("%w: %d queries with %d documents each, of %d", kernels.ErrShape, q.Items, p.Count,
				d.Items)
		}
		return d.Items, nil
	case PairsListed:
		if p.Count < 0 || p.Count >= 1<<31 || p.Count > 0 && (p.Queries == 0 || p.Documents == 0) {
			return 0, fmt.Errorf("%w: a list of %d pairs", kernels.ErrShape, p.Count)
		}
		return p.Count, nil
	}
	return 0, fmt.Errorf("%w: there is no kind %d of pairs", kernels.ErrShape, p.Kind)
}

// checkGradient checks the type and the address of the gradient of a batch. An address of 0 means that it
// is not wanted.
func (b *Batch) checkGradient(side string, out uint64, kind maxsim.Type) error {
	switch {
	case out == 0:
	case b.Type >= maxsim.I8:
		return fmt.Errorf("%w: a gradient of %s of type %s, which are constants", driver.ErrUnsupported, side, b.Type)
	case kind < maxsim.F32 || kind > maxsim.BF16:
		return fmt.Errorf("%w: a gradient of %s of type %s; want float32, float16 or bfloat16",
			driver.ErrUnsupported, side,
			kind)
	case out%uint64(kind.Size()) != 0:
		return fmt.Errorf("%w: the gradient of %s at %#x is not aligned to an element", kernels.ErrShape, side, out)
	case b.itemsShareRows():
		return fmt.Errorf("%w: a gradient of %s of %d rows that are %d apart", kernels.ErrShape, side, b.Longest,
			b.Stride)
	}
	return nil
}
