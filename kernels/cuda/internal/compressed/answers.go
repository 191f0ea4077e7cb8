package compressed

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// The points of a batch at which the device records its clock: the starts of the stages,
// and the end of the last one.
const (
	clockStart = iota
	clockPrepared
	clockCentroids
	clockProbed
	clockScanned
	clockPicked
	clockEnd
	clockPoints
)

// clockAt returns the address for the time of a point. It is 0, so that nothing is recorded, in
// streamed batches, and at the points that the other queries of a probed batch record.
func (b *batch) clockAt(point int) driver.Ptr {
	switch {
	case b.attachment.resident == nil:
		return 0
	case b.notFirst && point == clockProbed,
		b.probedTogether && point == clockScanned,
		b.notLast && point == clockPicked:
		return 0
	}
	return b.outputPtr(b.out.clock + 8*int64(point))
}

// fetchAnswers copies the output to the host, up to an offset.
func (b *batch) fetchAnswers(size int64) error {
	w := &b.rt.Work
	return b.rt.Driver.ToHost(w.HostOut[:size], w.Out.Ptr, b.rt.Stream)
}

// pickResult returns the results of pick for a query: how many documents n belong on the list,
// which may have room for fewer, the threshold of their scores, and the largest error seen as
// a share of the bound.
func (b *batch) pickResult(query int) (n int, limit, share float32) {
	row := b.rt.Work.HostOut[b.out.found+16*int64(query):]
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(row[4*i:]) }
	return int(word(0)), math.Float32frombits(word(1)), math.Float32frombits(word(3))
}

// copyAnswers copies n values of an array of a query from the output.
func copyAnswers[T uint32 | float32](b *batch, array int64, query, n int) []T {
	out := make([]T, n)
	copy(runtime.Bytes(out), b.rt.Work.HostOut[array+4*int64(query*b.capacity):])
	return out
}

// deliverAnswers copies the results of the batch, which began at start, to its requests.
func (b *batch) deliverAnswers(t target, start time.Time) {
	times := b.stageTimes(time.Since(start))
	for i, q := range b.requests {
		n := 0
		q.listedDocs, q.threshold, q.boundShare = b.pickResult(i)
		n = min(q.listedDocs, b.capacity)
		q.ids, q.fine = copyAnswers[uint32](b, b.out.ids, i, n), copyAnswers[float32](b, b.out.fine, i, n)
		q.stats.ScanTokens = t.tiles * tileTokens
		if q.query.Probes > 0 {
			count := func(offset int64) int64 {
				return int64(binary.LittleEndian.Uint32(b.rt.Work.HostOut[offset+4*int64(i):]))
			}
			q.stats.Candidates, q.stats.ScanDocs = count(b.out.candidates), count(b.out.candidates)
			q.stats.ScanTokens = tileTokens * count(b.out.tiles)
			if b.keptDocs(t.docs) > 0 {
				q.stats.ScanDocs = count(b.out.kept)
			}
		}
		wait := q.stats.Times.Wait
		q.stats.Times = times
		q.stats.Times.Wait = wait
	}
}

// stageTimes returns the share of one search in the times of the batch. took is the time that the host
// has measured.
func (b *batch) stageTimes(took time.Duration) (t kernels.DeviceTimes) {
	var clock [clockPoints]uint64
	copy(runtime.Bytes(clock[:]), b.rt.Work.HostOut[b.out.clock:])
	n := time.Duration(b.queries)
	last := clock[clockEnd]
	for _, s := range []struct {
		dst   *time.Duration
		point int
	}{
		{&t.Fine, clockPicked},
		{&t.TopK, clockScanned},
		{&t.Scan, clockProbed},
		{&t.Probe, clockCentroids},
		{&t.Centroids, clockStart},
	} {
		if clock[s.point] == 0 { // no such stage
			continue
		}
		if last > clock[s.point] {
			*s.dst = time.Duration(last-clock[s.point]) / n
		}
		last = clock[s.point]
	}
	busy := time.Duration(0)
	if clock[clockStart] > 0 && clock[clockEnd] > clock[clockStart] {
		busy = time.Duration(clock[clockEnd] - clock[clockStart])
	}
	t.Transfer = max(took-busy, 0) / n
	return t
}
