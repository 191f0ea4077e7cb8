package storage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"
)

// Sizes is where the bytes of an index are, checksums and tails included, the
// overhead of B+tree pages not.
type Sizes struct {
	Codec      int64 `json:"codec"`      // centroids, cutoffs, scales
	Codes      int64 `json:"codes"`      // the number of each token's centroid
	Residuals  int64 `json:"residuals"`  // of each token
	Factors    int64 `json:"factors"`    // of each token
	Docs       int64 `json:"docs"`       // lengths and ids by ordinal
	IDs        int64 `json:"ids"`        // ordinals by id
	Postings   int64 `json:"postings"`   // documents by centroid
	Tombstones int64 `json:"tombstones"` // which documents are deleted
	Payload    int64 `json:"payload"`    // what is stored beside documents
	Fields     int64 `json:"fields"`     // what is derived from payloads
}

// Total adds them up.
func (s Sizes) Total() int64 {
	return s.Codec + s.Codes + s.Residuals + s.Factors + s.Docs + s.IDs + s.Postings + s.Tombstones + s.Payload + s.Fields
}

// Inspect walks all values of the generation: their digest and their sizes.
//
// The digest is the SHA-256 of every bucket and key of the generation in key
// order: names, values and their lengths. Two indexes of the same digest hold
// the same codec, documents, postings and payloads, byte for byte.
func (v *View) Inspect(ctx context.Context) (digest string, sizes Sizes, err error) {
	defer Guard(v.file.path, &err)()
	v.mu.Lock()
	defer v.mu.Unlock()
	sum := sha256.New()
	var frame [9]byte
	write := func(kind byte, b []byte) {
		frame[0] = kind
		binary.LittleEndian.PutUint64(frame[1:], uint64(len(b)))
		sum.Write(frame[:])
		sum.Write(b)
	}
	err = walk(ctx, v.tx.Bucket(generationName(v.generation)), nil, func(path [][]byte, k, val []byte) error {
		if val == nil {
			write('b', k)
			return nil
		}
		write('k', k)
		write('v', val)
		if part := sizes.part(path, k); part != nil {
			*part += int64(len(k) + len(val))
		}
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)), sizes, err
}

func (s *Sizes) part(path [][]byte, key []byte) *int64 {
	if len(path) == 0 {
		if string(key) == string(keyTombstones) {
			return &s.Tombstones
		}
		return &s.Codec
	}
	switch string(path[0]) {
	case string(bucketCodec):
		return &s.Codec
	case string(bucketIDs):
		return &s.IDs
	case string(bucketPayload):
		return &s.Payload
	case string(bucketPostings):
		return &s.Postings
	case string(bucketFields):
		return &s.Fields
	}
	switch string(key) {
	case string(keyCodes):
		return &s.Codes
	case string(keyFactors):
		return &s.Factors
	case string(keyResiduals):
		return &s.Residuals
	}
	return &s.Docs
}

// walk visits buckets (val nil) and values below b in key order.
func walk(ctx context.Context, b *bolt.Bucket, path [][]byte, visit func(path [][]byte, k, val []byte) error) error {
	if len(path) > 2 { // a generation has buckets in buckets, no more
		return fmt.Errorf("%w: buckets too deep at %s", ErrCorrupt, valueName(path))
	}
	return b.ForEach(func(k, val []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(path, k, val); err != nil || val != nil {
			return err
		}
		return walk(ctx, b.Bucket(k), append(path[:len(path):len(path)], k), visit)
	})
}

// Verify checks everything that can be checked without the original vectors:
// the pages of the B+tree, every checksum, that codes are in range, that the
// postings are those of the codes, and that ids and ordinals agree. It returns
// all faults that it finds, joined; but a damaged B+tree alone.
func (v *View) Verify(ctx context.Context) (err error) {
	defer Guard(v.file.path, &err)()
	var faults []error
	add := func(err error) {
		if err != nil && len(faults) < maxFaults {
			faults = append(faults, err)
		}
	}
	if err := checkTransaction(ctx, v.h.file, uint64(v.tx.ID())); err != nil {
		return treeFault(ctx, v.file.path, err) // not to be walked: bbolt would follow wild pointers
	}
	add(v.verifySums(ctx, add))
	if len(faults) == 0 {
		add(v.verifyIDs(ctx))
		add(v.verifyPostings(ctx))
		add(v.verifyNoMore(ctx))
	}
	if len(faults) == maxFaults {
		faults = append(faults, v.bad(nil, "and more: the first %d faults are listed", maxFaults))
	}
	return errors.Join(faults...)
}

// maxFaults bounds what Verify lists of a file that is damaged all over.
const maxFaults = 20

