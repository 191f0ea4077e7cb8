package dense

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// codecTables are the tables of a codec in device memory, which decode compressed tokens.
type codecTables struct {
	codec                                     *kernels.Codec
	weights                                   []float32
	base                                      driver.Ptr
	centroids, centroidScale, dimScale, table int64 // offsets from base
	uploaded                                  bool
}

// reserveCodec reserves memory for the tables of a compressed matrix; it returns nil for other matrices.
func reserveCodec(a *runtime.Arena, m *maxsim.Matrix) *codecTables {
	if m.Type != maxsim.Compressed {
		return nil
	}
	c := m.Codec
	t := &codecTables{codec: c, weights: c.Codebook.Weights()}
	t.centroids = a.Append(int64(c.Centroids.K) * int64(c.Centroids.Dim) * int64(c.Centroids.Type.Size()))
	t.centroidScale, t.dimScale = reserveSlice(a, c.CentroidScale), reserveSlice(a, c.DimScale)
	t.table = reserveSlice(a, t.weights)
	return t
}

// setBase sets the address of the arena in which the tables were reserved.
func (t *codecTables) setBase(base driver.Ptr) *codecTables {
	if t != nil {
		t.base, t.uploaded = base, false
	}
	return t
}

// uploadOnce copies the tables to the device, the first time. They are not page-locked, so that they
// have been read when it returns.
func (t *codecTables) uploadOnce(rt *runtime.Runtime) error {
	if t == nil || t.uploaded {
		return nil
	}
	t.uploaded = true
	c := t.codec
	for _, part := range []struct {
		offset int64
		data   []byte
	}{
		{t.centroids, c.Centroids.Data[:c.Centroids.K*c.Centroids.Dim*c.Centroids.Type.Size()]},
		{t.centroidScale, runtime.Bytes(c.CentroidScale)},
		{t.dimScale, runtime.Bytes(c.DimScale)},
		{t.table, runtime.Bytes(t.weights)},
	} {
		if err := rt.Driver.ToDevice(t.base.Add(part.offset), part.data, rt.Stream); err != nil {
			return err
		}
	}
	return nil
}

// params returns the parameters with which dense_pack decodes the tokens of a chunk.
func (t *codecTables) params(ch *kernels.Chunk) denseCodec {
	c := t.codec
	p := denseCodec{
		centroids:     t.base.Add(t.centroids),
		weights:       t.base.Add(t.table),
		factor:        c.FactorMax / 32767,
		nbits:         uint32(c.Codebook.Nbits),
		residualBytes: uint32(c.RowBytes()),
		codeBytes:     uint32(ch.CodeBytes),
		centroidType:  uint32(c.Centroids.Type),
	}
	if c.CentroidScale != nil {
		p.centroidScale = t.base.Add(t.centroidScale)
	}
	if c.DimScale != nil {
		p.dimScale = t.base.Add(t.dimScale)
	}
	return p
}
