// Package torch reads the tensors of files that torch.save wrote, such as pytorch_model.bin and the .pt
// files of ColBERT. It executes nothing in them: it runs a pickle on a machine that knows only tensors and
// their containers.
package torch

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

// ErrUnsupported means that a file may be valid but is not read by this package, or has more than
// tensors. A damaged file is [vectors.ErrFormat].
var ErrUnsupported = errors.New("torch file that is not read")

// maxMembers is the maximum number of entries of an archive. torch.save writes five, and one per storage.
const maxMembers = 1 << 15

// File is the named tensors of a file. The names are the keys of a dictionary, the indexes in a list, or 0
// for a single tensor.
type File struct {
	names   []string
	tensors map[string]storedTensor
	closer  io.Closer
}

// storedTensor is a tensor and its storage.
type storedTensor struct {
	*pickleTensor
	member *io.SectionReader // the bytes of the storage
	label  string            // for errors
}

// Open opens a file. Errors name it ([*vectors.FileError]) and wrap [vectors.ErrFormat],
// [ErrUnsupported] or an error of the operating system.
func Open(path string) (*File, error) {
	file, info, err := files.OpenInput(path)
	if err != nil {
		return nil, err
	}
	f, err := New(file, info.Size(), path)
	if err != nil {
		file.Close()
		return nil, vectors.NewFileError(path, err)
	}
	f.closer = file
	return f, nil
}

// New reads the descriptions of the tensors in an archive of size bytes, but not the tensors. Errors of
// the arrays show name in place of a path. Errors wrap [vectors.ErrFormat] or [ErrUnsupported].
func New(r io.ReaderAt, size int64, name string) (*File, error) {
	if err := checkMagic(r); err != nil {
		return nil, err
	}
	// The directory of the archive.
	z, err := zip.NewReader(io.NewSectionReader(r, 0, size), size)
	if err != nil {
		return nil, fmt.Errorf("%w: torch archive: %w", vectors.ErrFormat, err)
	}
	if len(z.File) > maxMembers {
		return nil, fmt.Errorf("%w: torch archive of %d members", ErrUnsupported, len(z.File))
	}
	members, prefix, err := archiveMembers(z)
	if err != nil {
		return nil, err
	}
	if f := members[prefix+"byteorder"]; f != nil {
		order, err := readMember(r, size, f, 16)
		if err != nil {
			return nil, err
		}
		if string(order) != "little" {
			return nil, fmt.Errorf("%w: torch archive in byte order %q", ErrUnsupported, order)
		}
	}
	// The descriptions, in a pickle.
	pickle, err := readMember(r, size, members[prefix+"data.pkl"], maxPickle)
	if err != nil {
		return nil, err
	}
	described, err := unpickleTensors(pickle)
	if err != nil {
		return nil, err
	}
	// The storages.
	t := &File{tensors: make(map[string]storedTensor, len(described))}
	for _, d := range described {
		f := members[prefix+"data/"+d.storage.key]
		if f == nil {
			return nil, fmt.Errorf("%w: torch archive lacks storage %.40q", vectors.ErrFormat, d.storage.key)
		}
		m, err := openMember(r, size, f)
		if err != nil {
			return nil, err
		}
		s := storedTensor{d.pickleTensor, m, fmt.Sprintf("%s[%.80s]", name, d.name)}
		if _, err := s.storageArray(); err != nil {
			return nil, fmt.Errorf("storage %.40q: %w", d.storage.key, withoutPath(err))
		}
		t.names = append(t.names, d.name)
		t.tensors[d.name] = s
	}
	return t, nil
}

// Names returns the names of the tensors, in the order of the file.
func (f *File) Names() []string { return f.names }

// Array returns a tensor in row-major order, which is valid until the file is closed. A tensor in another
// order, such as a transposed one, is read into memory.
func (f *File) Array(name string) (*vectors.Array, error) {
	s, ok := f.tensors[name]
	if !ok {
		return nil, fmt.Errorf("%w: there is no tensor named %.80q", vectors.ErrFormat, name)
	}
	if s.stride == nil {
		return vectors.NewRawArray(s.member, s.member.Size(), s.label, s.storage.dtype, s.offset, s.shape)
	}
	return s.gather()
}

