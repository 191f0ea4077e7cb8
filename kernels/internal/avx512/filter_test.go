//go:build amd64 && !purego

package avx512

import (
	"testing"

	"github.com/plaid-ir/plaid/kernels/internal/looptest"
)

func TestFilterLoops(t *testing.T) {
	if !SupportedBytes() {
		t.Skip("this processor lacks AVX-512 VNNI")
	}
	looptest.Filter(t, looptest.FilterLoops{Top: 255, Range: Range, Levels: Levels, Pack: Pack, Filter: Filter, Room: 6})
}
