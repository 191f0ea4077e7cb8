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
	Tombstones int64 `json:"tombstones"` // which documents are deleted, have a payload, and are passages
	Payload    int64 `json:"metadata"`   // what is stored beside documents
	Fields     int64 `json:"fields"`     // what is derived from payloads
}

// Total adds them up.
func (s Sizes) Total() int64 {
	return s.Codec + s.Codes + s.Residuals + s.Factors + s.Docs + s.IDs + s.Postings + s.Tombstones + s.Payload + s.Fields
}

// Inspect walks all values of the generation: their digest and their sizes. It is an
// error if one fails its checksum.
//
// The digest is the SHA-256 of every bucket and key of the generation in key
// order: names, values and their lengths. Two indexes of the same digest hold
// the same codec, documents, postings and payloads, byte for byte.
func (v *Snapshot) Inspect(ctx context.Context) (digest string, sizes Sizes, err error) {
	defer Guard(v.file.path, &err)()
	if err := v.Whole(ctx); err != nil {
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
	err = walk(ctx, gen, nil, func(b *bolt.Bucket, path [][]byte, k, val []byte) error {
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
		if part := sizes.part(path, k); part != nil {
			*part += int64(len(k) + len(val))
		}
		return nil
	})
	if err == nil { // what is not there is in no digest, and may be missed all the same
		err = errors.Join(v.verifyKeys(ctx), v.checkIDs())
	}
	return hex.EncodeToString(sum.Sum(nil)), sizes, err
}

func (s *Sizes) part(path [][]byte, key []byte) *int64 {
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

// walk visits buckets (val nil) and values below b in key order, each with the bucket that it is in.
func walk(ctx context.Context, b *bolt.Bucket, path [][]byte,
	visit func(b *bolt.Bucket, path [][]byte, k, val []byte) error) error {
	if len(path) > 2 { // a generation has buckets in buckets, no more
		return fmt.Errorf("%w: buckets too deep at %s", ErrCorrupt, layout.ValueName(path))
	}
	return b.ForEach(func(k, val []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(b, path, k, val); err != nil || val != nil {
			return err
		}
		return walk(ctx, b.Bucket(k), append(path[:len(path):len(path)], k), visit)
	})
}

// Verify checks everything that can be checked without the original vectors:
// the pages of the B+tree, every checksum, that codes are in range, that the
// postings are those of the codes, and that ids and ordinals agree. It returns
// all faults that it finds, joined; but a damaged B+tree alone.
func (v *Snapshot) Verify(ctx context.Context) (err error) {
	defer Guard(v.file.path, &err)()
	if err := v.Whole(ctx); err != nil {
		return err
	}
	var faults []error
	add := func(err error) {
		if err != nil && len(faults) < maxFaults {
			faults = append(faults, err)
		}
	}
	if err := boltfile.CheckTransaction(ctx, v.handle.file, uint64(v.tx.ID())); err != nil {
		return treeFault(ctx, v.file.path, err) // not to be walked: bbolt would follow wild pointers
	}
	add(v.verifySums(ctx, add))
	if len(faults) == 0 {
		add(v.verifyIDs(ctx))
		add(v.verifyPostings(ctx))
		add(v.verifyKeys(ctx))
	}
	if len(faults) == maxFaults {
		faults = append(faults, v.corrupt(nil, "and more: the first %d faults are listed", maxFaults))
	}
	return errors.Join(faults...)
}

// maxFaults bounds what Verify lists of a file that is damaged all over.
const maxFaults = 20

// verifySums reports each value whose checksum is wrong.
func (v *Snapshot) verifySums(ctx context.Context, report func(error)) error {
	for _, name := range [][]byte{layout.RootBucket, layout.GenerationName(v.generation)} {
		err := walk(ctx, v.tx.Bucket(name), nil, func(b *bolt.Bucket, path [][]byte, k, val []byte) error {
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

// sealedAs is the key that the checksum of a value covers, at a path of buckets below
// that of the generation.
func sealedAs(path [][]byte, k []byte) []byte {
	if len(path) == 2 { // in the bucket of a chunk or segment
		return slices.Concat(path[1], k)
	}
	return k
}

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
			if got, ok, err := v.Ordinal(id); err != nil {
				return err
			} else if !ok || got != ordinal {
				return v.corrupt(nil, "id %q of document %d leads to document %d", id, ordinal, got)
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

// passageRun is where the passages of a document begin and end.
type passageRun struct{ first, end uint64 }

// verifyPassage makes sure that the document of a passage has it, and that it does not begin among
// the passages of another one, the last before the ordinal. It returns the last one behind it.
func (v *Snapshot) verifyPassage(ordinal uint32, id string, last passageRun) (passageRun, error) {
	if !v.passages.Contains(ordinal) {
		return last, nil
	}
	parent := id[:max(strings.LastIndexByte(id, '#'), 0)]
	first, n, ok, err := v.Run(parent)
	run := passageRun{uint64(first), uint64(first) + uint64(n)}
	switch {
	case err != nil:
		return last, err
	case !ok || ordinal-first >= n:
		return last, v.corrupt(nil, "passage %q is none of the passages of %q", id, parent)
	case run != last && run.first < last.end:
		return last, v.corrupt(nil, "passages of %q are among those of another document", parent)
	}
	return run, nil
}

// verifyKeys makes sure that the buckets hold something of all that the state has, and
// nothing of what is not there, as they would after a write that was lost; only what an
// unfinished writer has staged beyond the counters.
func (v *Snapshot) verifyKeys(ctx context.Context) error {
	gen := v.tx.Bucket(layout.GenerationName(v.generation))
	staging := v.tx.Bucket(layout.RootBucket).Get(layout.KeyStaging) != nil
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
	payloads := uint32(0)
	faults := []error{
		v.verifyNumbers(ctx, gen, layout.BucketChunks, func(n uint32) error {
			if !chunks[n] && !(staging && n >= v.state.NextChunk) {
				return v.corrupt(nil, "chunk %d belongs to no segment", n)
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
				return v.corrupt(nil, "postings of segment %d are not the %d blocks that it has", n, want)
			}
			return nil
		}),
		v.verifyNumbers(ctx, gen, layout.BucketPayload, func(n uint32) error {
			if v.HasPayload(n) {
				payloads++
			} else if !(staging && n >= v.state.Docs) {
				return v.corrupt(nil, "there is payload of document %d, which has none", n)
			}
			return nil
		}),
		v.verifyFieldRuns(gen),
		v.verifyNumbers(ctx, gen, layout.BucketFields, func(n uint32) error {
			if !runs[n] && !(staging && n >= v.state.NextFieldRun) {
				return v.corrupt(nil, "field run %d is not one of the state", n)
			}
			return nil
		}),
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if want := uint32(v.payloadDocs.GetCardinality()); payloads != want {
		faults = append(faults, v.corrupt(nil, "there are %d payloads of the %d documents that have one", payloads, want))
	}
	return errors.Join(faults...)
}

// verifyNumbers makes sure that the keys of a bucket are numbers, in order, and checks each.
func (v *Snapshot) verifyNumbers(ctx context.Context, gen *bolt.Bucket, bucket []byte, check func(n uint32) error) error {
	last := int64(-1)
	return gen.Bucket(bucket).ForEach(func(k, _ []byte) error {
		if len(k) != 4 {
			return v.corrupt(nil, "%s has a key %q", bucket, k)
		}
		n := layout.NumberOfKey(k)
		if int64(n) <= last {
			return v.corrupt(nil, "%s has key %d after %d", bucket, n, last)
		}
		last = int64(n)
		return errors.Join(ctx.Err(), check(n))
	})
}

// verifyFieldRuns looks for values of runs that are lost.
func (v *Snapshot) verifyFieldRuns(gen *bolt.Bucket) error {
	for _, r := range v.state.FieldRuns {
		b := gen.Bucket(layout.BucketFields).Bucket(layout.NumberKey(r.ID))
		if b == nil || b.Inspect().KeyN != r.Values {
			return v.corrupt(nil, "field run %d has not the %d values that it should have", r.ID, r.Values)
		}
	}
	return nil
}

// verifyPostings compares the stored lists with the codes: each pair of a
// centroid and a document that the codes have is in the lists, and the lists
// hold no more pairs than that.
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

// readPostings are the lists of a segment, by centroid.
func (v *Snapshot) readPostings(segment int) ([]*roaring.Bitmap, error) {
	lists := make([]*roaring.Bitmap, v.header.Centroids)
	for c := range lists {
		raw, err := v.Postings(segment, uint32(c))
		if err != nil {
			return nil, err
		}
		if lists[c] = roaring.New(); len(raw) > 0 {
			if err := lists[c].UnmarshalBinary(raw); err != nil {
				return nil, v.corrupt(err, "postings of centroid %d in segment %d", c, v.state.Segments[segment].ID)
			}
		}
	}
	return lists, nil
}

// compareCodes compares the lists of a segment with the codes of its chunks.
func (v *Snapshot) compareCodes(ctx context.Context, segment int, lists []*roaring.Bitmap) error {
	id := v.state.Segments[segment].ID
	counts := make([]uint64, len(lists)) // documents of each code
	last := make([]uint32, len(lists))   // 1 + the last document seen with the code
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
					return v.corrupt(nil, "document %d has code %d, whose postings in segment %d lack it", ordinal, code, id)
				}
			}
		}
	}
	for c, list := range lists {
		if n := list.GetCardinality(); n != counts[c] {
			return v.corrupt(nil, "centroid %d has %d documents in the postings of segment %d, %d by the codes", c, n, id, counts[c])
		}
	}
	return nil
}
