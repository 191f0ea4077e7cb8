package cuda

import (
	"context"
	"errors"
	"time"

	"github.com/plaid-ir/plaid/kernels/cuda/driver"
)

// batch is searches that share launches. Its methods run on the device's
// goroutine and only start work, unless they say otherwise.
type batch struct {
	d       *Device
	a       *attachment
	s       *shape
	tasks   []*task
	queries int
	groups  int
	most    int // groups of a query
	k       int // documents a query that get a fine score
	begin   []uint32

	in  inLayout
	out outLayout
	tmp tmpLayout
}

// The arrays of a batch in the memory of the workspace.
type (
	inLayout struct {
		query, weights, begin, list, allowed, size int64
	}
	outLayout struct {
		ids, coarse, fine, n, bound, cand, size int64
	}
	tmpLayout struct {
		frags, cols, split, sRows, scores, part, keys, keys2, best int64
		walk, posFirst, posEnd, total                              int64
		sFloat, probes, marks, hits, found                         int64
		size                                                       int64
	}
)

// target is packed documents that are scanned: the index, a piece, or a list.
type target struct {
	p       *packed
	docs    int64 // entries to rank: documents, or positions of a list
	tiles   int64
	ids     driver.Ptr // numbers of the entries; 0: i
	allowed driver.Ptr
	list    bool
	listLen driver.Ptr // number of entries if only the device knows it
}

// searchBatch answers searches. It waits for the device.
func (d *Device) searchBatch(tasks []*task) error {
	first := tasks[0].search
	a := first.at
	if err := a.ensure(anyContext(tasks), first.corpus, nil); err != nil {
		return err
	}
	b := &batch{d: d, a: a, s: a.shape, tasks: tasks, queries: len(tasks), begin: []uint32{0}}
	for _, t := range tasks {
		b.groups += t.search.groups
		b.most = max(b.most, t.search.groups)
		b.k = max(b.k, t.search.want)
		b.begin = append(b.begin, uint32(b.groups))
	}
	now := time.Now()
	for _, t := range tasks {
		t.search.stats.Times.Wait = now.Sub(t.queued)
		t.search.stats.Launches = 1
		if len(tasks) > 1 {
			t.search.stats.Batched = 1
		}
	}
	var err error
	if a.whole != nil {
		err = b.resident()
	} else {
		err = b.streamed()
	}
	if err == nil {
		return nil
	}
	_ = d.ctx.Sync(d.work.copy) // nothing may use memory that is given back next
	_ = d.ctx.Sync(d.work.stream)
	if errors.Is(err, driver.ErrOutOfMemory) && len(tasks) > 1 {
		d.work.release(d.ctx)
		for _, half := range [][]*task{tasks[:len(tasks)/2], tasks[len(tasks)/2:]} {
			herr := d.searchBatch(half)
			for _, t := range half {
				if t.err == nil {
					t.err = herr
				}
			}
		}
		return nil
	}
	return err
}

// anyContext is the context of a batch: that of its one request, or one that
// does not end, since each of several may go on without the others.
func anyContext(tasks []*task) context.Context {
	if len(tasks) == 1 {
		return tasks[0].ctx
	}
	return context.Background()
}

// ended reports the error of the contexts once all of them have ended.
func (b *batch) ended() error {
	var err error
	for _, t := range b.tasks {
		if err = t.ctx.Err(); err == nil {
			return nil
		}
	}
	return err
}

// resident answers a batch on an index that is on the device.
func (b *batch) resident() error {
	t := b.tasks[0].search
	docs := int64(t.docs)
	tgt := target{p: b.a.whole, docs: docs, tiles: int64(b.a.firstTile[docs])}
	if t.q.Docs != nil {
		tgt.list = true
		tgt.docs, tgt.tiles = int64(len(t.q.Docs)), 0
		for _, d := range t.q.Docs {
			tgt.tiles += int64(b.a.firstTile[d+1] - b.a.firstTile[d])
		}
	}
	probing := t.q.Probes > 0 && t.q.Docs == nil && docs > 0
	wide := b.k > maxTopK
	if probing {
		tgt.list = true
	}
	if err := b.reserve(tgt, probing, wide); err != nil {
		return err
	}
	if err := b.upload(&tgt); err != nil {
		return err
	}
	if err := b.prepare(probing); err != nil {
		return err
	}
	if probing {
		if err := b.probe(&tgt); err != nil {
			return err
		}
	}
	if err := b.mark(atProbed); err != nil {
		return err
	}
	if tgt.docs > 0 && tgt.tiles > 0 {
		if err := b.scan(tgt); err != nil {
			return err
		}
	}
	if err := b.mark(atScanned); err != nil {
		return err
	}
	var err error
	if wide {
		err = b.rankOnHost(tgt)
	} else {
		err = b.rank(tgt)
	}
	if err != nil {
		return err
	}
	if err := b.mark(atRanked); err != nil {
		return err
	}
	if err := b.fine(b.a.whole); err != nil {
		return err
	}
	if err := b.mark(atEnd); err != nil {
		return err
	}
	if err := b.fetch(); err != nil {
		return err
	}
	return b.collect(tgt)
}
