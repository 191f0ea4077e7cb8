package partly

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// fence is a mapping of a file.
type fence struct {
	memory uintptr
	from   int64 // of the file
	length int64
}

// mappings returns the mappings of a file in this process.
func mappings(t testing.TB, path string) (fences []fence) {
	t.Helper()
	maps, err := os.Open("/proc/self/maps")
	require.NoError(t, err)
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if !strings.HasSuffix(lines.Text(), " "+path) {
			continue
		}
		var lo, hi uintptr
		var perm string
		var from int64
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x", &lo, &hi, &perm, &from)
		require.NoError(t, err)
		fences = append(fences, fence{lo, from, int64(hi - lo)})
	}
	require.NotEmpty(t, fences)
	return fences
}

func (f fence) allowReads(off, n int64) error  { return f.protect(off, n, syscall.PROT_READ) }
func (f fence) forbidReads(off, n int64) error { return f.protect(off, n, syscall.PROT_NONE) }

// protect sets the access to a range of the file, if it is in the mapping.
func (f fence) protect(off, n int64, access int) error {
	if off < f.from || off+n > f.from+f.length {
		return nil
	}
	address := f.memory + uintptr(off-f.from)
	// go vet refuses the direct conversion of a uintptr.
	return syscall.Mprotect(unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n), access)
}
