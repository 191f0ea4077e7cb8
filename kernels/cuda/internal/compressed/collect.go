package compressed

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/plaid-ir/plaid/kernels"
)

// fetch copies the output to the host and waits for it.
func (b *batch) fetch() error {
	w := &b.rt.Work
	if err := b.rt.Driver.ToHost(w.HostOut[:b.out.size], w.Out.Ptr, b.rt.Stream); err != nil {
		return err
	}
	return b.rt.Sync()
}

// collect hands the output to the searches.
func (b *batch) collect(t target) error {
	host := b.rt.Work.HostOut
	le := binary.LittleEndian
	times, err := b.times()
	if err != nil {
		return err
	}
	for i, q := range b.requests {
		row := 4 * int64(i*b.k)
		n := 0
		for n < q.want && le.Uint32(host[b.out.ids+row+4*int64(n):]) != noDocument {
			n++
		}
		q.ids, q.coarse, q.fine = make([]uint32, n), make([]float32, n), make([]float32, n)
		for j := range n {
			at := row + 4*int64(j)
			q.ids[j] = le.Uint32(host[b.out.ids+at:])
			q.coarse[j] = math.Float32frombits(le.Uint32(host[b.out.coarse+at:]))
			q.fine[j] = math.Float32frombits(le.Uint32(host[b.out.fine+at:]))
		}
		q.bound = b.boundOf(i)
		q.stats.ScanTokens = t.tiles * tileTokens
		if q.q.Probes > 0 {
			q.stats.Candidates = int64(le.Uint32(host[b.out.cand:]))
			q.stats.ScanTokens = 0 // known to the device alone
		}
		wait := q.stats.Times.Wait
		q.stats.Times = times
		q.stats.Times.Wait = wait
	}
	return nil
}

func (b *batch) boundOf(query int) float32 {
	sum := float32(0)
	for g := b.begin[query]; g < b.begin[query+1]; g++ {
		sum += math.Float32frombits(binary.LittleEndian.Uint32(b.rt.Work.HostOut[b.out.bound+4*int64(g):]))
	}
	return sum
}

// times is a search's share of the times of the batch.
func (b *batch) times() (t kernels.DeviceTimes, err error) {
	for _, s := range []struct {
		dst      *time.Duration
		from, to int
	}{
		{&t.Upload, atStart, atUploaded}, {&t.Centroids, atUploaded, atCentroids}, {&t.Probe, atCentroids, atProbed},
		{&t.Scan, atProbed, atScanned}, {&t.TopK, atScanned, atRanked}, {&t.Fine, atRanked, atEnd},
	} {
		elapsed, err := b.rt.Elapsed(s.from, s.to)
		if err != nil {
			return t, err
		}
		*s.dst = elapsed / time.Duration(b.queries)
	}
	return t, nil
}
