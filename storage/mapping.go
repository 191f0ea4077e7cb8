package storage

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// mappedBytes is the address space that a writer maps: the file can grow to that
// size. It is as much as the largest file of ext4, enough for the largest number
// of documents of 100 tokens each, and an eighth of what a process has on x86-64; it
// takes no memory.
var mappedBytes int64 = 16 << 40 // a variable, so that tests can reach its end

// mappedLeast is where a writer gives up looking for room to grow.
const mappedLeast = 64 << 20

// reserved is the address space that the writers of this process have mapped. The first
// ones take as much as they like; a service has many, which share the rest.
var reserved atomic.Int64

// Of 128 TiB that a process has on x86-64, so much is for the first writers, and so much
// in all. A later one takes no more than a 64th of what is left: 256 GiB each for a
// hundred and fifty, 32 GiB for the next hundreds, and so on.
const (
	reservedFirst = 48 << 40
	reservedMost  = 112 << 40
	reservedShare = 64
)

// fairSize is the first of the sizes, which fall, that is this process's due.
func fairSize(sizes []int64) int {
	taken := reserved.Load()
	if taken <= reservedFirst {
		return 0
	}
	most := (reservedMost - taken) / reservedShare
	for i, n := range sizes {
		if n <= most {
			return i
		}
	}
	return len(sizes) - 1
}

// growBytes is how far the file grows beyond what is needed at the moment.
const growBytes = 32 << 10

// writable refuses systems where there is no address space to spare.
func writable() error {
	if bits.UintSize < 64 || files.AsOnWindows && mappingLock(new(bolt.DB)) == nil {
		return fmt.Errorf("writing an index on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
	}
	return nil
}

// errSmaller: there is not that much address space, a smaller mapping may do.
var errSmaller = errors.New("no address space")

// mapFile gives a locked file to bbolt, which maps it; a writer maps as much of
// mappedBytes as a limit on address space leaves: smaller says how many times less
// than that is to be tried. To map a file anew bbolt waits for readers, of which
// the writer itself may be one: so it may not grow beyond. It is expected to grow to a
// size, as far as that is known. After an error the file is closed.
func mapFile(file *os.File, write bool, expected int64, smaller int) (h *handle, err error) {
	path := file.Name()
	defer func() {
		if err != nil {
			closeLeft(file)
		}
	}()
	bo := optionsFor(file, write)
	info, err := file.Stat()
	if err != nil {
		return nil, boltfile.WithPath(file.Name(), err)
	}
	last := true
	h = &handle{file: file, opened: info, refs: 1}
	if write && !files.AsOnWindows {
		sizes := mapSizes(max(info.Size(), expected))
		chosen := min(fairSize(sizes)+smaller, len(sizes)-1)
		last = chosen == len(sizes)-1
		h.reserved = sizes[chosen]
		bo.InitialMmapSize, bo.MaxSize = int(h.reserved), int(h.reserved)
	}
	defer Guard(path, &err)()
	db, err := bolt.Open(path, 0, bo)
	switch {
	case errors.Is(err, syscall.ENOMEM) && !last:
		return nil, errSmaller
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", path, ErrLocked)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if write && files.AsOnWindows {
		h.mapping = mappingLock(db)
		db.AllocSize = 1 << 30 // what bbolt maps, as on Windows
	} else {
		db.AllocSize = growBytes
	}
	h.db, h.pageSize = db, db.Info().PageSize
	reserved.Add(h.reserved)
	openHandles.Store(h, write)
	return h, nil
}

// close closes the file when nobody uses it any more.
func (h *handle) close() error {
	reserved.Add(-h.reserved)
	openHandles.Delete(h)
	err := errors.Join(h.readMapping.release(), h.db.Close()) // no view has it any more
	if h.gone != "" {
		_ = os.Remove(h.gone) // else it is swept when the index is opened
	}
	return err
}

// openHandles are the handles of this process, each with whether it writes.
var openHandles sync.Map

// lockedError is [ErrLocked] for a file; it says so if this process itself has the file open.
func lockedError(file *os.File, write bool) (err error) {
	info, serr := file.Stat()
	if serr != nil {
		return ErrLocked
	}
	err = ErrLocked
	openHandles.Range(func(h, writes any) bool {
		if (write || writes.(bool)) && os.SameFile(info, h.(*handle).opened) {
			err = ownLock{}
		}
		return err == ErrLocked
	})
	return err
}

// ownLock is the [ErrLocked] of a file that this process has open.
type ownLock struct{}

func (ownLock) Error() string { return "index is locked: it is open in this program already" }
func (ownLock) Unwrap() error { return ErrLocked }

// optionsFor is how bbolt opens a file that is open and locked.
func optionsFor(file *os.File, write bool) *bolt.Options {
	return &bolt.Options{
		ReadOnly:     !write,
		FreelistType: bolt.FreelistMapType,
		OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return file, nil },
		Timeout:      time.Nanosecond, // its lock is had already, or a program has it that knows only that one
	}
}

// closeLeft closes a file that bbolt has not closed because it panicked.
func closeLeft(file *os.File) {
	if _, err := file.Stat(); err == nil {
		files.Unlock(file)
		_ = file.Close()
	}
}

// mapSizes is what to try to map for a file of a size, largest first: sizes that
// bbolt does not round.
func mapSizes(file int64) []int64 {
	var sizes []int64
	least := min(mappedBytes, mappedLeast)
	for n := max(mappedBytes, 4*file); n > least && n >= 2*file; n /= 8 {
		sizes = append(sizes, mapStep(n))
	}
	return append(sizes, mapStep(max(file+1, least)))
}

// mapStep is the size that bbolt maps for n bytes: a power of two, and whole
// gibibytes above one of them.
func mapStep(n int64) int64 {
	const least, step = 32 << 10, 1 << 30
	if n > step {
		return (n + step - 1) / step * step
	}
	return max(least, int64(1)<<bits.Len64(uint64(n-1)))
}
