package storage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage/internal/boltfile"
	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Sizes is the number of bytes of each kind of content in an index. Keys, checksums and tails count,
// the overhead of B+tree pages does not.
type Sizes struct {
	Codec      int64 `json:"codec"`      // centroids, cutoffs, scales
	Codes      int64 `json:"codes"`      // the number of each token's centroid
	Residuals  int64 `json:"residuals"`  // quantized residuals of tokens
	Factors    int64 `json:"factors"`    // scale factors of tokens
	Docs       int64 `json:"docs"`       // lengths and ids by ordinal
	IDs        int64 `json:"ids"`        // ordinals by id
	Postings   int64 `json:"postings"`   // documents by centroid
	Tombstones int64 `json:"tombstones"` // bitmaps of documents: deleted ones, those with a payload, passages
	Payload    int64 `json:"metadata"`   // payloads of documents
	Fields     int64 `json:"fields"`     // data derived from payloads
}

// Total returns the sum of all sizes.
func (s Sizes) Total() int64 {
	perToken := s.Codes + s.Residuals + s.Factors
	perDocument := s.Docs + s.IDs + s.Payload + s.Fields
	return s.Codec + perToken + perDocument + s.Postings + s.Tombstones
}

// Inspect reads all values of the generation, and returns their digest and their sizes. It returns
// an error if a checksum is wrong.
//
// The digest is the SHA-256 of every bucket and key of the generation in key
// order: names, values and their lengths. Two indexes of the same digest hold
// the same codec, documents, postings and payloads, byte for byte.
func (v *Snapshot) Inspect(ctx context.Context) (digest string, sizes Sizes, err error) {
	defer Guard(v.file.path, &err)()
	if err := v.WaitComplete(ctx); err != nil {
		return "", sizes, err
	}
	sum := sha256.New()
	var frame [9]byte
	write := func(kind byte, b []byte) {
		frame[0] = kind
		binary.LittleEndian.PutUint64(frame[1:], uint64(len(b)))
		sum.Write(frame[:])
		sum.Write(b)
	}
	gen := v.tx.Bucket(layout.GenerationName(v.generation))
	err = walkBuckets(ctx, gen, nil, func(b *bolt.Bucket, path [][]byte, k, val []byte) error {
		if val == nil {
			write('b', k)
			return nil
		}
		var fault error
		if v.checkValue(b, path, k, val, func(err error) { fault = err }); fault != nil {
			return fault
		}
		write('k', k)
		write('v', val)
		if size := sizes.fieldFor(path, k); size != nil {
			*size += int64(len(k) + len(val))
		}
		return nil
	})
	if err == nil { // a value that was lost would change the digest, but not be reported
		err = errors.Join(v.verifyKeys(ctx), v.checkIDs())
	}
	return hex.EncodeToString(sum.Sum(nil)), sizes, err
}

// fieldFor returns the size to which a value counts, by its path in the generation.
func (s *Sizes) fieldFor(path [][]byte, key []byte) *int64 {
	if len(path) == 0 {
		switch string(key) {
		case string(layout.KeyTombstones), string(layout.KeyPayloadDocs), string(layout.KeyPassages):
			return &s.Tombstones
		}
		return &s.Codec
	}
	switch string(path[0]) {
	case string(layout.BucketCodec):
		return &s.Codec
	case string(layout.BucketIDs):
		return &s.IDs
	case string(layout.BucketPayload):
		return &s.Payload
	case string(layout.BucketPostings):
		return &s.Postings
	case string(layout.BucketFields):
		return &s.Fields
	}
	switch string(key) {
	case string(layout.KeyCodes):
		return &s.Codes
	case string(layout.KeyFactors):
		return &s.Factors
	case string(layout.KeyResiduals):
		return &s.Residuals
	}
	return &s.Docs
}

// walkBuckets visits the buckets and values below b in key order, each with the bucket that contains it.
// val is nil for a bucket.
func walkBuckets(ctx context.Context, b *bolt.Bucket, path [][]byte,
	visit func(b *bolt.Bucket, path [][]byte, k, val []byte) error) error {
	if len(path) > 2 { // a generation has two levels of buckets
		return fmt.Errorf("%w: buckets too deep at %s", ErrCorrupt, layout.ValueName(path))
	}
	return b.ForEach(func(k, val []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(b, path, k, val); err != nil || val != nil {
			return err
		}
		return walkBuckets(ctx, b.Bucket(k), append(path[:len(path):len(path)], k), visit)
	})
}

