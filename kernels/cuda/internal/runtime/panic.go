package runtime

import (
	"runtime/debug"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/kernels"
)

// guarded calls fn and makes an error of a panic.
func guarded(fn func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *parallel.Panic: // of another goroutine, whose stack it has
			err = &kernels.PanicError{Value: r.Value, Stack: r.Stack}
		default:
			err = &kernels.PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return fn()
}
