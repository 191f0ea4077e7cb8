package storage

import (
	"context"
	"encoding/binary"
	"fmt"
)

// Stamp tells the states of index files apart without reading them: two views with
// the same stamp show the same content. A state may have several, since a copy of a
// file has another one, and so has a file whose time was changed. For data that is
// derived from an index and kept beside it.
type Stamp struct {
	Device   uint64 `json:"device"` // 0 where the system has no such numbers
	Inode    uint64 `json:"inode"`
	Modified int64  `json:"modified"` // nanoseconds since 1970
	Tx       int    `json:"tx"`       // transaction of the file
}

// Stamp is that of the view. It is another one after a change of the file that the
// view does not show; so what was derived from the view may be looked through again
// in vain, but is never taken for what it is not.
func (v *View) Stamp() (Stamp, error) {
	info, err := v.h.file.Stat() // the path may name another file by now
	if err != nil {
		return Stamp{}, fmt.Errorf("%s: %w", v.file.path, err)
	}
	s := Stamp{Modified: info.ModTime().UnixNano(), Tx: v.tx.ID()}
	s.Device, s.Inode = identity(info)
	return s, nil
}

// PayloadSum stands for the bytes of a payload: CRC32C and length. 0: there is none.
type PayloadSum uint64

const sumsAtOnce = 1024 // payloads, between looks at the context

// PayloadSums calls fn with the sums of payloads in the order of their ordinals,
// from one on. Documents without payload are left out. Payloads are not read, nor
// checked, for that.
func (v *View) PayloadSums(ctx context.Context, from uint32, fn func(ordinal uint32, sum PayloadSum) error) (err error) {
	defer Guard(v.file.path, &err)()
	type entry struct {
		ordinal uint32
		sum     PayloadSum
	}
	var some []entry
	for next := uint64(from); ; next = uint64(some[len(some)-1].ordinal) + 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		some = some[:0]
		err := v.eachPayload(uint32(next), func(k, sealed []byte) error {
			if len(k) != 4 || len(sealed) < crcSize {
				return v.bad(errChecksum, "payload under key %x", k)
			}
			n := len(sealed) - crcSize
			sum := payloadSum(binary.LittleEndian.Uint32(sealed[n:]), n)
			some = append(some, entry{binary.BigEndian.Uint32(k), sum})
			return nil
		})
		if err != nil {
			return err
		}
		for _, e := range some {
			if err := fn(e.ordinal, e.sum); err != nil {
				return err
			}
		}
		if len(some) < sumsAtOnce || some[len(some)-1].ordinal == 1<<32-1 {
			return nil
		}
	}
}

// eachPayload goes over some payloads, as they are stored.
func (v *View) eachPayload(from uint32, fn func(k, sealed []byte) error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.payload.Cursor()
	n := 0
	for k, sealed := c.Seek(key32(from)); k != nil && n < sumsAtOnce; k, sealed = c.Next() {
		if err := fn(k, sealed); err != nil {
			return err
		}
		n++
	}
	return nil
}

// SumPayload is the sum of a payload that is stored beside a document.
func SumPayload(ordinal uint32, p []byte) PayloadSum {
	return payloadSum(checksum(key32(ordinal), p), len(p))
}

func payloadSum(crc uint32, n int) PayloadSum { return PayloadSum(crc)<<32 | PayloadSum(uint32(n)+1) }
