package portable

import (
	"testing"

	"github.com/plaid-ir/plaid/kernels/internal/looptest"
)

// Loops that differ in form from those of the tiers are tested by package cpu.
func TestLoops(t *testing.T) {
	looptest.Run(t, looptest.Loops{
		Accumulate: Accumulate, Compose: Compose, MaxFast: MaxFast, MaxFine: MaxFine,
		MaxBytes2: func(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte) {
			MaxBytes(best, ranges, rows, codes, 2)
		},
		MaxBytes4: func(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte) {
			MaxBytes(best, ranges, rows, codes, 4)
		},
		Bytes: Bytes, Words: Words, Above: Above,
	})
}
