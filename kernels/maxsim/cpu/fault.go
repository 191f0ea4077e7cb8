package cpu

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// asFault is the error of a call whose operands cannot be read any more. Operands may be
// mapped files, which another program may cut short: goroutines that read them make such
// faults panics.
func asFault(err error) error { return fmt.Errorf("%w: %w", maxsim.ErrFault, err) }
