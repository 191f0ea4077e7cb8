package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/storage"
)

// ErrCodec: indexes that were encoded with different codecs, so that scores, and
// encoded documents, of the one mean nothing in the other.
var ErrCodec = errors.New("codecs differ")

// CodecError names two indexes with different codecs. It wraps [ErrCodec].
type CodecError struct {
	Paths   [2]string
	Digests [2]string // as [Snapshot.CodecDigest] has them
}

func (e *CodecError) Error() string {
	return fmt.Sprintf("%v: %s has %.12s, %s has %.12s; indexes that are used as one are built with one codec (plaid index --codec)",
		ErrCodec, e.Paths[0], e.Digests[0], e.Paths[1], e.Digests[1])
}

// Unwrap returns ErrCodec.
func (e *CodecError) Unwrap() error { return ErrCodec }

// codecShape is what the header says of a codec.
type codecShape struct {
	Dim       int
	Nbits     int
	Centroids int
	Type      string
	Step      float32
	GridScale float32
	FactorMax float32
	Normalize bool
}

func (s *Snapshot) codecShape() codecShape {
	h := s.Header()
	return codecShape{h.Dim, h.Nbits, h.Centroids, h.CentroidType, h.Step, h.GridScale, h.FactorMax, h.Normalize}
}

// CodecDigest is the SHA-256 of what decides how vectors are encoded and decoded, in
// hexadecimal. Documents may be copied between indexes of one digest, and these
// searched as one.
func (s *Snapshot) CodecDigest() (digest string, err error) {
	defer storage.Guard(s.Path(), &err)()
	sum := sha256.New()
	shape, err := json.Marshal(s.codecShape())
	if err != nil {
		return "", err
	}
	c := s.Codec()
	writeFramed := func(b []byte) {
		sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		sum.Write(b)
	}
	writeFramed(shape)
	grid := make([]byte, 0, 2*len(c.Codebook.Grid))
	for _, g := range c.Codebook.Grid {
		grid = binary.LittleEndian.AppendUint16(grid, uint16(g))
	}
	writeFramed(grid)
	writeFramed(s.centroidBytes())
	for _, values := range [][]float32{c.DimScale, c.CentroidScale, s.Cutoffs()} {
		b := make([]byte, 0, 4*len(values))
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		writeFramed(b)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (s *Snapshot) centroidBytes() []byte {
	c := &s.Codec().Centroids
	return c.Data[:c.K*c.Dim*c.Type.Size()]
}

// checkSameCodec is a [*CodecError] unless two indexes have one codec, to the byte. That
// models differ of which both have the name is [storage.ErrModel].
func checkSameCodec(a, b *Snapshot) (err error) {
	defer storage.Guard(b.Path(), &err)()
	if err := a.Header().Model.Check(b.Header().Model); err != nil {
		return fmt.Errorf("%s and %s: %w", a.Path(), b.Path(), err)
	}
	codecA, codecB := a.Codec(), b.Codec()
	if codecA == codecB {
		return nil
	}
	equal := a.codecShape() == b.codecShape() && slices.Equal(codecA.Codebook.Grid, codecB.Codebook.Grid) &&
		slices.Equal(codecA.DimScale, codecB.DimScale) && slices.Equal(codecA.CentroidScale, codecB.CentroidScale) && slices.Equal(a.Cutoffs(), b.Cutoffs()) &&
		bytes.Equal(a.centroidBytes(), b.centroidBytes())
	if equal {
		return nil
	}
	e := &CodecError{Paths: [2]string{a.Path(), b.Path()}}
	for i, s := range []*Snapshot{a, b} {
		if e.Digests[i], err = s.CodecDigest(); err != nil {
			return err
		}
	}
	return e
}
