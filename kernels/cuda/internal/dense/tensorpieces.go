package dense

import (
	"fmt"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// scorePiece is a part of a call whose intermediate results are in the workspace at a time.
type scorePiece struct {
	tables         int // number of its tables in scorePlan.made
	query, queries int // first query, and how many
	doc, docs      int // first document, and how many
	docsPerQuery   int
	pitch          int // distance from the results of a query to those of the next
	out            int // number of the first pair
}

// scoreTables has the offsets of the tables for pieces of a size among those of the plan, and their lengths.
type scoreTables struct {
	items, groups, units, partAt, outAt, sumGroups, sumCount, joins int64
	nItems, nGroups, nUnits, nSums, maxSum, nJoins, runs            int
}

// rowSpan returns how many rows the documents of a piece span.
func (x *scorePiece) rowSpan(d *Batch) int { return (x.docs-1)*d.Stride + d.Longest }

// allMeet reports whether all queries of a piece are scored with all of its documents.
func (x *scorePiece) allMeet() bool { return x.docsPerQuery == x.docs }

// queriesPerItem returns how many queries each document of a piece is scored with.
func (x *scorePiece) queriesPerItem() int {
	if x.allMeet() {
		return x.queries
	}
	return 1
}

// cutPieces divides a call into pieces of at most limit documents or pairs, and returns one piece of
// each size, the largest first. The pieces of a size share its tables.
func (p *scorePlan) cutPieces(c *ScoreCall, limit int) (shapes []scorePiece) {
	sizeNumber := map[int]int{} // by documents
	addPiece := func(x scorePiece) {
		n, ok := sizeNumber[x.docs]
		if !ok {
			n = len(shapes)
			sizeNumber[x.docs], shapes = n, append(shapes, x)
		}
		x.tables = n
		p.pieces = append(p.pieces, x)
	}
	nq, perQuery := c.Q.Items, c.Pairs.Count
	switch {
	case p.kind == PairsAll:
		forEachRun(c.D.Items, limit, func(lo, n int) {
			addPiece(scorePiece{
				queries:      nq,
				doc:          lo,
				docs:         n,
				docsPerQuery: n,
				pitch:        c.D.Items,
				out:          lo,
			})
		})
	case p.kind == PairsListed:
		forEachRun(p.pairs, limit, func(lo, n int) {
			addPiece(scorePiece{
				queries:      n,
				doc:          lo,
				docs:         n,
				docsPerQuery: 1,
				pitch:        1,
				out:          lo,
			})
		})
	case perQuery <= limit:
		forEachRun(nq, limit/perQuery, func(lo, n int) {
			addPiece(scorePiece{
				query:        lo,
				queries:      n,
				doc:          lo * perQuery,
				docs:         n * perQuery,
				docsPerQuery: perQuery,
				pitch:        perQuery,
				out:          lo * perQuery,
			})
		})
	default:
		for q := range nq {
			forEachRun(perQuery, limit, func(lo, n int) {
				addPiece(scorePiece{
					query:        q,
					queries:      1,
					doc:          q*perQuery + lo,
					docs:         n,
					docsPerQuery: n,
					pitch:        perQuery,
					out:          q*perQuery + lo,
				})
			})
		}
	}
	return shapes
}

// forEachRun divides n items into runs of at most limit, and calls visit for each, the largest first.
func forEachRun(n, limit int, visit func(lo, n int)) {
	for lo := 0; lo < n; lo += limit {
		visit(lo, min(limit, n-lo))
	}
}

// pieceTables makes the tables of a piece, except those that the device makes.
func (p *scorePlan) pieceTables(c *ScoreCall, x *scorePiece) (t scoreTables) {
	w, k, stride := &launchWork{}, &p.kernel, c.Q.Longest
	if p.kind == PairsListed {
		t.nItems, t.nGroups, t.nJoins = x.docs*p.segments, x.docs*p.perQuery, x.docs
		t.nUnits = t.nItems * runtime.CeilDiv(p.perQuery, k.groups)
		if p.perQuery > 1 && p.segments == 1 {
			w.partAt, w.outAt = []uint64{0}, []uint64{0}
			w.sumGroups, w.sumCount = []uint32{uint32(p.perQuery)}, []uint32{uint32(x.docs)}
		}
		p.addTables(&t, w, x.docs)
		return t
	}
	q := c.Q.evenItems()
	q.items = x.queries
	docs := spans(evenSpans{x.docs, c.D.Longest, c.D.Stride})
	if p.segments > 1 {
		docs = evenSegments{evenSpans{x.docs, c.D.Longest, c.D.Stride}, p.segment}
	}
	allMeet := x.allMeet()
	switch {
	case allMeet && p.segments > 1:
		w.pairAll(q, docs, 0, docs.itemCount(), 0, docs.itemCount(), stride, k)
	case allMeet:
		w.pairAll(q, docs, 0, docs.itemCount(), 0, x.pitch, stride, k)
	default:
		per := x.docsPerQuery * p.segments
		w.pairListed(q, docs, docs.itemCount(), func(i int) (int, int) { return i / per, i }, 0, stride, k)
	}
	t.nItems, t.nGroups, t.nUnits = len(w.items), len(w.groups), len(w.units)
	if p.segments > 1 {
		t.nJoins = x.queries * x.docsPerQuery
		w.partAt, w.outAt, w.sumGroups, w.sumCount = nil, nil, nil, nil
		for i := range t.nJoins {
			query := i / x.docsPerQuery
			w.joins = append(w.joins, denseJoin{
				first:    uint64(i) * uint64(p.segments),
				out:      uint64(query)*uint64(x.pitch) + uint64(i%x.docsPerQuery),
				segments: uint32(p.segments),
				row:      uint32(q.firstRow(query)),
				count:    uint32(q.rowsPerItem),
			})
		}
	} else if allMeet && c.D.Offsets != 0 {
		t.runs = w.numberRuns()
	}
	if p.fillItems {
		w.items = nil
	}
	if p.fillGroups {
		w.joins = nil
	}
	p.addTables(&t, w, x.docs)
	return t
}

// numberRuns replaces the items of units by numbers of runs, which the device divides by its own
// lengths of documents, and returns the number of runs.
func (w *launchWork) numberRuns() int {
	number := map[uint32]uint32{}
	for i, at := range w.cuts {
		number[uint32(at)] = uint32(i)
	}
	for i := range w.units {
		if u := &w.units[i]; u.begin < u.end {
			u.begin, u.end = number[u.begin], number[u.end]
		}
	}
	return len(w.cuts) - 1
}

// addTables adds the tables of w to those of the plan, and sets their offsets in t. maxSum is the maximum
// of scores of a sum.
func (p *scorePlan) addTables(t *scoreTables, w *launchWork, maxSum int) {
	in := &p.tables
	t.items, t.groups, t.units = addTable(in, w.items), addTable(in, w.groups), addTable(in, w.units)
	t.partAt, t.outAt, t.sumGroups, t.sumCount = addTable(in, w.partAt), addTable(in,
		w.outAt), addTable(in, w.sumGroups), addTable(in,
		w.sumCount)
	t.joins = addTable(in, w.joins)
	t.nSums, t.maxSum = len(w.sumCount), maxSum
}

// makeTables makes the tables for pieces of all sizes, and returns the largest lengths.
func (p *scorePlan) makeTables(c *ScoreCall, pieces []scorePiece) (largest scoreTables, err error) {
	l := &largest
	for i := range pieces {
		t := p.pieceTables(c, &pieces[i])
		p.tablesBySize = append(p.tablesBySize, t)
		l.nItems, l.nGroups = max(l.nItems, t.nItems), max(l.nGroups, t.nGroups)
		l.nUnits, l.nJoins = max(l.nUnits, t.nUnits), max(l.nJoins, t.nJoins)
	}
	if most := max(l.nItems, l.nGroups, l.nUnits, l.nJoins); most >= 1<<31 {
		return largest, fmt.Errorf("%w: %d pairs need tables of %d", driver.ErrUnsupported, p.pairs, most)
	}
	return largest, nil
}
