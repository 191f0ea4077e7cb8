package cpu

import (
	"context"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Gradients implements [maxsim.Backend].
func (b *backend) Gradients(ctx context.Context, g *maxsim.GradCall) error {
	return maxsim.ErrUnsupported
}
