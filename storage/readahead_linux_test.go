package storage

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestPiecesOfSpan(t *testing.T) {
	require.Equal(t, []memorySpan{{4096, 4096 + maxWillNeedBytes}, {4096 + maxWillNeedBytes, 5000 + maxWillNeedBytes}},
		slices.Collect(memorySpan{4096, 5000 + maxWillNeedBytes}.subspans))
	require.Empty(t, slices.Collect(memorySpan{4096, 4096}.subspans))
}

// Pages behind the first 256, which are looked at together, are found too.
func TestMissingPage(t *testing.T) {
	size := os.Getpagesize()
	const pages = 300
	memory, err := syscall.Mmap(-1, 0, pages*size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Munmap(memory)) }()
	require.NoError(t, syscall.Madvise(memory, 15)) // MADV_NOHUGEPAGE: a touch brings one page
	for i := range pages - 1 {
		memory[i*size] = 1
	}
	lo := uintptr(unsafe.Pointer(&memory[0]))
	require.False(t, isMissing(memorySpan{lo, lo + uintptr((pages-1)*size)}))
	require.True(t, isMissing(memorySpan{lo, lo + uintptr(pages*size)}))
	memory[(pages-1)*size] = 1
	require.False(t, isMissing(memorySpan{lo + 1, lo + uintptr(pages*size)}))
}
