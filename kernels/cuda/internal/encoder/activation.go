package encoder

import (
	"math"

	"github.com/plaid-ir/plaid/kernels/transformer"
)

// activation says how an epilogue computes an activation of feed-forward layers: x·Φ(x) with a
// polynomial for Φ, or a sigmoid.
type activation struct {
	plain, gated string     // epilogues without and with a gate
	curve        [7]float32 // coefficients of the polynomial, or parameters of the sigmoid
}

// activations has the epilogues by activation. The polynomials err by at most 2.1e-4, which is
// multiplied by x. ReLU uses a line that is so steep that it is a step.
var activations = map[transformer.Activation]activation{
	transformer.GELU: {"gelu", "geglu", [7]float32{
		2.2602039351227177e-08, -1.5895277556410292e-06, 4.7777641157153994e-05, -0.0008123188163153827,
		0.008764317259192467, -0.06455575674772263, 0.397871196269989,
	}},
	transformer.GELUTanh: {"gelu", "geglu", [7]float32{
		2.3943052e-08, -1.6647177e-06, 4.9404858e-05, -0.00082895876, 0.008840022, -0.06464243, 0.39774543,
	}},
	transformer.ReLU: {"gelu", "geglu", [7]float32{6: 1e30}},
	transformer.SiLU: {"silu", "swiglu", [7]float32{1, 0, -math.Log2E, 0}},
	transformer.Tanh: {"silu", "swiglu", [7]float32{0, 2, -2 * math.Log2E, -1}},
}

// epilogue returns the epilogue of the product with Up.
func epilogue(c *transformer.Config) string {
	a := activations[c.Activation]
	if c.Gated {
		return a.gated
	}
	return a.plain
}
