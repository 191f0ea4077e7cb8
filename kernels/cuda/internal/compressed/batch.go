package compressed

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// batch is a set of searches that share launches. Its methods run on the device's
// goroutine. They start work and do not wait for it, unless they say so.
type batch struct {
	rt         *runtime.Runtime
	attachment *attachment
	shape      *shape
	requests   []*request
	queries    int
	groups     int
	group      int // the first one
	maxGroups  int // groups of a query
	sideBySide int // groups that a scan takes side by side
	k          int // maximum of the documents that a query wants
	capacity   int // documents of a query that may be listed, and get a fine score
	groupBegin []uint32

	slack, deviations float32 // see PickParams

	// The position of a query whose batch has several queries with probes. Their shared clock
	// records only the start of the scan of the first, and the end of the fine scores of the last.
	probedTogether, notFirst, notLast bool

	// fineSeparately means that queries get their fine scores one after another.
	fineSeparately bool
	// direct means that the device reads the query from host memory and writes the answer to host
	// memory, which the host polls.
	direct bool
	// chained means that each kernel directly follows the previous one in the stream, so that it
	// may start early.
	chained bool

	in  inLayout
	out outLayout
	tmp tmpLayout
	// zeroed is the offset in Zeroed of the counters of fine scores, behind those of scans.
	zeroed int64
}

// The offsets of the arrays of a batch in the parts of the workspace: input, output and scratch.
type (
	inLayout struct {
		query, weights, alike, groupBegin, docs, allowed, size int64
	}
	outLayout struct {
		found, clock, candidates, kept, tiles, ids, fine, coarse, size int64
	}
	tmpLayout struct {
		frags, cols, bound, parts, unit, sRows, scores, part int64
		keys, keys2, kth, fineParts                          int64
		walk, posFirst, posEnd                               int64
		sFloat, maxima, probes, probeScores                  int64
		probeKeys, probeKeys2                                int64
		gainCols, gaps, found, kept                          int64
		marks, bits, levels, hits, gains                     int64 // findCandidates zeroes marks to hits
		size                                                 int64
	}
)

// target describes the packed documents of a scan: the index, a piece, or a list.
type target struct {
	packed     *packed
	docs       int64 // entries to rank: documents, or positions of a list
	tiles      int64
	ids        driver.Ptr // numbers of the entries, 0 means that entry i has the number i
	allowed    driver.Ptr
	isList     bool
	walkReady  bool       // the walk of the list exists
	listLenPtr driver.Ptr // number of entries if only the device knows it
	// maxByEntry is 1 where entries are the packed documents, whatever ids says.
	maxByEntry uint32
}

// newBatch returns a batch of searches of one attachment.
func newBatch(rt *runtime.Runtime, requests []*request) *batch {
	a, worst := requests[0].attachment, requests[0].attachment.scanBound == kernels.Worst
	b := &batch{
		rt:         rt,
		attachment: a,
		shape:      a.shape,
		requests:   requests,
		queries:    len(requests),
		groupBegin: []uint32{0},
	}
	for _, t := range requests {
		b.groups += t.groups
		b.maxGroups = max(b.maxGroups, t.groups)
		b.k, b.capacity, b.slack = max(b.k, t.query.K), max(b.capacity, t.capacity), max(b.slack, t.slack)
		b.groupBegin = append(b.groupBegin, uint32(b.groups))
		worst = worst || t.worstBound
	}
	if b.deviations = kernels.Deviations; worst {
		b.deviations = -1
	}
	b.k = max(min(b.k, requests[0].docs), 1)
	return b
}

// runBatch answers searches. It waits for the device.
func runBatch(rt *runtime.Runtime, requests []*request) error {
	first := requests[0]
	if err := first.attachment.ensureResident(anyContext(requests), first.corpus, nil); err != nil {
		return err
	}
	b := newBatch(rt, requests)
	now := time.Now()
	for _, t := range requests {
		t.stats.Times.Wait = now.Sub(t.Queued()) / time.Duration(len(requests))
		t.stats.Launches = 1
		if len(requests) > 1 {
			t.stats.Batched = 1
		}
	}
	var err error
	if b.attachment.resident != nil {
		err = b.searchResident(now)
	} else {
		err = b.searchStreamed()
	}
	if err == nil {
		return nil
	}
	rt.Drain()
	if errors.Is(err, driver.ErrOutOfMemory) && len(requests) > 1 {
		rt.Work.Release()
		for _, half := range [][]*request{requests[:len(requests)/2], requests[len(requests)/2:]} {
			halfErr := runBatch(rt, half)
			for _, t := range half {
				t.Fail(halfErr)
			}
		}
		return nil
	}
	return err
}

// anyContext returns the context of a batch: that of its request if it has one only, else one that
// never ends, since the other requests go on if the context of one ends.
func anyContext(requests []*request) context.Context {
	if len(requests) == 1 {
		return requests[0].Context()
	}
	return context.Background()
}

// contextsErr returns the error of a context if the contexts of all requests have ended, else nil.
func (b *batch) contextsErr() error {
	var err error
	for _, t := range b.requests {
		if err = t.Context().Err(); err == nil {
			return nil
		}
	}
	return err
}

