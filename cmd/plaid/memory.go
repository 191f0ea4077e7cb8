package main

import (
	"runtime/debug"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/index"
)

// effort is how much of the machine a command may take.
type effort struct {
	threads int
	memory  int64
}

func (e *effort) register(f *pflag.FlagSet) {
	f.Var(newInt(&e.threads, 0, 0), "threads", "goroutines (0: one a processor)")
	f.Var(newSize(&e.memory, index.DefaultMemory), "memory", "budget for buffers, such as 512MiB or 2GB; a soft limit")
}

// limit makes the garbage collector work towards the budget. The function that
// it returns lifts the limit. A lower one in GOMEMLIMIT stays.
func (e *effort) limit() (lift func()) {
	old := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(old, e.memory))
	return func() { debug.SetMemoryLimit(old) }
}
