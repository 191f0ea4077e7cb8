//go:build amd64 && !purego

package avx2

import (
	"testing"

	"github.com/plaid-ir/plaid/kernels/internal/looptest"
)

func TestFilterLoops(t *testing.T) {
	if !Supported() {
		t.Skip("this processor lacks AVX2")
	}
	looptest.Filter(t, looptest.FilterLoops{Top: 127, Range: Range, Levels: Levels, Pack: Pack, Filter: Filter, Room: 6})
}
