package interop

import (
	"context"
	"fmt"
	"math"
	"slices"
)

const (
	// streamTokens is the block size of scans of the codes alone.
	streamTokens = 1 << 16
	// maxReports is the number of differences that VerifyIVF describes.
	maxReports = 100
)

// invertedLists are inverted lists: the list of centroid c is items[starts[c]:starts[c+1]],
// ascending and without duplicates. They take 4 bytes per posting and 8 per centroid.
type invertedLists struct {
	items  []uint32
	starts []int64
}

// listOf returns the list of centroid c.
func (l *invertedLists) listOf(c int) []uint32 { return l.items[l.starts[c]:l.starts[c+1]] }

// listItems says what inverted lists contain.
type listItems bool

const (
	documentItems listItems = false
	tokenItems    listItems = true
)

// invert computes the inverted lists from codes and lengths, in two scans of the codes: one counts,
// one fills.
func (x *Index) invert(ctx context.Context, items listItems) (*invertedLists, error) {
	l := &invertedLists{starts: make([]int64, x.K+1)}
	if err := x.visitPostings(ctx, items, func(c, _ uint32) { l.starts[c+1]++ }); err != nil {
		return nil, err
	}
	for c := range x.K {
		l.starts[c+1] += l.starts[c]
	}
	l.items = make([]uint32, l.starts[x.K])
	next := slices.Clone(l.starts[:x.K])
	consistent := true
	err := x.visitPostings(ctx, items, func(c, item uint32) {
		if next[c] == l.starts[c+1] {
			consistent = false
			return
		}
		l.items[next[c]] = item
		next[c]++
	})
	if err != nil {
		return nil, err
	}
	if !consistent || !slices.Equal(next, l.starts[1:]) {
		return nil, fmt.Errorf("index folder %s: %w: two passes over the codes differ", x.Dir, ErrChanged)
	}
	return l, nil
}

// visitPostings calls visit with each distinct pair of centroid and item, in ascending order of
// items.
func (x *Index) visitPostings(ctx context.Context, items listItems, visit func(c, item uint32)) error {
	if items == tokenItems && x.Tokens > math.MaxUint32 {
		return fmt.Errorf("index folder %s: %w: lists of %d tokens", x.Dir, ErrUnsupported, x.Tokens)
	}
	var lastDoc []int64 // by centroid; unused for tokens
	if items == documentItems {
		lastDoc = make([]int64, x.K)
		for c := range lastDoc {
			lastDoc[c] = -1
		}
	}
	doc, remaining, token := -1, int32(0), uint32(0) // remaining: tokens of doc that follow
	for b, err := range x.streamBlocks(ctx, streamTokens, codesOnly) {
		if err != nil {
			return err
		}
		for _, c := range b.Codes {
			for remaining == 0 {
				doc++
				remaining = x.DocLens[doc]
			}
			remaining--
			switch {
			case items == tokenItems:
				visit(c, token)
				token++
			case lastDoc[c] != int64(doc):
				lastDoc[c] = int64(doc)
				visit(c, uint32(doc))
			}
		}
	}
	return nil
}

// VerifyIVF compares the folder's inverted lists with those that follow from codes and document
// lengths, and describes each difference. After 100 differences it gives only the number of further
// ones. An import does not need the lists: other engines are known to lose postings. It takes 4
// bytes of memory per posting.
func (x *Index) VerifyIVF(ctx context.Context) ([]string, error) {
	if x.files.ivf.file == "" {
		return []string{"there are no inverted lists"}, nil
	}
	// Compute the lists, and compare.
	want, err := x.invert(ctx, x.files.ivfItems)
	if err != nil {
		return nil, err
	}
	v := ivfVerifier{index: x, computed: want}
	if err := v.compareAll(ctx); err != nil {
		return nil, fmt.Errorf("index folder %s: %w", x.Dir, err)
	}
	if v.unreported > 0 {
		v.reports = append(v.reports, fmt.Sprintf("and %d more differences", v.unreported))
	}
	return v.reports, nil
}

// ivfVerifier compares stored inverted lists with computed ones.
type ivfVerifier struct {
	index      *Index
	computed   *invertedLists
	reports    []string // at most maxReports
	unreported int      // number of further differences
}

// addReport describes a difference.
func (v *ivfVerifier) addReport(format string, args ...any) {
	if len(v.reports) == maxReports {
		v.unreported++
		return
	}
	v.reports = append(v.reports, fmt.Sprintf(format, args...))
}

