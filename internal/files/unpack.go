package files

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// ErrPacked: compressed data is damaged or cut short, or is not there although the name of the file
// promises it.
var ErrPacked = errors.New("bad compressed data")

// packing is a format of compressed files.
type packing struct {
	name, suffix string
	hasMagic     func(magic string) bool
	open         func(io.Reader) (io.Reader, error)
}

// Unpacking keeps at most this much, to which later bytes may refer: as much as the highest usual levels
// of the formats' tools ask for.
const (
	maxWindow     = 128 << 20 // of zstd --ultra and --long
	maxDictionary = 64 << 20  // of xz -9
)

var packingFormats = []packing{
	{"gzip", ".gz", func(m string) bool { return strings.HasPrefix(m, "\x1f\x8b") }, func(r io.Reader) (io.Reader, error) {
		return gzip.NewReader(r)
	}},
	{"zstd", ".zst", func(m string) bool { // a frame of data, or one to skip, as parallel writers begin with
		return strings.HasPrefix(m, "\x28\xb5\x2f\xfd") || len(m) > 3 && m[0]&0xf0 == 0x50 && m[1:4] == "\x2a\x4d\x18"
	}, func(r io.Reader) (io.Reader, error) {
		// One goroutine, that of the reader: a reader that stops early leaves nothing behind.
		return zstd.NewReader(r,
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	}},
	{"xz", ".xz", func(m string) bool { return strings.HasPrefix(m, "\xfd7zXZ\x00") }, func(r io.Reader) (io.Reader, error) {
		return xz.NewReader(r, maxDictionary)
	}},
}

// PackedSuffixes are the ends of names of compressed files that [Unpack] reads.
func PackedSuffixes() []string {
	var suffixes []string
	for _, p := range packingFormats {
		suffixes = append(suffixes, p.suffix)
	}
	return suffixes
}

// Unpacked is a name without the suffix of a compressed file, and that suffix; "" if it has none.
func Unpacked(name string) (bare, suffix string) {
	ext := filepath.Ext(name)
	for _, p := range packingFormats {
		if strings.EqualFold(ext, p.suffix) {
			return strings.TrimSuffix(name, ext), p.suffix
		}
	}
	return name, ""
}

// Suffix is how a name ends, in small letters, without that of a compressed file.
func Suffix(name string) string {
	bare, _ := Unpacked(name)
	return strings.ToLower(filepath.Ext(bare))
}

// Packing is the format of compressed data by its first bytes, "" if it is none of gzip, zstd and xz.
func Packing(begin []byte) string {
	if p := findPacking(begin); p != nil {
		return p.name
	}
	return ""
}

func findPacking(begin []byte) *packing {
	for i := range packingFormats {
		if packingFormats[i].hasMagic(string(begin)) {
			return &packingFormats[i]
		}
	}
	return nil
}

// Unpack reads plain data as it is, and unpacks what gzip, zstd or xz have compressed, which the
// first bytes tell: all of its members, frames or streams. Data that the name of its file says is
// compressed must be. Errors of the data wrap [ErrPacked]; those of r are as they are.
func Unpack(r io.Reader, name string) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	begin, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	p := findPacking(begin)
	if p == nil {
		if _, suffix := Unpacked(name); suffix != "" {
			return nil, fmt.Errorf("%w: the name ends in %s, the bytes are neither of gzip nor of zstd or xz",
				ErrPacked, suffix)
		}
		return b, nil
	}
	u := &unpacker{packing: p, source: trackedSource{r: b}}
	if u.r, err = p.open(&u.source); err != nil {
		return nil, u.wrapError(err)
	}
	return bufio.NewReaderSize(u, 64<<10), nil
}

// unpacker tells errors of compressed data from those of reading it.
type unpacker struct {
	*packing
	source trackedSource
	r      io.Reader
}

// trackedSource remembers why it cannot be read. It is an [io.ByteReader], so that nothing is buffered twice.
type trackedSource struct {
	r   *bufio.Reader
	err error
}

func (s *trackedSource) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	return n, s.recordError(err)
}

func (s *trackedSource) ReadByte() (byte, error) {
	c, err := s.r.ReadByte()
	return c, s.recordError(err)
}

func (s *trackedSource) recordError(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return err
}

func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = u.wrapError(err)
	}
	return n, err
}

func (u *unpacker) wrapError(err error) error {
	switch {
	case u.source.err != nil:
		return u.source.err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, xz.ErrBuf):
		return fmt.Errorf("%w: %s: is cut short", ErrPacked, u.name)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("%w: %s: needs more than %d MiB to be unpacked: compress it with less than --long=28",
			ErrPacked, u.name, maxWindow>>20)
	case errors.Is(err, xz.ErrMemlimit):
		return fmt.Errorf("%w: %s: needs more than %d MiB to be unpacked: compress it with -9 or less",
			ErrPacked, u.name, maxDictionary>>20)
	}
	if strings.HasPrefix(err.Error(), u.name+": ") {
		return fmt.Errorf("%w: %w", ErrPacked, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrPacked, u.name, err)
}
