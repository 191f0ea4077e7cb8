package compressed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

const (
	// pieceBytes is the maximum size of a piece that is copied to the device; a larger
	// document is a piece of its own.
	pieceBytes = 32 << 20
	// memoryReserve is the memory of the device that stays free if no limit is given.
	memoryReserve = 256 << 20
	// maxBatchGroups bounds the groups of query tokens of one batch.
	maxBatchGroups = 512
	// workspaceShare is the divisor of the memory limit that gives the limit of batches.
	workspaceShare = 4
	// maxSurplus bounds how many documents more than K a list has room for at first.
	maxSurplus = 4096
)

// attachment is an index on the device. Fields that are not atomic or guarded by mu belong to
// the device's goroutine.
type attachment struct {
	dev          *runtime.Device
	rt           *runtime.Runtime
	memoryLimit  int64
	pieceBytes   int64         // bytes
	alwaysStream bool          // stream even if the index fits
	scanBound    kernels.Bound // the bound of scans; scan_f* are not used with Worst
	shape        *shape
	codec        driver.Mem
	arrays       codecArrays

	lineage      uint64
	firstTile    []uint32 // of each document, and the number of tiles
	residentLive *uint64  // live set of the last snapshot whose documents are all on the device
	tokens       int64
	maxTiles     int64   // of a document
	maxTokens    int64   // of a document
	resident     *packed // nil means that the index is streamed
	streamPiece  *packed // the current piece, if the index is streamed
	liveMem      driver.Mem
	liveSource   *uint64 // the set that live is a copy of
	maxGroups    int
	freed        bool
	replay       replay

	latestShape atomic.Pointer[shape] // that of the last search, or an older one
	surplus     atomic.Int64          // how many documents more than K searches have listed

	mu   sync.Mutex
	plan kernels.MemoryPlan
}

// Attach uploads an index; see [kernels.Device].
func Attach(
	ctx context.Context, d *runtime.Device, c kernels.Corpus, o kernels.AttachOptions,
) (kernels.Attachment, error) {
	a, err := attach(ctx, d, c, o, pieceBytes, false)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// attach is Attach with pieces of a given size. With stream the index is streamed even if it fits.
func attach(
	ctx context.Context, d *runtime.Device, c kernels.Corpus, o kernels.AttachOptions, piece int64, stream bool,
) (*attachment, error) {
	a := &attachment{
		dev:          d,
		pieceBytes:   piece,
		alwaysStream: stream,
		scanBound:    o.Bound,
	}
	err := d.Call(ctx, func(rt *runtime.Runtime) (err error) {
		a.rt = rt
		rt.AddOwner(a)
		defer func() {
			if err != nil {
				a.Free()
			}
		}()
		if a.memoryLimit = o.Memory; a.memoryLimit == 0 {
			free, _, err := rt.Driver.MemInfo()
			if err != nil {
				return err
			}
			a.memoryLimit = int64(free) - memoryReserve
		}
		return a.ensureResident(ctx, c, o.Progress)
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Plan returns how the memory of the device is used.
func (a *attachment) Plan() kernels.MemoryPlan {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plan
}

// Close frees the index on the device.
func (a *attachment) Close() error { return a.dev.FreeOwner(a) }

// Free implements [runtime.Owner].
func (a *attachment) Free() {
	a.freeIndex()
	a.freed = true
	a.rt.RemoveOwner(a)
}

// freeIndex frees the index; the next search uploads it again.
func (a *attachment) freeIndex() {
	c := a.rt.Driver
	for _, p := range []**packed{&a.resident, &a.streamPiece} {
		if *p != nil {
			(*p).freeArrays(c)
			*p = nil
		}
	}
	_ = c.FreeGraph(a.replay.graph)
	a.replay = replay{unsupported: a.replay.unsupported}
	_ = c.Free(a.codec)
	_ = c.Free(a.liveMem)
	a.codec, a.liveMem, a.liveSource = driver.Mem{}, driver.Mem{}, nil
	a.shape = nil
	a.forgetTiles()
}

// forgetTiles empties the table of tiles.
func (a *attachment) forgetTiles() {
	a.firstTile, a.residentLive, a.tokens, a.maxTiles, a.maxTokens = nil, nil, 0, 0, 0
}

// codecArray returns the address of an array of the codec, 0 for the offset −1 of an absent one.
func (a *attachment) codecArray(offset int64) driver.Ptr {
	if offset < 0 {
		return 0
	}
	return a.codec.At(offset)
}

// uploadCodec uploads the arrays of the codec.
func (a *attachment) uploadCodec(c kernels.Corpus) (err error) {
	err = c.Guard(func() (err error) {
		a.shape, err = newShape(c.Codec(), a.rt.Arch() == halfArch && a.scanBound != kernels.Worst)
		return err
	})
	if err != nil {
		a.shape = nil
		return err
	}
	a.latestShape.Store(a.shape)
	a.arrays = a.shape.layOutCodec(c.Codec())
	host := make([]byte, a.arrays.size)
	err = c.Guard(func() error {
		a.shape.writeCodec(host, a.arrays, c.Codec())
		return nil
	})
	if err != nil {
		return err
	}
	if a.codec, err = a.rt.Driver.Alloc(a.arrays.size); err != nil {
		return fmt.Errorf("codec: %w", err)
	}
	if err := a.rt.Driver.ToDevice(a.codec.Ptr, host, a.rt.Stream); err != nil {
		return err
	}
	return a.rt.Sync()
}
