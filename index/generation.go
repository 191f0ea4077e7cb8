package index

import (
	"runtime/debug"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// newGeneration makes a generation that nobody sees yet, for documents of a codec.
func newGeneration(f *storage.File, c *codec.Quantizer, build storage.Build, model *storage.Model, normalize bool) (gen uint64, err error) {
	k := c.Kernel()
	h := storage.Header{
		Dim: c.Dim, Nbits: c.Nbits, Centroids: c.K, CentroidType: k.Centroids.Type.String(),
		Step: k.Codebook.Step, GridScale: k.Codebook.Scale, FactorMax: k.FactorMax, Normalize: normalize, Model: model, Build: build,
	}
	for _, g := range k.Codebook.Grid {
		h.Grid = append(h.Grid, int(g))
	}
	return putGeneration(f, h, k, c.Cutoffs)
}

// putGeneration makes a generation that nobody sees yet.
func putGeneration(f *storage.File, h storage.Header, c *kernels.Codec, cutoffs []float32) (gen uint64, err error) {
	err = f.Update(func(tx *storage.Tx) (err error) {
		gen, err = tx.NewGeneration(h, c, cutoffs)
		return err
	})
	return gen, err
}

// Built is when and with what an index was made; it is no part of its digest.
type Built struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
}

const noteBuilt = "built"

func putBuilt(tx *storage.Tx) error {
	return tx.PutNote(noteBuilt, Built{Time: time.Now().UTC().Truncate(time.Second), Version: Version()})
}

// release is the version that the linker flags of a release set: tags of the repository are
// not those of a module in one of its folders.
var release string

// Version of the program: of its release, else from its build information.
func Version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
