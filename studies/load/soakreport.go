package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// sample is the service at one moment.
type sample struct {
	Seconds    float64 `json:"seconds"`
	Resident   int64   `json:"resident_bytes"`
	Anonymous  int64   `json:"anonymous_bytes"`
	Heap       int64   `json:"heap_bytes"` // what Go's collector last found alive
	File       int64   `json:"file_bytes"`
	Documents  uint64  `json:"documents"`
	Generation uint64  `json:"generation"`
}

// soakReport is what a soak found.
type soakReport struct {
	Seconds   float64  `json:"seconds"`
	Searches  figures  `json:"searches"`
	Recall    float64  `json:"recall"`        // mean of the answers
	Deviation float64  `json:"score_differs"` // the most, as a share
	Added     figures  `json:"added"`
	Deleted   figures  `json:"deleted"`
	Updated   figures  `json:"metadata_updated"`
	Retrain   figures  `json:"retrained"`
	Checked   int      `json:"documents_checked"` // twice
	Samples   []sample `json:"samples"`
	Wrong     []string `json:"wrong"`
}

func (r *soakReport) table(w io.Writer) error {
	p := &printer{w: w}
	p.f("%.0f s; recall %.4f, scores differ by at most %.2f %%; %d documents checked twice; %d faults\n\n",
		r.Seconds, r.Recall, 100*r.Deviation, r.Checked, len(r.Wrong))
	p.f("| | requests | a second | p50 ms | p90 | p99 | most | errors |\n|:--|--:|--:|--:|--:|--:|--:|:--|\n")
	for _, row := range []struct {
		name string
		f    *figures
	}{{"searches", &r.Searches}, {"updates", &r.Added}, {"deletions", &r.Deleted}, {"of metadata", &r.Updated}, {"retrainings", &r.Retrain}} {
		f := row.f
		p.f("| %s | %d | %.1f | %.1f | %.1f | %.1f | %.0f | %s |\n", row.name, f.Requests, f.Rate, f.P50, f.P90, f.P99, f.Max, joined(f.Errors))
	}
	const mb = 1e6
	p.f("\n| s | resident MB | not of files | heap | index file | documents | generation |\n|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range r.Samples {
		p.f("| %.0f | %.0f | %.0f | %.0f | %.0f | %d | %d |\n",
			s.Seconds, float64(s.Resident)/mb, float64(s.Anonymous)/mb, float64(s.Heap)/mb, float64(s.File)/mb, s.Documents, s.Generation)
	}
	for _, wrong := range r.Wrong {
		p.f("\nwrong: %s\n", wrong)
	}
	return p.err
}

func (s *soaking) sample(ctx context.Context, stderr io.Writer) {
	c := &client{address: s.child.address}
	defer c.close()
	var st struct {
		Documents, Generation uint64
		FileBytes             int64 `json:"file_bytes"`
	}
	if err := c.call(ctx, "GET", path+"/stats", nil, &st); err != nil {
		if ctx.Err() == nil {
			s.wrong("%v", err)
		}
		return
	}
	one := sample{Seconds: time.Since(s.start).Seconds(), File: st.FileBytes, Documents: st.Documents, Generation: st.Generation}
	one.Resident, one.Anonymous = s.child.memory()
	_, page, err := c.do(ctx, message("GET", "/metrics", nil))
	if err == nil {
		one.Heap = gauge(page, "go_gc_heap_live_bytes", "go_memstats_heap_alloc_bytes")
	}
	fmt.Fprintf(stderr, "%.0f s: %d MB resident, %d not of files, heap %d MB, file %d MB, %d documents, generation %d\n",
		one.Seconds, one.Resident>>20, one.Anonymous>>20, one.Heap>>20, one.File>>20, one.Documents, one.Generation)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Samples = append(s.report.Samples, one)
}

// verdict sums up.
func (s *soaking) verdict() (report, error) {
	r := &s.report
	if s.wanted > 0 {
		r.Recall = 1 - float64(s.missed)/float64(s.wanted)
	}
	r.Deviation = s.ref.deviation
	if r.Recall < leastRecall {
		s.wrong("recall %.4f; want %g", r.Recall, leastRecall)
	}
	n := len(r.Samples)
	if n == 0 {
		return r, errors.Join(errSoak, errors.New("no sample was taken"))
	}
	heap := func(samples []sample, choose func(a, b float64) float64) float64 {
		m := float64(samples[0].Heap)
		for _, one := range samples {
			m = choose(m, float64(one.Heap))
		}
		return m
	}
	// Before the training, and after it.
	early, late := heap(r.Samples[n/6:n/3+1], math.Max), heap(r.Samples[n-n/4-1:], math.Min)
	if late > heapGrowth*early+heapAllowed {
		s.wrong("the heap has grown from %.0f to %.0f MB", early/1e6, late/1e6)
	}
	if len(r.Wrong) > 0 {
		return r, errSoak
	}
	return r, nil
}
