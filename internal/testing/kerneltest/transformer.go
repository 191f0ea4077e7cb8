package kerneltest

import (
	"context"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// EncodeHalves is that of [transformer.Model] for one that only has Encode, which gives
// vectors of so many dimensions.
func EncodeHalves(ctx context.Context, encode func(context.Context, []float32, transformer.Batch) error, dim int, dst []byte, b transformer.Batch, kept []int32) error {
	if err := b.CheckKept(kept, len(dst), dim); err != nil {
		return err
	}
	all := make([]float32, len(b.IDs)*dim)
	if err := encode(ctx, all, b); err != nil {
		return err
	}
	for i, id := range kept {
		floats.EncodeFloat16(dst[2*dim*i:], all[int(id)*dim:int(id+1)*dim])
	}
	return nil
}
