package metadata

import (
	"testing"

	"github.com/plaid-ir/plaid/storage"
)

// SmallLimits sets every limit of what is kept to a number.
func SmallLimits(t testing.TB, n int) {
	limits := []*int{&maxDepth, &maxFields, &maxFieldName, &maxText, &textPrefix, &maxMembers, &blockDocs, &blockBytes, &inlineBytes, &scanBlock}
	was := make([]int, len(limits))
	merges, largest := runMergePolicy, maxRunMemory
	for i, limit := range limits {
		was[i], *limit = *limit, n
	}
	runMergePolicy, maxRunMemory = storage.MergePolicy{Largest: 8 * uint64(n)}, 2000*int64(n)
	t.Cleanup(func() {
		for i, limit := range limits {
			*limit = was[i]
		}
		runMergePolicy, maxRunMemory = merges, largest
	})
}

// PayloadsPerBlock sets for how many documents a block of values their payloads are read,
// and returns what sets it back.
func PayloadsPerBlock(n uint64) (back func()) {
	was := payloadsPerBlock
	payloadsPerBlock = n
	return func() { payloadsPerBlock = was }
}
