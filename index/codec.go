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

// ErrCodec reports indexes that were encoded with different codecs: scores, and encoded documents,
// of one are meaningless in the other.
var ErrCodec = errors.New("codecs differ")

// CodecError names two indexes with different codecs. It wraps [ErrCodec].
type CodecError struct {
	Paths   [2]string
	Digests [2]string // from [Snapshot.CodecDigest]
}

func (e *CodecError) Error() string {
	return fmt.Sprintf("%v: %s has %.12s, %s has %.12s; "+
		"build indexes that are used as one with one codec (plaid index --codec)",
		ErrCodec, e.Paths[0], e.Digests[0], e.Paths[1], e.Digests[1])
}

// Unwrap returns ErrCodec.
func (e *CodecError) Unwrap() error { return ErrCodec }

// codecShape holds the fields of the header that describe a codec.
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
	return codecShape{
		Dim:       h.Dim,
		Nbits:     h.Nbits,
		Centroids: h.Centroids,
		Type:      h.CentroidType,
		Step:      h.Step,
		GridScale: h.GridScale,
		FactorMax: h.FactorMax,
		Normalize: h.Normalize,
	}
}

// CodecDigest returns the SHA-256, in hexadecimal, of everything that decides how vectors are
// encoded and decoded. Documents may be copied between indexes with the same digest, and such
// indexes may be searched as one.
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

// centroidBytes returns the stored centroids.
func (s *Snapshot) centroidBytes() []byte {
	c := &s.Codec().Centroids
	return c.Data[:c.K*c.Dim*c.Type.Size()]
}

// checkSameCodec returns a [*CodecError] unless two indexes have the same codec, to the byte. If
// both name their model and the names differ, it returns [storage.ErrModel].
func checkSameCodec(a, b *Snapshot) (err error) {
	defer storage.Guard(b.Path(), &err)()
	if err := a.Header().Model.Check(b.Header().Model); err != nil {
		return fmt.Errorf("%s and %s: %w", a.Path(), b.Path(), err)
	}
	codecA, codecB := a.Codec(), b.Codec()
	if codecA == codecB {
		return nil
	}
	equal := a.codecShape() == b.codecShape() &&
		slices.Equal(codecA.Codebook.Grid, codecB.Codebook.Grid) &&
		slices.Equal(codecA.DimScale, codecB.DimScale) &&
		slices.Equal(codecA.CentroidScale, codecB.CentroidScale) &&
		slices.Equal(a.Cutoffs(), b.Cutoffs()) &&
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
