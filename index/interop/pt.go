package interop

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

const (
	// maxMembers bounds the entries of a .pt archive; torch.save writes five
	// and one a storage.
	maxMembers = 1 << 12
	// A deflated member (torch itself stores them) may be this much larger
	// than its bytes in the file once it exceeds freeInflate bytes.
	maxInflate  = 64
	freeInflate = 64 << 20
)

// ptFile is an opened torch.save archive: a zip of data.pkl, which describes
// tensors, and one data/N for each storage.
type ptFile struct {
	file    *os.File
	tensors []*rawArray
	members []*member
}

// newPTFile reads a .pt file, and owns it if that succeeds. Nothing in it is
// executed (see unpickler), and no storage is read before it is asked for.
func newPTFile(file *os.File, size int64) (*ptFile, error) {
	tensors, members, err := readPT(file, size)
	if err != nil {
		return nil, err
	}
	return &ptFile{file: file, tensors: tensors, members: members}, nil
}

func (p *ptFile) close() error {
	for _, m := range p.members {
		m.close()
	}
	return p.file.Close()
}

// readPT reads the directory and the pickle of an archive of size bytes. The
// members hold the data of the tensors, in the same order.
func readPT(r io.ReaderAt, size int64) ([]*rawArray, []*member, error) {
	if err := checkPTMagic(r); err != nil {
		return nil, nil, err
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: torch archive: %w", ErrBroken, err)
	}
	if len(z.File) > maxMembers {
		return nil, nil, fmt.Errorf("%w: torch archive of %d members", ErrUnsupported, len(z.File))
	}
	members, prefix, err := membersOf(z)
	if err != nil {
		return nil, nil, err
	}
	if f := members[prefix+"byteorder"]; f != nil {
		order, err := readMember(r, size, f, 16)
		if err != nil {
			return nil, nil, err
		}
		if string(order) != "little" {
			return nil, nil, fmt.Errorf("%w: torch archive in byte order %q", ErrUnsupported, order)
		}
	}
	pickle, err := readMember(r, size, members[prefix+"data.pkl"], maxPickle)
	if err != nil {
		return nil, nil, err
	}
	described, err := unpickleTensors(pickle)
	if err != nil {
		return nil, nil, err
	}
	tensors, data := make([]*rawArray, len(described)), make([]*member, len(described))
	for i, d := range described {
		if tensors[i], data[i], err = openTensor(r, size, d, members[prefix+"data/"+d.storage.key]); err != nil {
			return nil, nil, err
		}
	}
	return tensors, data, nil
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

// openTensor opens the member that has the values of a tensor.
func openTensor(r io.ReaderAt, size int64, t *pickleTensor, f *zip.File) (*rawArray, *member, error) {
	s := t.storage
	if f == nil {
		return nil, nil, fmt.Errorf("%w: torch archive lacks storage %.40q", ErrBroken, s.key)
	}
	if want := uint64(s.numel) * uint64(s.dtype.size()); f.UncompressedSize64 < want {
		return nil, nil, fmt.Errorf("%w: storage %.40q has %d bytes, %d of %v need %d", ErrBroken, s.key, f.UncompressedSize64, s.numel, s.dtype, want)
	}
	m, err := openMember(r, size, f)
	if err != nil {
		return nil, nil, err
	}
	return &rawArray{kind: s.dtype, dims: t.shape, numel: t.numel, base: t.offset * int64(s.dtype.size()), readAt: m.readAt}, m, nil
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
	if f.UncompressedSize64 > uint64(limit) {
		return nil, fmt.Errorf("%w: %q has %d bytes, more than %d", ErrUnsupported, f.Name, f.UncompressedSize64, limit)
	}
	m, err := openMember(r, size, f)
	if err != nil {
		return nil, err
	}
	defer m.close()
	b := make([]byte, f.UncompressedSize64)
	return b, m.readAt(b, 0)
}

// member is the content of an archive member. Stored ones are read in place;
// deflated ones from the front, again from the start when a read goes back.
type member struct {
	name   string
	stored *io.SectionReader
	size   int64

	deflated bool
	inflate  io.ReadCloser
	pos      int64 // of inflate
}

// openMember checks what the directory says of a member against the file. The
// checksum is left alone: torch may be told not to compute it.
func openMember(r io.ReaderAt, size int64, f *zip.File) (*member, error) {
	if f.Flags&1 != 0 {
		return nil, fmt.Errorf("%w: %q is encrypted", ErrUnsupported, f.Name)
	}
	packed, full := f.CompressedSize64, f.UncompressedSize64
	at, err := f.DataOffset()
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrBroken, f.Name, err)
	}
	if at < 0 || at > size || packed > uint64(size-at) || full > math.MaxInt64 {
		return nil, fmt.Errorf("%w: %q of %d bytes at %d exceeds the file's %d", ErrBroken, f.Name, packed, at, size)
	}
	m := &member{name: f.Name, stored: io.NewSectionReader(r, at, int64(packed)), size: int64(full)}
	switch f.Method {
	case zip.Store:
		if packed != full {
			return nil, fmt.Errorf("%w: %q is stored in %d bytes, but has %d", ErrBroken, f.Name, packed, full)
		}
	case zip.Deflate:
		m.deflated = true
		if full > freeInflate && full/maxInflate > packed {
			return nil, fmt.Errorf("%w: %q would grow from %d to %d bytes", ErrBroken, f.Name, packed, full)
		}
	default:
		return nil, fmt.Errorf("%w: %q has compression method %d", ErrUnsupported, f.Name, f.Method)
	}
	return m, nil
}

// readAt fills dst from byte from on.
func (m *member) readAt(dst []byte, from int64) error {
	if from < 0 || from > m.size || int64(len(dst)) > m.size-from {
		return fmt.Errorf("%w: read of %d bytes at %d of %q, which has %d", ErrBroken, len(dst), from, m.name, m.size)
	}
	if len(dst) == 0 {
		return nil
	}
	if !m.deflated {
		if n, err := m.stored.ReadAt(dst, from); n < len(dst) {
			return m.cutShort(err)
		}
		return nil
	}
	if m.inflate == nil || from < m.pos {
		m.close()
		m.inflate, m.pos = flate.NewReader(io.NewSectionReader(m.stored, 0, m.stored.Size())), 0
	}
	skipped, err := io.CopyN(io.Discard, m.inflate, from-m.pos)
	m.pos += skipped
	if err == nil {
		var n int
		n, err = io.ReadFull(m.inflate, dst)
		m.pos += int64(n)
	}
	if err != nil {
		return m.cutShort(err)
	}
	return nil
}

func (m *member) cutShort(err error) error {
	var corrupt flate.CorruptInputError
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &corrupt) {
		return fmt.Errorf("%w: %q is cut short or malformed: %w", ErrBroken, m.name, err)
	}
	return fmt.Errorf("%q: %w", m.name, err)
}

func (m *member) close() {
	if m.inflate != nil {
		m.inflate.Close()
		m.inflate = nil
	}
}
