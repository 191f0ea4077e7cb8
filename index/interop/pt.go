package interop

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/plaid-ir/plaid/vectors"
)

// maxMembers bounds the entries of a .pt archive; torch.save writes five and one a storage.
const maxMembers = 1 << 12

// readPT reads a torch.save archive of size bytes: a zip of data.pkl, which describes
// tensors, and one data/N for each storage. Nothing in it is executed (see unpickler), and
// no storage is read before it is asked for.
func readPT(r io.ReaderAt, size int64) ([]*vectors.Array, error) {
	if err := checkPTMagic(r); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("%w: torch archive: %w", ErrBroken, err)
	}
	if len(z.File) > maxMembers {
		return nil, fmt.Errorf("%w: torch archive of %d members", ErrUnsupported, len(z.File))
	}
	members, prefix, err := membersOf(z)
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
	pickle, err := readMember(r, size, members[prefix+"data.pkl"], maxPickle)
	if err != nil {
		return nil, err
	}
	described, err := unpickleTensors(pickle)
	if err != nil {
		return nil, err
	}
	tensors := make([]*vectors.Array, len(described))
	for i, d := range described {
		f := members[prefix+"data/"+d.storage.key]
		if f == nil {
			return nil, fmt.Errorf("%w: torch archive lacks storage %.40q", ErrBroken, d.storage.key)
		}
		m, err := openMember(r, size, f)
		if err != nil {
			return nil, err
		}
		if tensors[i], err = vectors.NewRaw(m, m.Size(), f.Name, d.storage.dtype, d.offset, d.shape); err != nil {
			return nil, fmt.Errorf("storage %.40q: %w", d.storage.key, arrayFault(err))
		}
	}
	return tensors, nil
}

// checkPTMagic tells an archive from what torch and pickle write otherwise.
func checkPTMagic(r io.ReaderAt) error {
	var magic [16]byte
	n, err := r.ReadAt(magic[:], 0)
	if err != nil && err != io.EOF {
		return err
	}
	switch head := magic[:n]; {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil
	case bytes.HasPrefix(head, []byte("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")):
		return fmt.Errorf("%w: torch file of the format before 1.6; load and save it with a later torch", ErrUnsupported)
	case bytes.HasPrefix(head, []byte{opProto}):
		return fmt.Errorf("%w: a bare pickle, not a torch archive", ErrUnsupported)
	}
	return fmt.Errorf("%w: not a torch archive", ErrBroken)
}

// membersOf are the members by name, and the folder that has data.pkl.
func membersOf(z *zip.Reader) (members map[string]*zip.File, prefix string, err error) {
	members = make(map[string]*zip.File, len(z.File))
	found := 0
	for _, f := range z.File {
		if members[f.Name] != nil {
			return nil, "", fmt.Errorf("%w: torch archive has %q twice", ErrBroken, f.Name)
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
		return nil, "", fmt.Errorf("%w: torch archive with %d data.pkl", ErrBroken, found)
	}
	return members, prefix, nil
}

// readMember reads a member of at most limit bytes whole.
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

// openMember checks what the directory says of a member against the file. The
// checksum is left alone: torch may be told not to compute it.
func openMember(r io.ReaderAt, size int64, f *zip.File) (*io.SectionReader, error) {
	if f.Flags&1 != 0 || f.Method != zip.Store {
		return nil, fmt.Errorf("%w: %q is encrypted or compressed, which torch.save leaves out", ErrUnsupported, f.Name)
	}
	at, err := f.DataOffset()
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrBroken, f.Name, err)
	}
	n := f.UncompressedSize64
	if at < 0 || at > size || n > uint64(size-at) || n != f.CompressedSize64 {
		return nil, fmt.Errorf("%w: %q of %d bytes at %d exceeds the file's %d", ErrBroken, f.Name, n, at, size)
	}
	return io.NewSectionReader(r, at, int64(n)), nil
}
