package kernels

import "context"

// ResidentVectors are token vectors that an encoder left on a device, as float16 and one behind
// the other, so that a build on the same device has them without the host. All of them are finite.
type ResidentVectors interface {
	Dim() int
	Len() int
	// Read copies vectors, by number, to dst: 2·Dim bytes each, little-endian.
	Read(ctx context.Context, dst []byte, numbers []uint32) error
	// Release frees them. It may be called more than once.
	Release()
}

// ResidentBuilder is a [Builder] that reads [ResidentVectors] of its device where they lie. Its
// [TokenEncoder] is a [ResidentEncoder].
type ResidentBuilder interface {
	// Holds reports whether vectors lie on the builder's device.
	Holds(v ResidentVectors) bool
	// KeepResident is KeepRows of vectors, by number; with unit, scaled to unit length. They
	// are not copied, and must not be released before the rows.
	KeepResident(ctx context.Context, v ResidentVectors, numbers []uint32, unit bool) (ResidentRows, error)
}

// ResidentRows are rows that are [ResidentVectors], by number.
type ResidentRows interface {
	KeptRows
	// Squares are the squared lengths of the n rows, summed in float64.
	Squares(ctx context.Context, dst []float64) error
	// Sums writes for each centroid, [k, dim], the sum of its rows, given as those of Means are.
	// Sums are of float32, one row after another.
	Sums(ctx context.Context, dst []float32, order []uint32, starts []int) error
}

// ResidentEncoder is a [TokenEncoder] that encodes [ResidentVectors].
type ResidentEncoder interface {
	// EncodeResident is EncodeTokens of the vectors from first on.
	EncodeResident(ctx context.Context, dst EncodedTokens, v ResidentVectors, first int) error
}
