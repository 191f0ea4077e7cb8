package cpu

import (
	"fmt"
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Operands may be mapped files, and one that another program cuts short faults when it is
// read. That ends the call with an error.

// guard turns a fault in the memory of an operand, of this goroutine or of one of a
// pool, into an error, and makes faults be what they were:
//
//	defer guard(&err, debug.SetPanicOnFault(true))
//
// Goroutines of a pool have to make faults panics, too.
func guard(err *error, old bool) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	v := r
	if p, ok := v.(*parallel.Panic); ok {
		v = p.Value
	}
	if _, fault := v.(interface{ Addr() uintptr }); !fault {
		panic(r)
	}
	*err = fmt.Errorf("%w: %v", maxsim.ErrFault, v)
}
