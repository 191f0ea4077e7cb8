package node

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/plaid-ir/plaid/storage"
)

// errPanic: a fault of the program, which ends what was in hand and nothing else.
var errPanic = errors.New("the program has failed")

// guard makes an error of a panic: an entry of a log, a query or an order that this
// program cannot handle must not end every node that meets it.
func (n *Node) guard(what string, work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = n.panicked(what, p, debug.Stack())
		} else {
			err = n.inside(what, err)
		}
	}()
	return work()
}

// inside is an error as it is, or that of a panic which the index has made an error.
func (n *Node) inside(what string, err error) error {
	var p *storage.PanicError
	if errors.As(err, &p) && !errors.Is(err, errPanic) {
		return n.panicked(what, p, p.Stack)
	}
	return err
}

func (n *Node) panicked(what string, value any, stack []byte) error {
	n.metrics.panics.Add(1)
	n.say()
	n.log.Error("a panic", "in", what, "value", fmt.Sprint(value), "stack", string(stack))
	return fmt.Errorf("%s: %w: %v", what, errPanic, value)
}
