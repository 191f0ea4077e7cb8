package vectors

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxInflate is an upper bound of the ratio by which deflate can expand data (1,032). A member that
// claims more is malformed.
const maxInflate = 1100

// maxMembers is the maximum number of arrays in a container.
const maxMembers = 1 << 16

// NPZ is a zip archive of NumPy arrays, as numpy.savez and
// numpy.savez_compressed write it.
type NPZ struct {
	path    string
	size    int64
	names   []string
	members map[string]*zip.File
	r       io.ReaderAt
	owner
}

// OpenNPZ opens a .npz file. Errors are [*FileError].
func OpenNPZ(path string) (*NPZ, error) { return new(inputs).openNPZ(path) }

func (in *inputs) openNPZ(path string) (*NPZ, error) { return openAs(in, path, readNPZ) }

// readNPZ reads the directory of an archive of size bytes. Errors show name in place of a path.
func readNPZ(r io.ReaderAt, size int64, name string) (*NPZ, error) {
	// A section refuses offsets beyond the end of the file, which the directory may have.
	section := io.NewSectionReader(r, 0, size)
	zr, err := zip.NewReader(section, size)
	if err != nil {
		return nil, NewFileError(name, zipError(err))
	}
	if len(zr.File) > maxMembers {
		return nil, faultf(name, ErrFormat, "archive of %d members, more than %d", len(zr.File), maxMembers)
	}
	z := &NPZ{path: name, size: size, r: section, members: make(map[string]*zip.File, len(zr.File))}
	for _, f := range zr.File {
		arrayName, isArray := strings.CutSuffix(f.Name, ".npy")
		if !isArray {
			continue
		}
		if z.members[arrayName] != nil {
			return nil, faultf(name, ErrFormat, "two arrays are named %.80q", arrayName)
		}
		z.members[arrayName] = f
		z.names = append(z.names, arrayName)
	}
	return z, nil
}

// zipError marks errors of archive/zip about the content as [ErrFormat].
func zipError(err error) error {
	for _, contentErr := range []error{zip.ErrFormat, zip.ErrAlgorithm, zip.ErrChecksum, zip.ErrInsecurePath} {
		if errors.Is(err, contentErr) {
			return fmt.Errorf("%w: %v", ErrFormat, err)
		}
	}
	return malformed(err)
}

// Names returns the names of the arrays, without .npy, in the order of the archive.
func (z *NPZ) Names() []string { return z.names }

// Array opens an array, which is valid until the archive is closed. A stored member is read in place. A
// deflated one is inflated as far as it is read, into memory if it is small, otherwise into a temporary
// file that Close of the array removes.
//
// Errors: those of [NewNPY], and [ErrFormat] for a member with impossible sizes, or one that inflates to
// another size than it declares.
func (z *NPZ) Array(name string) (*Array, error) {
	f := z.members[name]
	if f == nil {
		return nil, faultf(z.path, ErrFormat, "has no array named %q", name)
	}
	label := fmt.Sprintf("%s[%.80s]", z.path, name)
	packed, plain := f.CompressedSize64, f.UncompressedSize64
	start, err := f.DataOffset()
	if err != nil {
		return nil, NewFileError(label, zipError(err))
	}
	switch {
	case f.Flags&1 != 0:
		return nil, faultf(label, ErrFormat, "is encrypted")
	case start < 0 || packed > uint64(z.size) || start > z.size-int64(packed):
		return nil, faultf(label, ErrFormat, "member of %d bytes at byte %d of a file of %d", packed, start, z.size)
	case f.Method == zip.Store && packed != plain:
		return nil, faultf(label, ErrFormat, "stored member of %d bytes claims %d", packed, plain)
	case f.Method == zip.Deflate && plain > packed*maxInflate:
		return nil, faultf(label, ErrFormat, "member of %d bytes claims to inflate to %d, beyond what deflate can do",
			packed, plain)
	}
	var a *Array
	switch f.Method {
	case zip.Store:
		a, err = NewNPY(io.NewSectionReader(z.r, start, int64(packed)), int64(plain), label)
	case zip.Deflate:
		s := &inflated{open: f.Open, size: int64(plain)}
		if a, err = NewNPY(s, s.size, label); err != nil {
			s.Close()
			break
		}
		a.setFile(s)
	default:
		return nil, faultf(label, ErrFormat, "compression method %d is not read", f.Method)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}
