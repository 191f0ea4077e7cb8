package dense

import (
	"fmt"
	"strings"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// kernel is a forward kernel and how work is cut for it.
type kernel struct {
	name          string
	block, shared int
	tokens        int // of a query in a group, at most
	groups        int // of a unit, at most
	teams         int // units of a block
	slots         int // units that fill the device
}

// shape is what a kernel is chosen by.
type shape struct {
	docs, queries packedRows
	fast          bool // formats fit the kernels of sm_90a
	all           bool // every query meets the same documents
	queryCount    int
	longest       int // query, in tokens
	tokens        int // of all queries
	argmax        bool
	groupsAlone   bool // few units have the same group
}

// batchStages is how many stages the ring of a dense_batch kernel has, by row length
// in steps and warpgroups; see src/dense/dense.cu.
var batchStages = map[format]map[[2]int]int{
	i8:    {{2, 2}: 8, {2, 4}: 8, {4, 2}: 8, {4, 4}: 8, {8, 2}: 5, {8, 4}: 8},
	f16:   {{4, 2}: 8, {4, 4}: 8, {6, 2}: 6, {6, 4}: 8, {8, 2}: 5, {8, 4}: 8, {16, 2}: 6},
	bf16:  {{4, 2}: 8, {4, 4}: 8, {6, 2}: 6, {6, 4}: 8, {8, 2}: 5, {8, 4}: 8, {16, 2}: 6},
	split: {{8, 2}: 5, {16, 2}: 6},
}

// takesAnyRows reports whether a kernel takes rows as they are, whatever their type and length.
func (k *kernel) takesAnyRows() bool { return strings.HasPrefix(k.name, "dense/dense_any") }

// most columns of the query operand of dense_rows.
const maxColumns = 64

// hasFewQueryTokens reports whether few query tokens meet each document.
func (s *shape) hasFewQueryTokens() bool {
	return s.longest <= maxColumns && (!s.all || s.queryCount == 1)
}

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

// pickHopperKernel picks a kernel of sm_90a: query tokens on the rows of the product where there
// are many for each document, else documents.
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
	// Blocks of several teams need room for one operand.
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

// launchWork is what a launch of a forward kernel does. Its memory is used again.
type launchWork struct {
	items  []denseItem
	groups []denseGroup
	units  []denseUnit
	// Sums of groups, where a query has several: sums i, of count, of groups of part.
	partAt, outAt       []uint64
	sumGroups, sumCount []uint32
	part                int  // floats of part; 0: scores are what groups give
	gaps                bool // some places of the results get nothing from a unit
	cuts                []int
	// Where the results of each document are among those of a query, and the end; see
	// cutDocuments. Pairs of queries and segments, what puts these together, and the
	// documents with tokens.
	resultStart  []int
	segmentPairs [][2]uint32
	joins        []denseJoin
	nonEmptyDocs []denseItem
	// What follows the kernel, where it does not give the scores.
	sums *denseSumParams
	join *denseJoinParams
}

func (w *launchWork) reset() {
	w.items, w.groups, w.units = w.items[:0], w.groups[:0], w.units[:0]
	w.partAt, w.outAt, w.sumGroups, w.sumCount = w.partAt[:0], w.outAt[:0], w.sumGroups[:0], w.sumCount[:0]
	w.part, w.gaps = 0, false
}

// spans are items of rows one after another, those of queries or of documents.
type spans interface {
	itemCount() int
	rowCount(i int) int // rows of an item
	firstRow(i int) int
	longestItem() int
}

// pairAll pairs every query with the documents lo to hi, whose rows begin with the token base. The
// results of a query are pitch apart, argmaxima of a pair have stride places.
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
	// Units that read the same documents are neighbours.
	w.cutRuns(0, len(w.items), runsThatFill(blocks, len(w.items), k.slots))
	w.addUnits(0, len(w.groups), k.slots/blocks, k)
}

// pairListed pairs queries with documents of their own: n pairs, by query, whose rows begin
// with the token base.
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

func (w *launchWork) addItem(d spans, doc, base, pos int) {
	n := d.rowCount(doc)
	if n == 0 {
		w.gaps = true
		return
	}
	w.items = append(w.items, denseItem{begin: uint64(d.firstRow(doc) - base), len: uint32(n), pos: uint32(pos)})
}

// addGroup adds the tokens of a query from r on.
func (w *launchWork) addGroup(q spans, query, r int, k *kernel, out, arg uint64, stride int) {
	w.groups = append(w.groups, denseGroup{
		out:      out,
		arg:      arg + uint64(r),
		row:      uint32(q.firstRow(query) + r),
		count:    uint32(min(q.rowCount(query)-r, k.tokens)),
		argPitch: uint32(stride),
	})
}

// addUnits adds the units of groups with the runs of items that were cut. share is how many runs would
// fill the part of the device that is for them.
func (w *launchWork) addUnits(first, end, share int, k *kernel) {
	if runs := len(w.cuts) - 1; k.teams > 1 { // the teams of a block have one group
		// Where there are fewer, blocks take fewer than they have teams.
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

func (w *launchWork) addUnit(group, groups, lo, hi int) {
	w.units = append(w.units, denseUnit{
		group:  uint32(group),
		groups: uint32(groups),
		begin:  uint32(lo),
		end:    uint32(hi),
		first:  w.items[lo],
	})
}

// cutRuns cuts items into n runs of about as many tokens; none is empty.
func (w *launchWork) cutRuns(lo, hi, n int) {
	var total uint64
	for _, it := range w.items[lo:hi] {
		total += uint64(it.len)
	}
	w.cuts = append(w.cuts[:0], lo)
	var sum uint64
	for i := lo; i < hi; i++ {
		// The end of a run is where the sum comes nearest to its share; enough items
		// are left for the runs to come.
		runs, remaining := len(w.cuts), hi-i
		share := total * uint64(runs) / uint64(n)
		if i > w.cuts[runs-1] && runs < n && (sum+uint64(w.items[i].len)/2 >= share || remaining <= n-runs) {
			w.cuts = append(w.cuts, i)
		}
		sum += uint64(w.items[i].len)
	}
	w.cuts = append(w.cuts, hi)
}

// runsThatFill is how many runs the documents are cut into, for blocks of queries each, so
// that the units fill the device a whole number of times, or nearly.
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
