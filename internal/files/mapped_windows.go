package files

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func mapFile(f *os.File, size int) ([]byte, func() error, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, nil, err
	}
	// The view keeps the mapping.
	defer windows.CloseHandle(h)
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, nil, err
	}
	// The memory is not Go's; the conversion goes through a pointer so that vet, which
	// cannot know, has nothing to say.
	data := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
	return data, func() error { return windows.UnmapViewOfFile(addr) }, nil
}