// Verify checks everything that can be checked without the original vectors: the pages of the
// B+tree, every checksum, that codes are in range, that the postings match the codes, and that ids
// and ordinals agree. It returns all faults that it finds, joined. If the B+tree is damaged, it
// returns only that fault.
func (v *Snapshot) Verify(ctx context.Context) (err error) {
	defer Guard(v.file.path, &err)()
	if err := v.WaitComplete(ctx); err != nil {
		return err
	}
	var faults []error
	add := func(err error) {
		if err != nil && len(faults) < maxFaults {
			faults = append(faults, err)
		}
	}
	if err := boltfile.CheckTransaction(ctx, v.handle.file, uint64(v.tx.ID())); err != nil {
		return treeError(ctx, v.file.path, err) // walking on, bbolt would follow wild pointers
	}
	add(v.verifyAllChecksums(ctx, add))
	if len(faults) == 0 {
		add(v.verifyIDs(ctx))
		add(v.verifyPostings(ctx))
		add(v.verifyKeys(ctx))
	}
	if len(faults) == maxFaults {
		faults = append(faults, v.corruptError(nil, "and more: the first %d faults are listed", maxFaults))
	}
	return errors.Join(faults...)
}

// maxFaults is the maximum number of faults that Verify lists.
const maxFaults = 20

