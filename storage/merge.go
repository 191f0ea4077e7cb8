package storage

// MergePolicy decides which segments are merged when a new one is added: segments of an index, runs
// of fields, segments of a keywords file. It is the logarithmic method (Bentley and Saxe, 1980): a
// new segment absorbs the ones before it while these are at most twice as large as it has become.
// So each segment is more than twice as large as the next, their number is logarithmic in the total
// size, and each rewrite moves data into a segment at least half as large again. Sizes are in any
// unit of the caller.
type MergePolicy struct {
	// Largest is the maximum size of a segment that is merged.
	Largest uint64
	// Full is the size from which on a new segment absorbs nothing more. 0 means no limit.
	Full uint64
}

// Absorbs reports whether a new segment, which has grown to a size, absorbs the one before it. It is
// for callers that learn the size of a merged segment only by merging; [UnmergedCount] is for sizes that
// add up.
func (p MergePolicy) Absorbs(grown, previous uint64) bool {
	halfPrevious := previous - previous/2 // rounded up
	return previous <= p.Largest && halfPrevious <= grown && (p.Full == 0 || grown < p.Full)
}

// UnmergedCount returns the number of segments, older ones first, that stay unmerged when a new segment
// of the given size is added. The ones after them are merged into the new one.
func UnmergedCount[S any](p MergePolicy, segments []S, size func(S) uint64, newSize uint64) int {
	unmerged := len(segments)
	for ; unmerged > 0; unmerged-- {
		previous := size(segments[unmerged-1])
		if !p.Absorbs(newSize, previous) {
			break
		}
		newSize += previous
	}
	return unmerged
}
