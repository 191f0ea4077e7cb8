package dense

import (
	"fmt"
	"strings"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// kernel is a forward kernel and the limits by which work is divided for it.
type kernel struct {
	name          string
	block, shared int
	tokens        int // maximum of query tokens in a group
	groups        int // maximum of groups in a unit
	teams         int // units of a block
	slots         int // units that the device runs at the same time
}

// shape has the properties of a call that decide its kernel.
type shape struct {
	docs, queries packedRows
	fast          bool // the kernels of sm_90a support the formats
	all           bool // every query is scored with the same documents
	queryCount    int
	longest       int // query, in tokens
	tokens        int // of all queries
	argmax        bool
	groupsAlone   bool // only few units share a group
}

// batchStages has the number of stages of the ring of a dense_batch kernel, by format, and then by
// the row length in steps and the number of warpgroups; see src/dense/dense.cu.
var batchStages = map[format]map[[2]int]int{
	i8:    {{2, 2}: 8, {2, 4}: 8, {4, 2}: 8, {4, 4}: 8, {8, 2}: 5, {8, 4}: 8},
	f16:   {{4, 2}: 8, {4, 4}: 8, {6, 2}: 6, {6, 4}: 8, {8, 2}: 5, {8, 4}: 8, {16, 2}: 6},
	bf16:  {{4, 2}: 8, {4, 4}: 8, {6, 2}: 6, {6, 4}: 8, {8, 2}: 5, {8, 4}: 8, {16, 2}: 6},
	split: {{8, 2}: 5, {16, 2}: 6},
}

// takesAnyRows reports whether a kernel reads rows of any type and length without packing.
func (k *kernel) takesAnyRows() bool { return strings.HasPrefix(k.name, "dense/dense_any") }

// maxColumns is the maximum of columns of the query operand of dense_rows.
const maxColumns = 64

// hasFewQueryTokens reports whether each document is scored with few query tokens.
func (s *shape) hasFewQueryTokens() bool {
	return s.longest <= maxColumns && (!s.all || s.queryCount == 1)
}

// chooseKernel chooses the forward kernel for a shape.
func chooseKernel(rt *runtime.Runtime, s *shape) (k kernel, err error) {
	k = kernel{
		name:   "dense/dense_any",
		block:  128,
		tokens: 32,
		groups: 1,
		teams:  1,
	}
	if s.fast && rt.Arch() == "90a" {
		s.pickHopperKernel(&k, rt.Props.Shared)
	}
	if s.argmax && k.name != "dense/dense_any" {
		k.name += "_arg"
	}
	blocks, err := rt.FillingBlocks(k.name, k.block, k.shared)
	k.slots = blocks * k.teams
	return k, err
}

// pickHopperKernel sets k to a kernel of sm_90a if one supports the shape. The rows of its products are
// query tokens if each document is scored with many of them, else document tokens.
func (s *shape) pickHopperKernel(k *kernel, shared int) {
	steps, warpgroups := s.docs.rowBytes/32, 2
	groups := runtime.CeilDiv(s.longest, 16)
	if s.all {
		groups = runtime.CeilDiv(s.tokens, 16)
	}
	if _, ok := batchStages[s.docs.format][[2]int{steps, 4}]; ok && groups > 8 {
		warpgroups = 4
	}
	if stages, ok := batchStages[s.docs.format][[2]int{steps, warpgroups}]; ok && !s.hasFewQueryTokens() {
		*k = kernel{
			name:   fmt.Sprintf("dense/dense_batch_%s_s%d_g%d", s.docs.format.kernelName(), steps, warpgroups),
			block:  128 * (warpgroups + 1),
			shared: stages * (64*128*runtime.CeilDiv(s.docs.rowBytes, 128) + 256 + 16),
			tokens: 16,
			groups: 4 * warpgroups,
			teams:  1,
		}
		return
	}
	operand, sums := s.docs.rowBytes, 32 // bytes a column
	if s.docs.format == e4m3 || s.docs.format == f32 {
		operand *= 2 // as f16; as two tf32
	}
	if s.argmax {
		sums *= 2
	}
	columns, teams := 32, 1
	if s.longest > 32 && 64*(operand+sums) <= shared {
		columns = 64
	}
	// The teams of a block share one operand in shared memory.
	maxTeams := 4
	if columns == 64 {
		maxTeams--
	}
	if s.argmax {
		maxTeams--
	}
	if s.groupsAlone {
		maxTeams = 1
	}
	if columns*operand > 16<<10 {
		teams = maxTeams
	}
	if columns*(operand+teams*sums) > shared {
		return // dense_any
	}
	format, vectors := s.docs.format, vectorsPerStep(s.docs.format, s.docs.rowBytes)
	*k = kernel{
		name:   fmt.Sprintf("dense/dense_rows_%s_n%d_v%d", format.kernelName(), columns, vectors),
		block:  128 * teams,
		shared: columns * (operand + teams*sums),
		tokens: columns,
		groups: 1,
		teams:  teams,
	}
}

// launchWork has the tables of a launch of a forward kernel. Its memory is reused by the next launch.
type launchWork struct {
	items  []denseItem
	groups []denseGroup
	units  []denseUnit
	// Sums of groups, if a query has several: sum i adds sumGroups[i] groups of sumCount[i] scores each, from
	// partAt[i] on, into outAt[i].
	partAt, outAt       []uint64
	sumGroups, sumCount []uint32
	part                int  // number of partial scores, 0 means that groups compute the scores
	gaps                bool // no unit writes some of the results
	cuts                []int
	// For documents that are divided into segments, see cutDocuments.
	resultStart  []int       // the first result of each document among those of a query, and the end
	segmentPairs [][2]uint32 // pairs of queries and segments
	joins        []denseJoin // combine the results of the segments of a pair
	nonEmptyDocs []denseItem // the documents with tokens
	// The kernel that computes the scores afterwards; both nil if the forward kernel does.
	sums *denseSumParams
	join *denseJoinParams
}

// reset empties the tables of units and of sums.
func (w *launchWork) reset() {
	w.items, w.groups, w.units = w.items[:0], w.groups[:0], w.units[:0]
	w.partAt, w.outAt, w.sumGroups, w.sumCount = w.partAt[:0], w.outAt[:0], w.sumGroups[:0], w.sumCount[:0]
	w.part, w.gaps = 0, false
}

// spans are items of consecutive rows: queries or documents.
type spans interface {
	itemCount() int
	rowCount(i int) int // rows of an item
	firstRow(i int) int
	longestItem() int
}

// pairAll pairs every query with the documents lo to hi, whose first row is the token base. The
// results of a query begin pitch after those of the previous one, and the argmaxima of a pair have stride values.
func (w *launchWork) pairAll(q, d spans, lo, hi, base, pitch, stride int, k *kernel) {
	w.reset()
	n := hi - lo
	for i := lo; i < hi; i++ {
		w.addItem(d, i, base, i-lo)
	}
	several := q.longestItem() > k.tokens
	for i := range q.itemCount() {
		begin := len(w.groups)
		for r := 0; r < q.rowCount(i); r += k.tokens {
			out := uint64(i) * uint64(pitch)
			if several {
				out = uint64(len(w.groups)) * uint64(n)
			}
			w.addGroup(q, i, r, k, out, uint64(i)*uint64(pitch)*uint64(stride), stride)
		}
		if several {
			w.partAt, w.outAt = append(w.partAt, uint64(begin)*uint64(n)), append(w.outAt, uint64(i)*uint64(pitch))
			w.sumGroups, w.sumCount = append(w.sumGroups, uint32(len(w.groups)-begin)), append(w.sumCount, uint32(n))
		}
		w.gaps = w.gaps || q.rowCount(i) == 0
	}
	if several {
		w.part = len(w.groups) * n
	}
	blocks := runtime.CeilDiv(len(w.groups), k.groups)
	if len(w.items) == 0 || blocks == 0 {
		return
	}
	// Units that read the same documents follow each other, so that the cache has these.
	w.cutRuns(0, len(w.items), runsThatFill(blocks, len(w.items), k.slots))
	w.addUnits(0, len(w.groups), k.slots/blocks, k)
}

// pairListed pairs each query with its own documents: n pairs, sorted by query. The first row of the
// documents is the token base.
func (w *launchWork) pairListed(q, d spans, n int, pair func(i int) (query, doc int), base, stride int, k *kernel) {
	w.reset()
	maxGroups, total := runtime.CeilDiv(q.longestItem(), k.tokens), 0
	if maxGroups > 1 {
		w.part = maxGroups * n
		w.partAt, w.outAt = append(w.partAt, 0), append(w.outAt, 0)
		w.sumGroups, w.sumCount = append(w.sumGroups, uint32(maxGroups)), append(w.sumCount, uint32(n))
	}
	for i := range n {
		_, doc := pair(i)
		total += d.rowCount(doc)
	}
	for next := 0; next < n; {
		query, _ := pair(next)
		begin, rows := len(w.items), 0
		for ; next < n; next++ {
			other, doc := pair(next)
			if other != query {
				break
			}
			w.addItem(d, doc, base, next)
			rows += d.rowCount(doc)
		}
		first := len(w.groups)
		for r := 0; r < q.rowCount(query); r += k.tokens {
			w.addGroup(q, query, r, k, uint64(r/k.tokens)*uint64(n), 0, stride)
		}
		blocks := runtime.CeilDiv(len(w.groups)-first, k.groups)
		w.gaps = w.gaps || blocks < runtime.CeilDiv(maxGroups, k.groups) || blocks == 0
		if blocks == 0 || begin == len(w.items) {
			continue
		}
		share := int(float64(k.slots)*float64(rows)/float64(max(total, 1))/float64(blocks) + 0.5)
		w.cutRuns(begin, len(w.items), min(max(share, 1), len(w.items)-begin))
		w.addUnits(first, len(w.groups), share, k)
	}
	if maxGroups > 1 {
		w.gaps = true // queries with fewer groups than others
	}
}

// addItem adds a document, whose results are at pos.
func (w *launchWork) addItem(d spans, doc, base, pos int) {
	n := d.rowCount(doc)
	if n == 0 {
		w.gaps = true
		return
	}
	w.items = append(w.items, denseItem{begin: uint64(d.firstRow(doc) - base), len: uint32(n), pos: uint32(pos)})
}

// addGroup adds the tokens of a query from token r on, as many as a group has.
func (w *launchWork) addGroup(q spans, query, r int, k *kernel, out, arg uint64, stride int) {
	w.groups = append(w.groups, denseGroup{
		out:      out,
		arg:      arg + uint64(r),
		row:      uint32(q.firstRow(query) + r),
		count:    uint32(min(q.rowCount(query)-r, k.tokens)),
		argPitch: uint32(stride),
	})
}

// addUnits adds the units of the groups first to end with the runs of items in cuts. share is how many
// runs would fill the part of the device that these groups get.
func (w *launchWork) addUnits(first, end, share int, k *kernel) {
	if runs := len(w.cuts) - 1; k.teams > 1 { // the teams of a block share a group
		// If there are fewer runs than share, some teams of each block get none.
		teamsUsed := min(runtime.CeilDiv(runs*k.teams, max(share, 1)), k.teams)
		for g := first; g < end; g++ {
			for c := 1; c <= runs; c++ {
				w.addUnit(g, 1, w.cuts[c-1], w.cuts[c])
				for (c%teamsUsed == 0 || c == runs) && len(w.units)%k.teams > 0 {
					w.units = append(w.units, denseUnit{group: uint32(g), groups: 1})
				}
			}
		}
		return
	}
	for c := 1; c < len(w.cuts); c++ {
		for g := first; g < end; g += k.groups {
			w.addUnit(g, min(k.groups, end-g), w.cuts[c-1], w.cuts[c])
		}
	}
}

// addUnit adds a unit of groups from group on, with the items lo to hi.
func (w *launchWork) addUnit(group, groups, lo, hi int) {
	w.units = append(w.units, denseUnit{
		group:  uint32(group),
		groups: uint32(groups),
		begin:  uint32(lo),
		end:    uint32(hi),
		first:  w.items[lo],
	})
}

// cutRuns divides items into n runs with about the same number of tokens. No run is empty.
func (w *launchWork) cutRuns(lo, hi, n int) {
	var total uint64
	for _, it := range w.items[lo:hi] {
		total += uint64(it.len)
	}
	w.cuts = append(w.cuts[:0], lo)
	var sum uint64
	for i := lo; i < hi; i++ {
		// A run ends where the sum is nearest to its share, and early enough that an
		// item remains for each later run.
		runs, remaining := len(w.cuts), hi-i
		share := total * uint64(runs) / uint64(n)
		if i > w.cuts[runs-1] && runs < n && (sum+uint64(w.items[i].len)/2 >= share || remaining <= n-runs) {
			w.cuts = append(w.cuts, i)
		}
		sum += uint64(w.items[i].len)
	}
	w.cuts = append(w.cuts, hi)
}

// runsThatFill returns how many runs the documents are divided into. Each run has a unit for each of
// blocks blocks of queries; the units should fill the device a whole number of times, or nearly.
func runsThatFill(blocks, items, slots int) int {
	best, leastCost := 1, 0.0
	for n := 1; n <= min(items, max(2*slots/blocks, 1)); n++ {
		rounds := runtime.CeilDiv(blocks*n, slots)
		cost := float64(rounds) * float64(runtime.CeilDiv(items, n))
		if best == 1 && n == 1 || cost < 0.99*leastCost {
			best, leastCost = n, cost
		}
	}
	return best
}
