package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/storage/internal/layout"
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
func (v *Snapshot) Stamp() (Stamp, error) {
	info, err := v.handle.file.Stat() // the path may name another file by now
	if err != nil {
		return Stamp{}, fmt.Errorf("%s: %w", v.file.path, err)
	}
	s := Stamp{Modified: info.ModTime().UnixNano(), Tx: v.tx.ID()}
	s.Device, s.Inode = fileIdentity(v.handle.file, info)
	return s, nil
}

// PayloadSum stands for the bytes of a payload: CRC32C and length. 0: there is none.
type PayloadSum uint64

const sumsAtOnce = 1024 // payloads, between looks at the context

// PayloadSums calls fn with the sums of the payloads of live documents in the order of
// their ordinals, from one on. Documents without payload are left out. Payloads are not
// read, nor checked, for that; but that each document has its own is.
func (v *Snapshot) PayloadSums(ctx context.Context, from uint32, fn func(ordinal uint32, sum PayloadSum) error) (err error) {
	defer Guard(v.file.path, &err)()
	if err := v.Whole(ctx); err != nil {
		return err
	}
	docs := v.payloadDocs.Iterator()
	docs.AdvanceIfNeeded(from)
	c := v.payload.Cursor()
	k, sealed := c.Seek(layout.NumberKey(from))
	for n := 0; docs.HasNext(); n++ {
		if n%sumsAtOnce == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		ordinal := docs.Next()
		if len(k) != 4 || layout.NumberOfKey(k) != ordinal || len(sealed) < layout.ChecksumSize {
			return v.corrupt(nil, "in the place of the payload of document %d is the key %x", ordinal, k)
		}
		last := len(sealed) - layout.ChecksumSize
		if err := fn(ordinal, payloadSum(binary.LittleEndian.Uint32(sealed[last:]), last)); err != nil {
			return err
		}
		k, sealed = c.Next()
	}
	if len(k) == 4 && layout.NumberOfKey(k) < v.state.Docs {
		return v.corrupt(nil, "there is payload of document %d, which has none", layout.NumberOfKey(k))
	}
	return nil
}

// SumPayload is the sum of a payload that is stored beside a document.
func SumPayload(ordinal uint32, p []byte) PayloadSum {
	return payloadSum(layout.Checksum(layout.NumberKey(ordinal), p), len(p))
}

func payloadSum(crc uint32, n int) PayloadSum { return PayloadSum(crc)<<32 | PayloadSum(uint32(n)+1) }

// lineages counts over all files that this process opens, so that no two of
// them share one however alike their generations are numbered.
var lineages atomic.Uint64

// lineage tells which views of an opened file name the same documents by the
// same ordinals: those of one generation. A compaction keeps ordinals, and so
// the lineage; another file under the same name has one of its own.
type lineage struct {
	mu                 sync.Mutex
	number, generation uint64 // 0: not known yet
}

// numberFor returns the lineage of a view of a generation.
func (l *lineage) numberFor(generation uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number == 0 || l.generation != 0 && l.generation != generation {
		l.number = lineages.Add(1)
	}
	l.generation = generation
	return l.number
}

// rewritten hands the lineage of a file on to what a compaction made of it,
// whose generations are counted anew.
func (l *lineage) rewritten(to *lineage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	to.number, to.generation = l.number, 0
}

// Lineage is the same for views that name the same documents by the same
// ordinals. It means nothing in another process.
func (v *Snapshot) Lineage() uint64 { return v.lineage }