// searchResident answers a batch, which started at start, on a resident index: one copy
// to the device and one back, without a decision of the host in between. It waits for the device.
func (b *batch) searchResident(start time.Time) error {
	t := b.requests[0]
	docs := int64(t.docs)
	tgt := target{packed: b.attachment.resident, docs: docs, tiles: int64(b.attachment.firstTile[docs])}
	if t.query.Docs != nil {
		tgt.isList = true
		tgt.docs, tgt.tiles = int64(len(t.query.Docs)), 0
		for _, d := range t.query.Docs {
			tgt.tiles += int64(b.attachment.firstTile[d+1] - b.attachment.firstTile[d])
		}
	}
	probing := t.query.Probes > 0 && t.query.Docs == nil && docs > 0
	wide := b.k > maxTopK && tgt.docs > topkBlock
	if probing {
		tgt.isList = true
	}
	if err := b.reserve(tgt, probing, wide); err != nil {
		return err
	}
	size, err := b.writeInput(&tgt)
	if err != nil {
		return err
	}
	b.chained = !probing && !wide && !tgt.isList
	work := func() error { return b.launchAll(tgt, size, probing, wide) }
	if wide || t.query.Docs != nil || tgt.docs == 0 {
		err = work()
	} else {
		b.direct = b.groups == 1 && size == b.in.docs && 32*b.shape.dim <= maxStagedBytes
		b.answerFlag().Store(0)
		err = b.replayOrLaunch(b.replayKey(tgt, size), work)
	}
	if err != nil {
		return err
	}
	if err := b.waitForAnswer(); err != nil {
		return err
	}
	b.deliverAnswers(tgt, start)
	return nil
}

// launchAll launches the copies and the kernels of a batch on a resident index. size is the number of
// bytes of the input; wide means that the host picks the candidates.
func (b *batch) launchAll(tgt target, size int64, probing, wide bool) error {
	if !b.direct {
		if err := b.sendInput(size); err != nil {
			return err
		}
	}
	if err := b.prepareQueries(probing); err != nil {
		return err
	}
	search := b.rankTarget
	if probing {
		search = b.searchProbed
	}
	if err := search(tgt, wide); err != nil || b.direct {
		return err
	}
	return b.fetchAnswers(b.out.coarse)
}

// launchChained launches a kernel, which starts early if the batch is chained. plaid.cuh says
// which work the kernels do before they wait for the previous one.
func launchChained[T any](b *batch, name string, gx, gy, gz, block, shared int, args *T) error {
	return runtime.LaunchAfter(b.rt, b.chained, name, gx, gy, gz, block, shared, args)
}

// answerFlag returns the word behind a direct answer, which the device writes last.
func (b *batch) answerFlag() *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b.rt.Work.HostOut[b.out.coarse]))
}

// watchDuration is how long the host polls for a direct answer before it calls the driver to
// wait. The driver notices the end later, but reports errors.
const watchDuration = 2 * time.Millisecond

// waitForAnswer waits until the device has answered.
func (b *batch) waitForAnswer() error {
	if b.direct {
		answer := b.answerFlag()
		for start := time.Now(); ; {
			if answer.Load() != 0 {
				return nil
			}
			if time.Since(start) >= watchDuration {
				break
			}
		}
	}
	return b.rt.Sync()
}

// rankTarget scans a target, lists the best documents, and computes their fine scores.
func (b *batch) rankTarget(t target, wide bool) error {
	if t.docs == 0 {
		return nil
	}
	if t.tiles > 0 {
		if err := b.scanTarget(t); err != nil {
			return err
		}
	}
	pick := b.pickCandidates
	if wide {
		pick = b.pickOnHost
	}
	if err := pick(t); err != nil {
		return err
	}
	return b.fineScores(b.attachment.resident, true)
}

// replay is the graph of a search of one query. One call of the driver repeats the search
// for the next query if it has the same shape and is in the same memory.
type replay struct {
	key         replayKey
	graph       driver.Graph
	unsupported bool // the driver could not capture it
}

// replayKey has all values that the launches depend on, except the content of memory.
type replayKey struct {
	in                           inLayout
	out                          outLayout
	tmp                          tmpLayout
	zeroed, size                 int64
	target                       target
	groups, k, capacity, probes  int
	keep                         int64
	slack, deviations            float32
	words, codec                 driver.Ptr
	memIn, memOut, scratch, zero driver.Mem
	hostIn, hostOut              *byte
}

// replayKey returns the key of a batch that copies size bytes to the device.
func (b *batch) replayKey(t target, size int64) replayKey {
	w := &b.rt.Work
	return replayKey{
		in:         b.in,
		out:        b.out,
		tmp:        b.tmp,
		zeroed:     b.zeroed,
		size:       size,
		target:     t,
		groups:     b.groups,
		k:          b.k,
		capacity:   b.capacity,
		probes:     b.requests[0].query.Probes,
		keep:       b.keptDocs(t.docs),
		slack:      b.slack,
		deviations: b.deviations,
		words:      t.packed.words.Ptr,
		codec:      b.attachment.codec.Ptr,
		memIn:      w.In,
		memOut:     w.Out,
		scratch:    w.Scratch,
		zero:       w.Zeroed,
		hostIn:     unsafe.SliceData(w.HostIn),
		hostOut:    unsafe.SliceData(w.HostOut),
	}
}

// replayOrLaunch launches the work of a batch: as a graph if the previous batch had the same
// key, so that its kernels are loaded already, else directly.
func (b *batch) replayOrLaunch(key replayKey, work func() error) error {
	r, c, st := &b.attachment.replay, b.rt.Driver, b.rt.Stream
	if b.queries > 1 || r.unsupported {
		return work()
	}
	if r.key != key {
		err := c.FreeGraph(r.graph)
		*r = replay{key: key}
		if err != nil {
			return err
		}
		return work()
	}
	if r.graph == (driver.Graph{}) {
		var err error
		if r.graph, err = c.Capture(st, work); err != nil {
			r.unsupported = true
			return work() // returns the error again unless only the capture failed
		}
	}
	return c.LaunchGraph(r.graph, st)
}
