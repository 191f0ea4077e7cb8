package codec

import (
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/kernels"
)

// Flat returns a codec that needs no training: one centroid, which is zero, and 256
// equally spaced levels for each component. A vector is scaled until its largest
// component reaches the last level, and the factor undoes that, so that the error goes
// with the vector and not with those of a sample: at most m·√dim/255 of its length, m
// being the largest component of the vector at unit length. It is for collections that
// are too small to train on. The error wraps [ErrShape].
func Flat(dim int) (*Quantizer, error) {
	if dim < 1 || dim > kernels.MaxDim {
		return nil, fmt.Errorf("%w: dimension %d is not in 1..%d", ErrShape, dim, kernels.MaxDim)
	}
	return New(kernels.Codec{
		Centroids: kernels.Centroids{K: 1, Dim: dim, Type: kernels.BF16, Data: make([]byte, dim*kernels.BF16.Size())},
		Codebook:  kernels.Codebook{Nbits: 8, Step: 2. / 255},
		FactorMax: minFactorMax,
	})
}

// isFlat tells whether a codec is one that Flat makes.
func isFlat(k *kernels.Codec) bool {
	if k.Centroids.K != 1 || !k.Codebook.Uniform() {
		return false
	}
	for _, b := range k.Centroids.Data[:k.Centroids.Dim*k.Centroids.Type.Size()] {
		if b != 0 {
			return false
		}
	}
	return true
}

// inverseLargest is 1/max|x_j|, 0 for zeros.
func inverseLargest(x []float32) float32 {
	most := float32(0)
	for _, v := range x {
		most = max(most, float32(math.Abs(float64(v))))
	}
	if most == 0 {
		return 0
	}
	return 1 / most
}
