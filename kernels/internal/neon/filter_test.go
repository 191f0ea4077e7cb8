//go:build arm64 && !purego

package neon

import (
	"testing"

	"github.com/plaid-ir/plaid/kernels/internal/looptest"
)

func TestFilterLoops(t *testing.T) {
	loops := looptest.FilterLoops{Top: 255, Range: Range, Levels: Levels, Pack: Pack, Filter: Filter, Room: 6}
	if !SupportedBytes() {
		t.Log("this processor lacks the dot product extension")
		loops.Filter = nil
	}
	looptest.Filter(t, loops)
}
