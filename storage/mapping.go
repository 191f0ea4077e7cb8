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

// mappedBytes is the address space in bytes that a writer maps, which is the maximum size of its
// file. It equals the largest file of ext4, suffices for MaxDocs documents of 100 tokens, and is an
// eighth of the address space of a process on x86-64. It uses no memory.
var mappedBytes int64 = 16 << 40 // a variable, so that tests can reach its end

// minMappedBytes is the smallest mapping in bytes that is tried for a small file.
const minMappedBytes = 64 << 20

// reservedBytes is the address space in bytes that the writers of this process have mapped. The first
// ones map as much as they want; a service has many, which share the remaining space.
var reservedBytes atomic.Int64

// A process has 128 TiB of address space on x86-64. As long as writers have mapped no more than
// reservedFreely, the next one maps as much as it wants. A later one maps at most 1/reservedDivisor
// of the remaining space, up to maxReserved in all: 256 GiB each for about 150 writers, 32 GiB for
// the next hundreds, and so on.
const (
	reservedFreely  = 48 << 40
	maxReserved     = 112 << 40
	reservedDivisor = 64
)

// firstAllowedSize returns the index of the first of the descending sizes that a new writer may map.
func firstAllowedSize(sizes []int64) int {
	mapped := reservedBytes.Load()
	if mapped <= reservedFreely {
		return 0
	}
	limit := (maxReserved - mapped) / reservedDivisor
	for i, n := range sizes {
		if n <= limit {
			return i
		}
	}
	return len(sizes) - 1
}

// growStepBytes is the number of bytes by which the file grows beyond its current need.
const growStepBytes = 32 << 10

// checkCanWrite returns an error on systems that cannot write an index: those of 32 bits have too little
// address space, and on Windows bbolt's mapping lock is needed.
func checkCanWrite() error {
	if bits.UintSize < 64 || files.EmulateWindows && boltMappingLock(new(bolt.DB)) == nil {
		return fmt.Errorf("writing an index on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
	}
	return nil
}

// errMapTooLarge means that there is too little address space, and a smaller mapping can be tried.
var errMapTooLarge = errors.New("no address space")

// openMapped lets bbolt open and map a locked file. A writer maps all the space into which the file may
// grow: to remap it, bbolt would wait for readers, and the writer itself may be one of them.
//
// expected is the size in bytes to which the file will grow, 0 if unknown. failedAttempts is the
// number of attempts that failed with errMapTooLarge before: it selects a smaller mapping. After an
// error the file is closed.
func openMapped(file *os.File, write bool, expected int64, failedAttempts int) (h *handle, err error) {
	path := file.Name()
	defer func() {
		if err != nil {
			closeUnlessClosed(file)
		}
	}()
	// Select the size of the mapping.
	bo := optionsFor(file, write)
	info, err := file.Stat()
	if err != nil {
		return nil, boltfile.WithPath(file.Name(), err)
	}
	isSmallest := true
	h = &handle{file: file, opened: info, refs: 1}
	if write && !files.EmulateWindows {
		sizes := mapSizes(max(info.Size(), expected))
		i := min(firstAllowedSize(sizes)+failedAttempts, len(sizes)-1)
		isSmallest = i == len(sizes)-1
		h.reserved = sizes[i]
		bo.InitialMmapSize, bo.MaxSize = int(h.reserved), int(h.reserved)
	}
	// Map it.
	defer Guard(path, &err)()
	db, err := bolt.Open(path, 0, bo)
	switch {
	case errors.Is(err, syscall.ENOMEM) && !isSmallest:
		return nil, errMapTooLarge
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", path, ErrLocked)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// Select how the file grows.
	if write && files.EmulateWindows {
		h.remapLock = boltMappingLock(db)
		db.AllocSize = 1 << 30 // the step of bbolt's mappings, which are as long as the file on Windows
	} else {
		db.AllocSize = growStepBytes
	}
	h.db, h.pageSize = db, db.Info().PageSize
	reservedBytes.Add(h.reserved)
	openHandles.Store(h, write)
	return h, nil
}

// close closes the file. The caller has released the last reference.
func (h *handle) close() error {
	reservedBytes.Add(-h.reserved)
	openHandles.Delete(h)
	err := errors.Join(h.readMapping.release(), h.db.Close()) // no snapshot uses the second mapping now
	if h.removeAtClose != "" {
		_ = os.Remove(h.removeAtClose) // otherwise removeReplaced removes it
	}
	return err
}

// openHandles maps the open handles of this process to a bool: true for those that write.
var openHandles sync.Map

// lockedError returns the [ErrLocked] of a file: lockedHereError if this process itself has it open.
func lockedError(file *os.File, write bool) (err error) {
	info, serr := file.Stat()
	if serr != nil {
		return ErrLocked
	}
	err = ErrLocked
	openHandles.Range(func(h, writes any) bool {
		if (write || writes.(bool)) && os.SameFile(info, h.(*handle).opened) {
			err = lockedHereError{}
		}
		return err == ErrLocked
	})
	return err
}

// lockedHereError is the [ErrLocked] of a file that this process has open.
type lockedHereError struct{}

func (lockedHereError) Error() string { return "index is locked: it is open in this program already" }
func (lockedHereError) Unwrap() error { return ErrLocked }

// optionsFor returns the options with which bbolt opens a file that is already open and locked.
func optionsFor(file *os.File, write bool) *bolt.Options {
	return &bolt.Options{
		ReadOnly:     !write,
		FreelistType: bolt.FreelistMapType,
		OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return file, nil },
		Timeout:      time.Nanosecond, // do not wait: only a program with bbolt's lock alone can hold it now
	}
}

// closeUnlessClosed closes a file unless bbolt has closed it. After a panic bbolt has not.
func closeUnlessClosed(file *os.File) {
	if _, err := file.Stat(); err == nil {
		files.Unlock(file)
		_ = file.Close()
	}
}

// mapSizes returns the sizes of mappings to try for a file, largest first. bbolt does not round them.
func mapSizes(fileBytes int64) []int64 {
	var sizes []int64
	smallest := min(mappedBytes, minMappedBytes)
	for n := max(mappedBytes, 4*fileBytes); n > smallest && n >= 2*fileBytes; n /= 8 {
		sizes = append(sizes, roundMapSize(n))
	}
	return append(sizes, roundMapSize(max(fileBytes+1, smallest)))
}

// roundMapSize returns the size that bbolt maps for n bytes: a power of two from 32 KiB on, and a multiple
// of 1 GiB above that.
func roundMapSize(n int64) int64 {
	const smallest, step = 32 << 10, 1 << 30
	if n > step {
		return (n + step - 1) / step * step
	}
	return max(smallest, int64(1)<<bits.Len64(uint64(n-1)))
}
