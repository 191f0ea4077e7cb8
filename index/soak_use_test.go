package index_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"time"
)

// use is what a process takes.
type use struct {
	heap, ordinals, pending uint64
	goroutines, descriptors int
}

// measure takes the least heap and the fewest goroutines of some looks: the holder of a
// snapshot goes on meanwhile, and what it holds in the middle of a verification is no
// growth, nor are goroutines that are about to end.
func (s *soak) measure() use {
	u := use{heap: math.MaxUint64, goroutines: math.MaxInt}
	for range 5 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		u.heap = min(u.heap, m.HeapAlloc)
		time.Sleep(20 * time.Millisecond)
		u.goroutines = min(u.goroutines, runtime.NumGoroutine())
	}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.descriptors = len(entries)
	}
	if snap, err := s.ix.Snapshot(); err == nil {
		u.ordinals = uint64(snap.State().Docs)
		if pages, err := snap.Pages(); err == nil {
			u.pending = uint64(pages.Pending)
		}
		_ = snap.Close()
	}
	return u
}

// compact rewrites the file and compares its size with what is in it.
func (s *soak) compact(ctx context.Context) (size int64, err error) {
	if err := s.ix.Compact(ctx, nil); err != nil {
		return 0, err
	}
	in, err := s.ix.Info(ctx)
	if err != nil {
		return 0, err
	}
	if content := in.Sizes.Total(); float64(in.Pages.Size) > soakFactor*float64(content)+soakSlack {
		return 0, fmt.Errorf("after compaction the file has %d bytes, its content %d", in.Pages.Size, content)
	}
	return in.Pages.Size, nil
}

// over says by what more is in use than at first, if snapshots held so many
// pages; so many descriptors more are fine.
func (u use) over(base use, held uint64, descriptors int) error {
	switch {
	case u.heap > base.heap+soakHeap+soakOrdinal*(u.ordinals-base.ordinals)+soakPending*held:
		return fmt.Errorf("heap of %d bytes, %d at first, for %d ordinals more and %d pages that are held",
			u.heap, base.heap, u.ordinals-base.ordinals, held)
	case u.goroutines > base.goroutines:
		return fmt.Errorf("%d goroutines, %d at first", u.goroutines, base.goroutines)
	case u.descriptors > base.descriptors+descriptors:
		return fmt.Errorf("%d descriptors, %d at first", u.descriptors, base.descriptors)
	}
	return nil
}

// steward compacts and measures now and then, the last time at the end.
func (s *soak) steward(ctx context.Context, total int) {
	rounds := min(max(total/600, 5), 60)
	var base use
	most := uint64(0) // pages held at a time
	for round := 1; round <= rounds && !s.stop.Load(); round++ {
		s.after(total * round / rounds)
		s.gate.Lock() // the holder goes on
		u := s.measure()
		// After a compaction the holder keeps the file before it, with its list of pages.
		most = max(most, u.pending)
		if round == 1 {
			base = u
		}
		err := u.over(base, most, 2) // what the holder keeps open, and what it keeps of it
		size, cerr := int64(0), error(nil)
		if round%2 == 0 {
			size, cerr = s.compact(ctx)
		}
		s.gate.Unlock()
		if err := errors.Join(err, cerr); err != nil {
			s.fail("round %d: %v", round, err)
		}
		s.t.Logf("%d changes: heap %.2f MiB, %d pages held, %d goroutines, %d descriptors, %d ordinals, %d checks, file %d KiB",
			s.changes(), float64(u.heap)/(1<<20), u.pending, u.goroutines, u.descriptors, u.ordinals, s.checks.Load(), size>>10)
	}
}