// compareAll compares the lists of all centroids.
func (v *ivfVerifier) compareAll(ctx context.Context) error {
	p := v.index.files
	items, err := v.index.folder.openArray(p.ivf)
	if err != nil {
		return err
	}
	defer items.close()
	if err := checkInts(p.ivf, items); err != nil {
		return err
	}
	lengths, err := v.readListLengths(items.Len())
	if err != nil {
		return err
	}
	// Compare each stored list.
	position, longest := 0, 0
	window := intWindow{array: items, total: items.Len()}
	for c, n := range lengths {
		longest = max(longest, n)
		if c%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		got, err := window.readRun(position, n)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ivf, err)
		}
		position += n
		if c < v.index.K {
			v.compare(c, got, v.computed.listOf(c))
		} else if n > 0 {
			v.addReport("centroid %d does not exist and has %d postings", c, n)
		}
	}
	// Report centroids without a stored list, and entries behind the last list.
	for c := len(lengths); c < v.index.K; c++ {
		if n := len(v.computed.listOf(c)); n > 0 {
			v.addReport("centroid %d has no list, %d postings are missing", c, n)
		}
	}
	if remaining := window.total - position; remaining > 0 {
		if v.index.Engine == EngineColBERT && remaining == longest {
			// ColBERT reads windows of the length of the longest list, and so appends as many zeros.
			padding, err := window.readRun(position, remaining)
			if err != nil {
				return fmt.Errorf("%s: %w", p.ivf, err)
			}
			if !slices.ContainsFunc(padding, func(doc int64) bool { return doc != 0 }) {
				return nil
			}
		}
		v.addReport("%s has %d entries, the lists end at %d", p.ivf, window.total, position)
	}
	return nil
}

// readListLengths reads the list lengths, up to the first that exceeds the remaining entries.
func (v *ivfVerifier) readListLengths(entries int) ([]int, error) {
	r := v.index.files.ivfLengths
	raw, err := v.index.folder.readIntArray(r)
	if err != nil {
		return nil, err
	}
	if len(raw) != v.index.K {
		v.addReport("%s has %d lengths, there are %d centroids", r, len(raw), v.index.K)
	}
	lengths := make([]int, 0, len(raw))
	for c, n := range raw {
		if n < 0 || n > int64(entries) {
			v.addReport("centroid %d has a list of length %d, %d entries are left", c, n, entries)
			break
		}
		entries -= int(n)
		lengths = append(lengths, int(n))
	}
	return lengths, nil
}

// compare reports missing, surplus, or disordered postings of a stored list.
func (v *ivfVerifier) compare(c int, got []int64, want []uint32) {
	if slices.EqualFunc(got, want, func(a int64, b uint32) bool { return a == int64(b) }) {
		return
	}
	sorted := slices.Clone(got)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	var missing, surplus int
	var firstMissing uint32
	var firstSurplus int64
	for i, j := 0, 0; i < len(sorted) || j < len(want); {
		switch {
		case j == len(want) || i < len(sorted) && sorted[i] < int64(want[j]):
			if surplus == 0 {
				firstSurplus = sorted[i]
			}
			surplus++
			i++
		case i == len(sorted) || sorted[i] > int64(want[j]):
			if missing == 0 {
				firstMissing = want[j]
			}
			missing++
			j++
		default:
			i++
			j++
		}
	}
	if missing > 0 {
		v.addReport("centroid %d lacks %d postings, first %d", c, missing, firstMissing)
	}
	if surplus > 0 {
		v.addReport("centroid %d has %d postings too many, first %d", c, surplus, firstSurplus)
	}
	if missing == 0 && surplus == 0 {
		v.addReport("centroid %d has a list that is not ascending or repeats postings", c)
	}
}

// intWindow reads consecutive runs of an array through a buffer.
type intWindow struct {
	array array
	total int
	buf   []int64
	from  int // index of buf[0] in the array
}

// readRun returns n elements from first on, valid until the next call.
func (w *intWindow) readRun(first, n int) ([]int64, error) {
	if first < w.from || first+n > w.from+len(w.buf) {
		size := min(max(n, 1<<15), w.total-first)
		w.buf, w.from = slices.Grow(w.buf[:0], size)[:size], first
		if err := w.array.readInts(w.buf, first); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[first-w.from : first-w.from+n], nil
}
