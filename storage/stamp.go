package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Stamp identifies the state of an index file without reading it, for derived data that is stored
// next to the index. Two snapshots with the same stamp show the same content. The reverse is not true:
// a copy of a file has another stamp, and so has a file whose time was changed.
type Stamp struct {
	Device   uint64 `json:"device"` // 0 where the system has no such numbers
	Inode    uint64 `json:"inode"`
	Modified int64  `json:"modified"` // nanoseconds since 1970
	Tx       int    `json:"tx"`       // id of the last transaction
}

// Stamp returns the stamp of the snapshot. It also changes with a later change of the file, which the
// snapshot does not show; so derived data may be compared again in vain, but is never mistaken for
// that of another state.
func (v *Snapshot) Stamp() (Stamp, error) {
	info, err := v.handle.file.Stat() // the path may name another file by now
	if err != nil {
		return Stamp{}, fmt.Errorf("%s: %w", v.file.path, err)
	}
	s := Stamp{Modified: info.ModTime().UnixNano(), Tx: v.tx.ID()}
	s.Device, s.Inode = fileIdentity(v.handle.file, info)
	return s, nil
}

// PayloadChecksum identifies the bytes of a payload: CRC32C and length. 0 means no payload.
type PayloadChecksum uint64

const payloadsPerCheck = 1024 // payloads between checks of the context

// VisitPayloadChecksums calls visit with the checksums of the payloads of live documents, in the
// order of their ordinals from the given one on. Documents without payload are skipped. It does not
// read or verify payloads, but checks that each of these documents has one.
func (v *Snapshot) VisitPayloadChecksums(
	ctx context.Context, from uint32, visit func(ordinal uint32, sum PayloadChecksum) error,
) (err error) {
	defer Guard(v.file.path, &err)()
	if err := v.WaitComplete(ctx); err != nil {
		return err
	}
	docs := v.payloadDocs.Iterator()
	docs.AdvanceIfNeeded(from)
	c := v.payload.Cursor()
	k, sealed := c.Seek(layout.NumberKey(from))
	for n := 0; docs.HasNext(); n++ {
		if n%payloadsPerCheck == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		ordinal := docs.Next()
		if len(k) != 4 || layout.NumberFromKey(k) != ordinal || len(sealed) < layout.ChecksumSize {
			return v.corruptError(nil, "the payload of document %d is missing before key %x", ordinal, k)
		}
		last := len(sealed) - layout.ChecksumSize
		if err := visit(ordinal, packPayloadSum(binary.LittleEndian.Uint32(sealed[last:]), last)); err != nil {
			return err
		}
		k, sealed = c.Next()
	}
	if len(k) == 4 && layout.NumberFromKey(k) < v.state.Docs {
		return v.corruptError(nil, "there is payload of document %d, which has none", layout.NumberFromKey(k))
	}
	return nil
}

// ChecksumPayload returns the checksum of the payload of a document.
func ChecksumPayload(ordinal uint32, p []byte) PayloadChecksum {
	return packPayloadSum(layout.Checksum(layout.NumberKey(ordinal), p), len(p))
}

// packPayloadSum packs a checksum and a length. It adds 1, so that the result is not 0.
func packPayloadSum(crc uint32, n int) PayloadChecksum {
	return PayloadChecksum(crc)<<32 | PayloadChecksum(uint32(n)+1)
}

// lineageCount is the number of lineages of all files in this process, so that no two files share one,
// whatever the numbers of their generations.
var lineageCount atomic.Uint64

// lineage numbers the generations of an open file. Snapshots of one lineage have the same documents
// under the same ordinals. A compaction keeps ordinals, and so the lineage, although it creates a new
// file; another file that replaces this one has a new lineage.
type lineage struct {
	mu                 sync.Mutex
	number, generation uint64 // 0 means not known yet
}

// numberFor returns the lineage of a snapshot of a generation.
func (l *lineage) numberFor(generation uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number == 0 || l.generation != 0 && l.generation != generation {
		l.number = lineageCount.Add(1)
	}
	l.generation = generation
	return l.number
}

// passTo passes the lineage of a file to the file that a compaction created. The generation there
// may have another number.
func (l *lineage) passTo(to *lineage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	to.number, to.generation = l.number, 0 // numberFor sets the generation
}

// Lineage returns a number that is equal for snapshots in which the same ordinals are the same
// documents. It has no meaning in another process.
func (v *Snapshot) Lineage() uint64 { return v.lineage }
