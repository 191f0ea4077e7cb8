package kernels

import "context"

// ResidentVectors are token vectors that an encoder left in a device's memory, as consecutive
// float16, so that a build on the same device reads them without a copy through the host. All
// values are finite.
type ResidentVectors interface {
	Dim() int
	Len() int
	// Read copies the vectors with these numbers to dst: 2·Dim bytes each, little-endian.
	Read(ctx context.Context, dst []byte, numbers []uint32) error
	// Release frees them. It may be called more than once.
	Release()
}

// ResidentBuilder is a [Builder] that reads [ResidentVectors] directly from its device. Its
// [TokenEncoder] is a [ResidentEncoder].
type ResidentBuilder interface {
	// HasVectors reports whether the vectors are in the memory of the builder's device.
	HasVectors(v ResidentVectors) bool
	// SelectRows selects the vectors with these numbers as the rows of k-means, in the place of
	// [RowUploader.UploadRows]. With unit they are scaled to unit length. It does not copy them:
	// the vectors must not be released before the rows.
	SelectRows(ctx context.Context, v ResidentVectors, numbers []uint32, unit bool) (ResidentRows, error)
}

// ResidentRows are rows of k-means that were selected from [ResidentVectors].
type ResidentRows interface {
	DeviceRows
	// SquaredLengths writes the squared lengths of the n rows, summed in float64.
	SquaredLengths(ctx context.Context, dst []float64) error
	// SumRows writes for each centroid, [k, dim], the sum of its rows. order and starts list
	// these as for [DeviceRows.UpdateCentroids]. Rows are added in float32, in their order.
	SumRows(ctx context.Context, dst []float32, order []uint32, starts []int) error
}

// ResidentEncoder is a [TokenEncoder] that encodes [ResidentVectors].
type ResidentEncoder interface {
	// EncodeResident encodes the vectors from number first on, as
	// [TokenEncoder.EncodeTokens] does.
	EncodeResident(ctx context.Context, dst EncodedTokens, v ResidentVectors, first int) error
}
