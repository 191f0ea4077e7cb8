package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
)

// The object of an entry, little-endian. The hash covers all bytes before it. The next entry contains it (I2: a chain),
// and it reveals damage. The CRC reveals damage to readers of the head alone.
//
//	"plaidlog", format u32, size of the head u32, number u64, hash of the previous entry,
//	token [16], size of the body u64, count of batches u32, batches (size u8, id), CRC-32C of all that u32
//	body
//	hash: the first 16 bytes of the SHA-256
const (
	magic        = "plaidlog"
	format       = 1
	fixedSize    = 8 + 4 + 4 + 8 + 16 + 16 + 8 + 4 // of a head up to the batches
	checksumSize = 4
	maxBatches   = 1 << 16
	maxBatch     = 255 // bytes of an id
	maxHead      = fixedSize + maxBatches*(1+maxBatch) + checksumSize
	// MaxBody is the largest size of the body of an entry.
	MaxBody       = 256 << 20
	maxObject     = maxHead + MaxBody + int64(len(Hash{}))
	headReadBytes = 16 << 10 // first read of a head; most heads are shorter
)

// Hash is the hash of an entry. Its text is hexadecimal.
type Hash [16]byte

// String returns the hash as it is written in names.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return fmt.Errorf("hash %.40q does not have %d hexadecimal digits", text, 2*len(h))
	}
	copy(h[:], b)
	return nil
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errShort   = errors.New("it ends too early")
	errDamaged = errors.New("its bytes are not those that were written")
)

// encode returns the object of an entry, and its hash.
func encode(number uint64, parent Hash, token [16]byte, batches []string,
	body []byte) (object []byte, hash Hash, err error) {
	if len(body) > MaxBody || len(batches) > maxBatches {
		return nil, hash, fmt.Errorf("%w: %d bytes and %d batches; at most %d and %d are possible",
			ErrTooLarge, len(body), len(batches), MaxBody, maxBatches)
	}
	size := fixedSize + checksumSize
	for _, b := range batches {
		if b == "" || len(b) > maxBatch {
			return nil, hash, fmt.Errorf("batch %.40q: an id has 1 to %d bytes", b, maxBatch)
		}
		size += 1 + len(b)
	}
	o := make([]byte, 0, size+len(body)+len(hash))
	o = append(o, magic...)
	o = binary.LittleEndian.AppendUint32(o, format)
	o = binary.LittleEndian.AppendUint32(o, uint32(size))
	o = binary.LittleEndian.AppendUint64(o, number)
	o = append(append(o, parent[:]...), token[:]...)
	o = binary.LittleEndian.AppendUint64(o, uint64(len(body)))
	o = binary.LittleEndian.AppendUint32(o, uint32(len(batches)))
	for _, b := range batches {
		o = append(append(o, byte(len(b))), b...)
	}
	o = binary.LittleEndian.AppendUint32(o, crc32.Checksum(o, castagnoli))
	o = append(o, body...)
	sum := sha256.Sum256(o)
	copy(hash[:], sum[:])
	return append(o, hash[:]...), hash, nil
}

// entryHead is everything in an entry before its body.
type entryHead struct {
	number  uint64
	parent  Hash
	size    int    // bytes of the head
	body    uint64 // bytes of the body
	batches []string
	bytes   []byte // the encoded head
}

// isHeadOf reports whether an object begins with this head.
func (h entryHead) isHeadOf(object []byte) bool {
	return h.bytes != nil && bytes.HasPrefix(object, h.bytes)
}

// parseHead parses the head at the beginning of an object. If b ends before the head does, the error is errShort, and
// need is the number of bytes to read.
func parseHead(b []byte) (h entryHead, need int, err error) {
	if len(b) < fixedSize {
		return h, fixedSize, errShort
	}
	if string(b[:8]) != magic {
		return h, 0, errors.New("it is not an entry of a log")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != format {
		return h, 0, fmt.Errorf("it has format %d, and this program reads format %d: use a newer version of plaid",
			v, format)
	}
	size := int(binary.LittleEndian.Uint32(b[12:]))
	if size < fixedSize+checksumSize || size > maxHead {
		return h, 0, errDamaged
	}
	if len(b) < size {
		return h, size, errShort
	}
	b = b[:size]
	remaining := b[fixedSize : size-checksumSize]
	if crc32.Checksum(b[:size-checksumSize], castagnoli) != binary.LittleEndian.Uint32(b[size-checksumSize:]) {
		return h, 0, errDamaged
	}
	// The offsets are those of the layout above: the sums of the sizes before each field.
	h = entryHead{
		number: binary.LittleEndian.Uint64(b[16:]),
		size:   size,
		body:   binary.LittleEndian.Uint64(b[56:]),
		bytes:  b,
	}
	copy(h.parent[:], b[24:])
	for range binary.LittleEndian.Uint32(b[64:]) {
		if len(remaining) == 0 || remaining[0] == 0 || len(remaining) <= int(remaining[0]) {
			return h, 0, errDamaged
		}
		end := 1 + int(remaining[0])
		h.batches, remaining = append(h.batches, string(remaining[1:end])), remaining[end:]
	}
	if len(remaining) > 0 || h.body > MaxBody || h.number == 0 {
		return h, 0, errDamaged
	}
	return h, size, nil
}

// decode decodes the object of an entry. The body is a slice of it.
func decode(object []byte) (e Entry, err error) {
	h, _, err := parseHead(object)
	if err != nil {
		return e, err
	}
	end := h.size + int(h.body)
	if len(object) != end+len(e.Hash) {
		return e, fmt.Errorf("it has %d bytes instead of %d", len(object), end+len(e.Hash))
	}
	sum := sha256.Sum256(object[:end])
	copy(e.Hash[:], sum[:])
	if !bytes.Equal(e.Hash[:], object[end:]) {
		return e, errDamaged
	}
	e.Number, e.Batches, e.Body, e.parent = h.number, h.batches, object[h.size:end:end], h.parent
	return e, nil
}
