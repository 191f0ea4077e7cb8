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

// ErrPacked reports compressed data that is damaged or truncated, or a file whose name promises
// compressed data that it does not have.
var ErrPacked = errors.New("bad compressed data")

// packing is a format of compressed files.
type packing struct {
	name, suffix string
	hasMagic     func(magic string) bool
	open         func(io.Reader) (io.Reader, error)
}

// Limits of the memory for decompression. They fit the highest usual levels of the formats' tools.
const (
	maxWindow     = 128 << 20 // of zstd --ultra and --long
	maxDictionary = 64 << 20  // of xz -9
)

var packingFormats = []packing{
	{
		name:     "gzip",
		suffix:   ".gz",
		hasMagic: func(m string) bool { return strings.HasPrefix(m, "\x1f\x8b") },
		open:     func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	},
	{
		name:   "zstd",
		suffix: ".zst",
		// A data frame, or a skippable frame, with which parallel writers begin.
		hasMagic: func(m string) bool {
			isSkippable := len(m) > 3 && m[0]&0xf0 == 0x50 && m[1:4] == "\x2a\x4d\x18"
			return strings.HasPrefix(m, "\x28\xb5\x2f\xfd") || isSkippable
		},
		// No goroutine but that of the reader: it may stop early.
		open: func(r io.Reader) (io.Reader, error) {
			return zstd.NewReader(r,
				zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		},
	},
	{
		name:     "xz",
		suffix:   ".xz",
		hasMagic: func(m string) bool { return strings.HasPrefix(m, "\xfd7zXZ\x00") },
		open:     func(r io.Reader) (io.Reader, error) { return xz.NewReader(r, maxDictionary) },
	},
}

// PackedSuffixes returns the suffixes of compressed files that [Unpack] reads.
func PackedSuffixes() []string {
	var suffixes []string
	for _, p := range packingFormats {
		suffixes = append(suffixes, p.suffix)
	}
	return suffixes
}

// TrimPackedSuffix splits a name into the name without the suffix of a compressed file, and that suffix, or
// "".
func TrimPackedSuffix(name string) (bare, suffix string) {
	ext := filepath.Ext(name)
	for _, p := range packingFormats {
		if strings.EqualFold(ext, p.suffix) {
			return strings.TrimSuffix(name, ext), p.suffix
		}
	}
	return name, ""
}

// Suffix returns the suffix of a name in lower case, without that of a compressed file.
func Suffix(name string) string {
	bare, _ := TrimPackedSuffix(name)
	return strings.ToLower(filepath.Ext(bare))
}

// PackingName returns the format of compressed data by its first bytes, or "" if it is not gzip, zstd
// or xz.
func PackingName(begin []byte) string {
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

// Unpack returns a reader of decompressed data. Its first bytes determine whether data is
// compressed by gzip, zstd or xz; it reads all members, frames or streams, and plain data as it is.
// Data must be compressed if the name of its file says so. Errors in the data wrap [ErrPacked];
// errors of r are returned unchanged.
func Unpack(r io.Reader, name string) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	begin, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	p := findPacking(begin)
	if p == nil {
		if _, suffix := TrimPackedSuffix(name); suffix != "" {
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

// unpacker distinguishes errors in compressed data from errors of reading it.
type unpacker struct {
	*packing
	source trackedSource
	r      io.Reader
}

// trackedSource records its read error. It is an [io.ByteReader], so that decompressors do not
// buffer again.
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

// recordError records an error other than io.EOF, and returns err.
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

// wrapError returns the error of the source, if it has one, and otherwise an ErrPacked.
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
