package eval

// OverlapAtK returns the recall at k of one ranking against another: the share of
// the first k documents of want that are among the first k of got. With an
// exhaustive ranking as want, it shows what pruning lost, more finely than a
// measure of relevance does. A want shorter than k is divided by its own length;
// an empty one, or k < 1, gives 1, as nothing is missing. Repeated documents
// count once.
func OverlapAtK(got, want []string, k int) float64 {
	k = max(k, 0)
	got, want = got[:min(k, len(got))], want[:min(k, len(want))]
	wanted := make(map[string]struct{}, len(want))
	for _, doc := range want {
		wanted[doc] = struct{}{}
	}
	total := len(wanted)
	if total == 0 {
		return 1
	}
	for _, doc := range got {
		delete(wanted, doc)
	}
	return float64(total-len(wanted)) / float64(total)
}