// verifyAllChecksums reports each value whose checksum is wrong.
func (v *Snapshot) verifyAllChecksums(ctx context.Context, report func(error)) error {
	for _, name := range [][]byte{layout.RootBucket, layout.GenerationName(v.generation)} {
		err := walkBuckets(ctx, v.tx.Bucket(name), nil, func(b *bolt.Bucket, path [][]byte, k, val []byte) error {
			if val == nil {
				return nil
			}
			v.checkValue(b, path, k, val, report)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checksumKeyOf returns the key that the checksum of a value covers. path is that of its bucket below the
// generation.
func checksumKeyOf(path [][]byte, k []byte) []byte {
	if len(path) == 2 { // in the bucket of a chunk or segment
		return slices.Concat(path[1], k)
	}
	return k
}

// verifyIDs checks that every id leads to its document and back, that payloads can be read, and that
// passages belong to their documents.
func (v *Snapshot) verifyIDs(ctx context.Context) (err error) {
	if err := v.walkIDs(); err != nil {
		return err
	}
	var last passageRun
	for i := range v.chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := v.chunks[i]
		for d := range c.Table.Count {
			ordinal := c.Table.First + uint32(d)
			if !v.Live(ordinal) {
				continue
			}
			id := c.Table.ID(d)
			if found, ok, err := v.Ordinal(id); err != nil {
				return err
			} else if !ok || found != ordinal {
				return v.corruptError(nil, "id %q of document %d leads to document %d", id, ordinal, found)
			}
			if _, err := v.Payload(ordinal); err != nil {
				return err
			}
			if last, err = v.verifyPassage(ordinal, id, last); err != nil {
				return err
			}
		}
	}
	return nil
}

// passageRun is the range of ordinals that contains the passages of a document.
type passageRun struct{ first, end uint64 }

// verifyPassage checks that the document of a passage spans its ordinal, and that the ranges of
// documents do not overlap: last is the range of the previous passage. It returns the range of this
// one, or last if the ordinal is not a passage.
func (v *Snapshot) verifyPassage(ordinal uint32, id string, last passageRun) (passageRun, error) {
	if !v.passages.Contains(ordinal) {
		return last, nil
	}
	parent := id[:max(strings.LastIndexByte(id, '#'), 0)]
	first, n, ok, err := v.PassageRange(parent)
	run := passageRun{uint64(first), uint64(first) + uint64(n)}
	switch {
	case err != nil:
		return last, err
	case !ok || ordinal-first >= n:
		return last, v.corruptError(nil, "passage %q is none of the passages of %q", id, parent)
	case run != last && run.first < last.end:
		return last, v.corruptError(nil, "passages of %q are among those of another document", parent)
	}
	return run, nil
}

// verifyKeys checks that the buckets have exactly the chunks, postings, payloads and field runs of
// the state, which they would not after a lost write. While a writer is staging, content beyond the
// counters is allowed.
func (v *Snapshot) verifyKeys(ctx context.Context) error {
	gen := v.tx.Bucket(layout.GenerationName(v.generation))
	staging := v.tx.Bucket(layout.RootBucket).Get(layout.KeyStaging) != nil
	// The numbers that the state has. Numbers from its counters on (NextChunk, NextSegment, Docs,
	// NextFieldRun) are those of a writer.
	chunks, blocks := map[uint32]bool{}, map[uint32]int{}
	for _, seg := range v.state.Segments {
		blocks[seg.ID] = seg.Blocks
		for _, c := range seg.Chunks {
			chunks[c] = true
		}
	}
	runs := map[uint32]bool{}
	for _, r := range v.state.FieldRuns {
		runs[r.ID] = true
	}
	// The numbers that the buckets have.
	payloads := uint32(0)
	faults := []error{
		v.verifyNumbers(ctx, gen, layout.BucketChunks, func(n uint32) error {
			if !chunks[n] && !(staging && n >= v.state.NextChunk) {
				return v.corruptError(nil, "chunk %d belongs to no segment", n)
			}
			return nil
		}),
		v.verifyNumbers(ctx, gen, layout.BucketPostings, func(n uint32) error {
			want, ok := blocks[n]
			if !ok && staging && n >= v.state.NextSegment {
				return nil
			}
			b := gen.Bucket(layout.BucketPostings).Bucket(layout.NumberKey(n))
			if !ok || b == nil || b.Inspect().KeyN != want {
				return v.corruptError(nil, "postings of segment %d are not the %d blocks that it has", n, want)
			}
			return nil
		}),
		v.verifyNumbers(ctx, gen, layout.BucketPayload, func(n uint32) error {
			if v.HasPayload(n) {
				payloads++
			} else if !(staging && n >= v.state.Docs) {
				return v.corruptError(nil, "there is payload of document %d, which has none", n)
			}
			return nil
		}),
		v.verifyFieldRuns(gen),
		v.verifyNumbers(ctx, gen, layout.BucketFields, func(n uint32) error {
			if !runs[n] && !(staging && n >= v.state.NextFieldRun) {
				return v.corruptError(nil, "field run %d is not one of the state", n)
			}
			return nil
		}),
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if want := uint32(v.payloadDocs.GetCardinality()); payloads != want {
		faults = append(faults, v.corruptError(nil,
			"there are %d payloads of the %d documents that have one", payloads, want))
	}
	return errors.Join(faults...)
}

// verifyNumbers checks that the keys of a bucket are numbers in ascending order, and calls check
// with each.
func (v *Snapshot) verifyNumbers(
	ctx context.Context, gen *bolt.Bucket, bucket []byte, check func(n uint32) error,
) error {
	last := int64(-1)
	return gen.Bucket(bucket).ForEach(func(k, _ []byte) error {
		if len(k) != 4 {
			return v.corruptError(nil, "%s has a key %q", bucket, k)
		}
		n := layout.NumberFromKey(k)
		if int64(n) <= last {
			return v.corruptError(nil, "%s has key %d after %d", bucket, n, last)
		}
		last = int64(n)
		return errors.Join(ctx.Err(), check(n))
	})
}

// verifyFieldRuns checks that no field run has lost a value.
func (v *Snapshot) verifyFieldRuns(gen *bolt.Bucket) error {
	for _, r := range v.state.FieldRuns {
		b := gen.Bucket(layout.BucketFields).Bucket(layout.NumberKey(r.ID))
		if b == nil || b.Inspect().KeyN != r.Values {
			return v.corruptError(nil, "field run %d has not the %d values that it should have", r.ID, r.Values)
		}
	}
	return nil
}

// verifyPostings compares the posting lists with the codes: each pair of a centroid and a document
// in the codes is in the lists, and the lists have no further pairs.
func (v *Snapshot) verifyPostings(ctx context.Context) error {
	for segment := range v.postings {
		lists, err := v.readPostings(segment)
		if err != nil {
			return err
		}
		if err := v.compareCodes(ctx, segment, lists); err != nil {
			return err
		}
	}
	return nil
}

// readPostings returns the posting lists of a segment, by centroid.
func (v *Snapshot) readPostings(segment int) ([]*roaring.Bitmap, error) {
	lists := make([]*roaring.Bitmap, v.header.Centroids)
	for c := range lists {
		raw, err := v.Postings(segment, uint32(c))
		if err != nil {
			return nil, err
		}
		if lists[c] = roaring.New(); len(raw) > 0 {
			if err := lists[c].UnmarshalBinary(raw); err != nil {
				return nil, v.corruptError(err, "postings of centroid %d in segment %d",
					c, v.state.Segments[segment].ID)
			}
		}
	}
	return lists, nil
}

// compareCodes compares the lists of a segment with the codes of its chunks.
func (v *Snapshot) compareCodes(ctx context.Context, segment int, lists []*roaring.Bitmap) error {
	id := v.state.Segments[segment].ID
	counts := make([]uint64, len(lists)) // documents with each code
	last := make([]uint32, len(lists))   // 1 + the last document seen with each code
	// Every pair of the codes is in the lists.
	for i, c := range v.chunks {
		if c.segment != segment {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk, err := v.Chunk(i, All)
		if err != nil {
			return err
		}
		for d := range chunk.Docs() {
			ordinal := c.Table.First + uint32(d)
			for t := chunk.Offsets[d]; t < chunk.Offsets[d+1]; t++ {
				code := chunk.Code(int(t))
				if last[code] == ordinal+1 {
					continue
				}
				last[code] = ordinal + 1
				counts[code]++
				if !lists[code].Contains(ordinal) {
					return v.corruptError(nil, "document %d has code %d, whose postings in segment %d lack it",
						ordinal, code, id)
				}
			}
		}
	}
	// The lists have no more pairs.
	for c, list := range lists {
		if n := list.GetCardinality(); n != counts[c] {
			return v.corruptError(nil, "centroid %d has %d documents in the postings of segment %d, %d by the codes",
				c, n, id, counts[c])
		}
	}
	return nil
}
