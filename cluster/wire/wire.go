// Package wire is what nodes and fronts of a cluster say to each other: queries,
// answers, and batches of changes, little-endian, with a version, and with the
// CRC-32C of everything before at the end, as in the index file.
//
// A parser takes any bytes: what is no message is
// [ErrMessage], and nothing is allocated that the message does not have bytes for.
package wire

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

var (
	// ErrMessage: bytes that are no message of this package, or are damaged.
	ErrMessage = errors.New("malformed message")
	// ErrVersion: a message of a version that this program does not know.
	ErrVersion = errors.New("message of an unknown version")
)

// version is that of all messages.
const version = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ID names a query or a batch.
type ID [16]byte

// NewID returns a random id.
func NewID() (id ID) {
	rand.Read(id[:]) // never fails
	return id
}

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// writer appends fields to a message.
type writer []byte

func begin(magic string, size int) *writer {
	w := make(writer, 0, size+4)
	w = append(w, magic...)
	return &w
}

func (w *writer) u8(v uint8)     { *w = append(*w, v) }
func (w *writer) u16(v uint16)   { *w = binary.LittleEndian.AppendUint16(*w, v) }
func (w *writer) u32(v uint32)   { *w = binary.LittleEndian.AppendUint32(*w, v) }
func (w *writer) u64(v uint64)   { *w = binary.LittleEndian.AppendUint64(*w, v) }
func (w *writer) f32(v float32)  { w.u32(math.Float32bits(v)) }
func (w *writer) text(s string)  { *w = append(*w, s...) }
func (w *writer) bytes(b []byte) { *w = append(*w, b...) }
func (w *writer) floats(v []float32) {
	for _, x := range v {
		w.f32(x)
	}
}

// sealed is the message with its checksum.
func (w *writer) sealed() []byte {
	return binary.LittleEndian.AppendUint32(*w, crc32.Checksum(*w, castagnoli))
}

// reader takes fields from a message. After the first fault it gives zeros.
type reader struct {
	what string
	rest []byte
	err  error
}

// open checks the frame of a message.
func open(what, magic string, msg []byte) *reader {
	r := &reader{what: what}
	switch {
	case len(msg) < len(magic)+1+4 || string(msg[:len(magic)]) != magic:
		r.fail("it does not begin with %s", magic)
	case msg[len(magic)] != version:
		r.err = fmt.Errorf("%s: %w: %d", what, ErrVersion, msg[len(magic)])
	default:
		end := len(msg) - 4
		if got, want := crc32.Checksum(msg[:end], castagnoli), binary.LittleEndian.Uint32(msg[end:]); got != want {
			r.fail("checksum %08x, %08x is written", got, want)
			break
		}
		r.rest = msg[len(magic)+1 : end]
	}
	return r
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w: %s", r.what, ErrMessage, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

// take is the next n bytes, nil after a fault.
func (r *reader) take(n uint64) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.rest)) {
		r.fail("%d bytes are missing", n-uint64(len(r.rest)))
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) f32() float32 { return math.Float32frombits(r.u32()) }

func (r *reader) id() (id ID) {
	copy(id[:], r.take(16))
	return id
}

// count is a number of things that take at least size bytes each.
func (r *reader) count(n uint64, size uint64) int {
	if r.err == nil && n > uint64(len(r.rest))/size {
		r.fail("%d entries do not fit", n)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// floats are n numbers; nil if there are none.
func (r *reader) floats(n uint64) []float32 {
	count := r.count(n, 4)
	if count == 0 {
		return nil
	}
	b := r.take(4 * n)
	v := make([]float32, count)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// close is the fault of the message, which must be at its end.
func (r *reader) close() error {
	if r.err == nil && len(r.rest) > 0 {
		r.fail("%d bytes too many", len(r.rest))
	}
	return r.err
}
