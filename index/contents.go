package index

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/plaid-ir/plaid/storage"
)

// Contents holds digests of the live documents of an index and of its codec. Two indexes with equal
// contents have the same documents at the same ordinals, with the same payloads and encodings,
// however their files came about: through other commits, merges and compactions.
type Contents struct {
	// Codec is the digest of centroids, cutoffs and scales.
	Codec string
	// Groups are digests of the documents, grouped by the [HashShard] of their ids: two indexes that
	// differ in one of them differ in documents of that group.
	Groups [][sha256.Size]byte
}

// Contents reads all documents and returns their digests in the given number of groups. If a
// document is damaged, the error is that of [Snapshot.Verify].
func (s *Snapshot) Contents(ctx context.Context, groups int) (c *Contents, err error) {
	if groups < 1 {
		return nil, fmt.Errorf("%w: %d groups", ErrOption, groups)
	}
	c = &Contents{Groups: make([][sha256.Size]byte, groups)}
	if c.Codec, err = s.CodecDigest(); err != nil {
		return nil, err
	}
	err = s.visitDigests(ctx, func(id string, sum [sha256.Size]byte) {
		group := &c.Groups[HashShard(id, groups)]
		for i := range group { // XOR, so that the order does not matter
			group[i] ^= sum[i]
		}
	})
	return c, err
}

// visitDigests calls visit with the digest of each live document.
func (s *Snapshot) visitDigests(ctx context.Context, visit func(id string, sum [sha256.Size]byte)) (err error) {
	defer storage.Guard(s.Path(), &err)()
	rowBytes := s.Codec().RowBytes()
	hash := sha256.New()
	// writeField hashes a field with its length, so that fields cannot run into each other.
	writeField := func(b []byte, present bool) {
		var head [9]byte
		if present {
			head[0] = 1
		}
		binary.LittleEndian.PutUint64(head[1:], uint64(len(b)))
		hash.Write(head[:])
		hash.Write(b)
	}
	// Hash ordinal, id, payload and encoded tokens of each live document.
	for i := range s.Chunks() {
		if err := ctx.Err(); err != nil {
			return err
		}
		first, offsets := s.ChunkDocs(i)
		ch, err := s.Chunk(i, storage.All)
		if err != nil {
			return err
		}
		for d := range len(offsets) - 1 {
			ordinal := first + uint32(d)
			if !s.Live(ordinal) {
				continue
			}
			payload, err := s.Payload(ordinal)
			if err != nil {
				return err
			}
			lo, hi := int(offsets[d]), int(offsets[d+1])
			id := s.ID(ordinal)
			hash.Reset()
			writeField(binary.LittleEndian.AppendUint32(nil, ordinal), true)
			writeField([]byte(id), true)
			writeField(payload, payload != nil)
			writeField(ch.Codes[lo*ch.CodeBytes:hi*ch.CodeBytes], true)
			writeField(ch.Factors[2*lo:2*hi], true)
			writeField(ch.Residuals[lo*rowBytes:hi*rowBytes], true)
			var digest [sha256.Size]byte
			hash.Sum(digest[:0])
			visit(id, digest)
		}
	}
	return nil
}

// Digest returns one digest of all contents, in hexadecimal.
func (c *Contents) Digest() string {
	sum := sha256.New()
	sum.Write([]byte(c.Codec))
	for _, group := range c.Groups {
		sum.Write(group[:])
	}
	return hex.EncodeToString(sum.Sum(nil))
}