// verifySums reports each value whose checksum is wrong.
func (v *View) verifySums(ctx context.Context, report func(error)) error {
	v.mu.Lock()
	defer v.mu.Unlock() // also when a damaged page makes bbolt panic
	for _, name := range [][]byte{rootBucket, generationName(v.generation)} {
		err := walk(ctx, v.tx.Bucket(name), nil, func(path [][]byte, k, val []byte) error {
			if val == nil {
				return nil
			}
			sealedAs := k
			if len(path) == 2 { // in the bucket of a chunk or segment
				sealedAs = slices.Concat(path[1], k)
			}
			if _, ok := unseal(sealedAs, val); !ok {
				report(v.bad(errChecksum, "%s", valueName(append(path[:len(path):len(path)], k))))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// valueName shows where a value is, such as chunks/3/codes.
func valueName(path [][]byte) string {
	parts := make([]string, len(path))
	for i, k := range path {
		if len(k) == 4 && k[0] < ' ' {
			parts[i] = strconv.FormatUint(uint64(binary.BigEndian.Uint32(k)), 10)
		} else {
			parts[i] = strings.Trim(strconv.Quote(string(k)), `"`)
		}
	}
	return strings.Join(parts, "/")
}

func (v *View) verifyIDs(ctx context.Context) error {
	if err := v.walkIDs(); err != nil {
		return err
	}
	for i := range v.chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := v.chunks[i]
		for d := range c.docs.count {
			ordinal := c.docs.first + uint32(d)
			if !v.Live(ordinal) {
				continue
			}
			id := c.docs.id(d)
			if got, ok, err := v.Ordinal(id); err != nil {
				return err
			} else if !ok || got != ordinal {
				return v.bad(nil, "id %q of document %d leads to document %d", id, ordinal, got)
			}
			if _, err := v.Payload(ordinal); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyNoMore makes sure that the buckets hold nothing of documents that are
// not there, as they would after a write that was lost; only what an unfinished
// writer has staged beyond the counters.
func (v *View) verifyNoMore(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	staged := func(n, next uint32) bool { return n >= next && v.tx.Bucket(rootBucket).Get(keyStaging) != nil }
	chunks, segments := map[uint32]bool{}, map[uint32]int{}
	for _, seg := range v.state.Segments {
		segments[seg.ID] = seg.Blocks
		for _, c := range seg.Chunks {
			chunks[c] = true
		}
	}
	gen := v.tx.Bucket(generationName(v.generation))
	each := func(bucket []byte, check func(n uint32, k []byte) error) error {
		last := int64(-1)
		return gen.Bucket(bucket).ForEach(func(k, _ []byte) error {
			if len(k) != 4 {
				return v.bad(nil, "%s has a key %q", bucket, k)
			}
			n := binary.BigEndian.Uint32(k)
			if int64(n) <= last {
				return v.bad(nil, "%s has key %d after %d", bucket, n, last)
			}
			last = int64(n)
			return errors.Join(ctx.Err(), check(n, k))
		})
	}
	return errors.Join(
		each(bucketChunks, func(n uint32, _ []byte) error {
			if !chunks[n] && !staged(n, v.state.NextChunk) {
				return v.bad(nil, "chunk %d belongs to no segment", n)
			}
			return nil
		}),
		each(bucketPostings, func(n uint32, k []byte) error {
			blocks, ok := segments[n]
			if !ok && staged(n, v.state.NextSegment) {
				return nil
			}
			if b := gen.Bucket(bucketPostings).Bucket(k); !ok || b == nil || b.Inspect().KeyN != blocks {
				return v.bad(nil, "postings of segment %d are not the %d blocks that it has", n, blocks)
			}
			return nil
		}),
		each(bucketPayload, func(n uint32, _ []byte) error {
			if !v.HasPayload(n) && !staged(n, v.state.Docs) {
				return v.bad(nil, "there is payload of document %d, which has none", n)
			}
			return nil
		}),
		v.verifyFieldRuns(gen),
	)
}

// verifyFieldRuns looks for values of runs that are lost. Runs of which the state does
// not know are left over by a program that did not know of them.
func (v *View) verifyFieldRuns(gen *bolt.Bucket) error {
	for _, r := range v.state.FieldRuns {
		var b *bolt.Bucket
		if fields := gen.Bucket(bucketFields); fields != nil {
			b = fields.Bucket(key32(r.ID))
		}
		if b == nil || b.Inspect().KeyN != r.Values {
			return v.bad(nil, "field run %d has not the %d values that it should have", r.ID, r.Values)
		}
	}
	return nil
}

// verifyPostings compares the stored lists with the codes: each pair of a
// centroid and a document that the codes have is in the lists, and the lists
// hold no more pairs than that.
func (v *View) verifyPostings(ctx context.Context) error {
	k := v.header.Centroids
	for s := range v.postings {
		id := v.state.Segments[s].ID
		lists := make([]*roaring.Bitmap, k)
		for c := range lists {
			raw, err := v.Postings(s, uint32(c))
			if err != nil {
				return err
			}
			if lists[c] = roaring.New(); len(raw) > 0 {
				if err := lists[c].UnmarshalBinary(raw); err != nil {
					return v.bad(err, "postings of centroid %d in segment %d", c, id)
				}
			}
		}
		counts := make([]uint64, k)
		last := make([]uint32, k) // 1 + the last document seen with the code
		for i := range v.chunks {
			if v.chunks[i].segment != s {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			ch, err := v.Chunk(i, All)
			if err != nil {
				return err
			}
			for d := range ch.Docs() {
				ordinal := v.chunks[i].docs.first + uint32(d)
				for t := ch.Offsets[d]; t < ch.Offsets[d+1]; t++ {
					c := ch.Code(int(t))
					if last[c] == ordinal+1 {
						continue
					}
					last[c] = ordinal + 1
					counts[c]++
					if !lists[c].Contains(ordinal) {
						return v.bad(nil, "document %d has code %d, whose postings in segment %d lack it", ordinal, c, id)
					}
				}
			}
		}
		for c := range lists {
			if n := lists[c].GetCardinality(); n != counts[c] {
				return v.bad(nil, "centroid %d has %d documents in the postings of segment %d, %d by the codes", c, n, id, counts[c])
			}
		}
	}
	return nil
}
