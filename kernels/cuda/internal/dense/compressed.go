package dense

import (
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// codecTables are what compressed tokens are decoded with, in the device's memory.
type codecTables struct {
	codec                                     *kernels.Codec
	weights                                   []float32
	base                                      driver.Ptr
	centroids, centroidScale, dimScale, table int64 // places
	uploaded                                  bool
}

// reserveCodec takes room for the tables of a matrix; nil where it needs none.
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

// setBase says where the room begins.
func (t *codecTables) setBase(base driver.Ptr) *codecTables {
	if t != nil {
		t.base, t.uploaded = base, false
	}
	return t
}

// uploadOnce brings the tables to the device, once. They are not page-locked, so that they
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

// params is what dense_pack decodes with.
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
