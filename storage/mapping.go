package storage

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// mappedBytes is the address space that a writer maps: the file can grow to that
// size. It is as much as the largest file of ext4, enough for the largest number
// of documents of 100 tokens each, and an eighth of what a process has on x86-64; it
// takes no memory.
var mappedBytes int64 = 16 << 40 // a variable, so that tests can reach its end

// mappedLeast is where a writer gives up looking for room to grow.
const mappedLeast = 64 << 20

// growBytes is how far the file grows beyond what is needed at the moment.
const growBytes = 32 << 10

// writable refuses systems where there is no address space to spare, or where it
// would become part of the file.
func writable() error {
	if bits.UintSize < 64 || runtime.GOOS == "windows" {
		return fmt.Errorf("writing an index on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
	}
	return nil
}

// errSmaller: there is not that much address space, a smaller mapping may do.
var errSmaller = errors.New("no address space")

// mapFile gives a locked file to bbolt, which maps it; a writer maps as much of
// mappedBytes as a limit on address space leaves: smaller says how many times less
// than that is to be tried. To map a file anew bbolt waits for readers, of which
// the writer itself may be one: so it may not grow beyond. After an error the file
// is closed.
func mapFile(file *os.File, write bool, smaller int) (h *handle, err error) {
	path := file.Name()
	defer func() {
		if err != nil {
			closeLeft(file)
		}
	}()
	bo := &bolt.Options{
		ReadOnly:     !write,
		FreelistType: bolt.FreelistMapType,
		OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return file, nil },
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening index: %w", err)
	}
	last := true
	if write {
		sizes := mapSizes(info.Size())
		last = smaller == len(sizes)-1
		bo.InitialMmapSize, bo.MaxSize = int(sizes[smaller]), int(sizes[smaller])
	}
	defer Guard(path, &err)()
	db, err := bolt.Open(path, 0, bo)
	switch {
	case errors.Is(err, syscall.ENOMEM) && !last:
		return nil, errSmaller
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	db.AllocSize = growBytes
	return &handle{db: db, file: file, opened: info, pageSize: db.Info().PageSize, refs: 1}, nil
}

// closeLeft closes a file that bbolt has not closed because it panicked.
func closeLeft(file *os.File) {
	if _, err := file.Stat(); err == nil {
		unlock(file)
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