// Close closes the file that [Open] opened.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// storageArray returns the range of the storage that has the elements of the tensor: exactly these if the
// tensor is contiguous, otherwise the complete storage.
func (s *storedTensor) storageArray() (*vectors.Array, error) {
	shape, first := s.shape, s.offset
	if s.stride != nil {
		shape, first = []int{int(s.storage.numel)}, 0
	}
	return vectors.NewRawArray(s.member, s.member.Size(), s.label, s.storage.dtype, first, shape)
}

// gather copies the elements of a tensor with strides to memory in row-major order.
func (s *storedTensor) gather() (*vectors.Array, error) {
	storage, err := s.storageArray()
	if err != nil {
		return nil, err
	}
	width := int64(storage.Width())
	src := make([]byte, s.storage.numel*width)
	if _, err := s.member.ReadAt(src, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, vectors.NewFileError(s.label, err)
	}
	dst := make([]byte, 0, s.numel*width)
	index := make([]int, len(s.shape)) // of the next element, in each dimension
	for range s.numel {
		element := s.offset
		for i, n := range index {
			element += int64(n) * s.stride[i]
		}
		dst = append(dst, src[element*width:(element+1)*width]...)
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < s.shape[i] {
				break
			}
			index[i] = 0
		}
	}
	return vectors.NewRawArray(bytes.NewReader(dst), int64(len(dst)), s.label, s.storage.dtype, 0, s.shape)
}

// withoutPath returns the cause of a [vectors.FileError].
func withoutPath(err error) error {
	if f, ok := errors.AsType[*vectors.FileError](err); ok {
		return f.Err
	}
	return err
}

// checkMagic checks that a file is an archive. It has separate errors for other files of torch and pickle.
func checkMagic(r io.ReaderAt) error {
	var magic [16]byte
	n, err := r.ReadAt(magic[:], 0)
	if err != nil && err != io.EOF {
		return err
	}
	switch head := magic[:n]; {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil
	case bytes.HasPrefix(head, []byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")):
		return fmt.Errorf("%w: a file of the format before 1.6: load it and save it again with a later torch",
			ErrUnsupported)
	case bytes.HasPrefix(head, []byte{opProto}):
		return fmt.Errorf("%w: a bare pickle, not a torch archive", ErrUnsupported)
	}
	return fmt.Errorf("%w: not a torch archive", vectors.ErrFormat)
}

// archiveMembers returns the members by name, and the folder of data.pkl.
func archiveMembers(z *zip.Reader) (members map[string]*zip.File, prefix string, err error) {
	members = make(map[string]*zip.File, len(z.File))
	found := 0
	for _, f := range z.File {
		if members[f.Name] != nil {
			return nil, "", fmt.Errorf("%w: torch archive has %q twice", vectors.ErrFormat, f.Name)
		}
		members[f.Name] = f
		// The folder inside the archive is named after the file that was
		// saved, which may have been renamed since.
		if p, ok := strings.CutSuffix(f.Name, "data.pkl"); ok && (p == "" || strings.HasSuffix(p, "/")) {
			prefix = p
			found++
		}
	}
	if found != 1 {
		return nil, "", fmt.Errorf("%w: torch archive with %d data.pkl", vectors.ErrFormat, found)
	}
	return members, prefix, nil
}

// readMember reads all bytes of a member, at most limit.
func readMember(r io.ReaderAt, size int64, f *zip.File, limit int64) ([]byte, error) {
	m, err := openMember(r, size, f)
	if err != nil {
		return nil, err
	}
	if m.Size() > limit {
		return nil, fmt.Errorf("%w: %q has %d bytes, more than %d", ErrUnsupported, f.Name, m.Size(), limit)
	}
	return io.ReadAll(m)
}

// openMember opens a member, after checking its offset and size in the directory. It ignores the checksum,
// since torch can be configured not to compute it.
func openMember(r io.ReaderAt, size int64, f *zip.File) (*io.SectionReader, error) {
	if f.Flags&1 != 0 || f.Method != zip.Store {
		return nil, fmt.Errorf("%w: %q is encrypted or compressed, which torch.save never does", ErrUnsupported, f.Name)
	}
	offset, err := f.DataOffset()
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", vectors.ErrFormat, f.Name, err)
	}
	n := f.UncompressedSize64
	if offset < 0 || offset > size || n > uint64(size-offset) || n != f.CompressedSize64 {
		return nil, fmt.Errorf("%w: %q of %d bytes at %d exceeds the file's %d",
			vectors.ErrFormat, f.Name, n, offset, size)
	}
	return io.NewSectionReader(r, offset, int64(n)), nil
}
