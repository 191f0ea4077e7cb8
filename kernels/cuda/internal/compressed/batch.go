package compressed

import (
	"context"
	"errors"
	"time"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// batch is searches that share launches. Its methods run on the device's
// goroutine and only start work, unless they say otherwise.
type batch struct {
	rt       *runtime.Runtime
	a        *attachment
	s        *shape
	requests []*request
	queries  int
	groups   int
	most     int // groups of a query
	k        int // documents a query that get a fine score
	begin    []uint32

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

// The points of a batch between which time is taken.
const (
	atStart = iota
	atUploaded
	atCentroids
	atProbed
	atScanned
	atRanked
	atEnd
)

// newBatch is a batch of searches of one attachment.
func newBatch(rt *runtime.Runtime, requests []*request) *batch {
	a := requests[0].at
	b := &batch{rt: rt, a: a, s: a.shape, requests: requests, queries: len(requests), begin: []uint32{0}}
	for _, t := range requests {
		b.groups += t.groups
		b.most = max(b.most, t.groups)
		b.k = max(b.k, t.want)
		b.begin = append(b.begin, uint32(b.groups))
	}
	return b
}

// runBatch answers searches. It waits for the device.
func runBatch(rt *runtime.Runtime, requests []*request) error {
	first := requests[0]
	if err := first.at.ensure(anyContext(requests), first.corpus, nil); err != nil {
		return err
	}
	b := newBatch(rt, requests)
	now := time.Now()
	for _, t := range requests {
		t.stats.Times.Wait = now.Sub(t.Queued())
		t.stats.Launches = 1
		if len(requests) > 1 {
			t.stats.Batched = 1
		}
	}
	var err error
	if b.a.whole != nil {
		err = b.resident()
	} else {
		err = b.streamed()
	}
	if err == nil {
		return nil
	}
	rt.Drain()
	if errors.Is(err, driver.ErrOutOfMemory) && len(requests) > 1 {
		rt.Work.Release()
		for _, half := range [][]*request{requests[:len(requests)/2], requests[len(requests)/2:]} {
			herr := runBatch(rt, half)
			for _, t := range half {
				t.Fail(herr)
			}
		}
		return nil
	}
	return err
}

// anyContext is the context of a batch: that of its one request, or one that
// does not end, since each of several may go on without the others.
func anyContext(requests []*request) context.Context {
	if len(requests) == 1 {
		return requests[0].Context()
	}
	return context.Background()
}

// ended reports the error of the contexts once all of them have ended.
func (b *batch) ended() error {
	var err error
	for _, t := range b.requests {
		if err = t.Context().Err(); err == nil {
			return nil
		}
	}
	return err
}

// resident answers a batch on an index that is on the device.
func (b *batch) resident() error {
	t := b.requests[0]
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
	if err := b.rt.Mark(atProbed); err != nil {
		return err
	}
	if tgt.docs > 0 && tgt.tiles > 0 {
		if err := b.scan(tgt); err != nil {
			return err
		}
	}
	if err := b.rt.Mark(atScanned); err != nil {
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
	if err := b.rt.Mark(atRanked); err != nil {
		return err
	}
	if err := b.fine(b.a.whole); err != nil {
		return err
	}
	if err := b.rt.Mark(atEnd); err != nil {
		return err
	}
	if err := b.fetch(); err != nil {
		return err
	}
	return b.collect(tgt)
}
