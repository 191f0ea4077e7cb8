package storage

// MergePolicy decides which parts of something that grows part by part are merged: segments of
// an index, runs of fields, segments of a keywords file. It is the logarithmic method (Bentley
// and Saxe, 1980): a new part takes in the ones before it that are at most twice as large as
// all that it has gathered. So each part is more than twice as large as the next, their number
// is logarithmic in the size of the whole, and each rewrite moves data into a part at least
// half as large again. The unit of sizes is the caller's.
type MergePolicy struct {
	// Largest is the size above which a part is left alone.
	Largest uint64
	// Full is the size from which on a new part takes in nothing more; 0: there is none.
	Full uint64
}

// Absorbs tells whether a new part that has gathered so much takes in the part before.
// It is for who learns only by merging how large the result is; [KeepParts] is for
// sizes that add up.
func (p MergePolicy) Absorbs(gathered, before uint64) bool {
	return before <= p.Largest && before-before/2 <= gathered && (p.Full == 0 || gathered < p.Full)
}

// KeepParts returns the number of parts, older ones first, that stay as they are when a new
// part of a size comes; the ones after them are merged into it.
func KeepParts[P any](p MergePolicy, parts []P, size func(P) uint64, gathered uint64) int {
	keep := len(parts)
	for ; keep > 0; keep-- {
		before := size(parts[keep-1])
		if !p.Absorbs(gathered, before) {
			break
		}
		gathered += before
	}
	return keep
}
