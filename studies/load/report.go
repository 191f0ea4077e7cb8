package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// figures are of the requests of a row; times are in milliseconds.
type figures struct {
	Requests int     `json:"requests"`
	Rate     float64 `json:"per_second"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P99      float64 `json:"p99_ms"`
	Max      float64 `json:"max_ms"`
	// CPU is processor time of the whole process, clients and writer with it, for each
	// request; what others do on the machine changes it little.
	CPU    float64        `json:"cpu_ms,omitempty"`
	Errors map[string]int `json:"errors,omitempty"`
}

func summary(t *tally) figures {
	f := figures{Requests: len(t.took), Rate: t.rate(), P50: t.at(0.5), P90: t.at(0.9), P99: t.at(0.99), Max: t.at(1), Errors: t.wrong}
	if len(t.took) > 0 {
		f.CPU = float64(t.cpu) / float64(len(t.took)) / float64(time.Millisecond)
	}
	return f
}

// row is one loop with one number of clients.
type row struct {
	Loop    string   `json:"loop"`
	Clients int      `json:"clients"`
	Writing bool     `json:"writing"`
	Engine  figures  `json:"engine"`  // Rate in queries
	Service figures  `json:"service"` // Rate in queries
	Ratio   float64  `json:"ratio"`   // median of the rounds
	Writer  *figures `json:"writer,omitempty"`
}

// loadReport is what the service reaches.
type loadReport struct {
	Documents  uint64  `json:"documents"`
	Tokens     uint64  `json:"tokens"`
	Nbits      int     `json:"nbits"`
	Centroids  int     `json:"centroids"`
	Queries    int     `json:"queries"`
	K          int     `json:"k"`
	Batch      int     `json:"queries_of_a_request"`
	Processors int     `json:"processors"`
	Slice      float64 `json:"slice_seconds"`
	Rounds     int     `json:"rounds"`
	Rows       []row   `json:"rows"`
}

func (r *loadReport) table(w io.Writer) error {
	p := &printer{w: w}
	p.f("%d documents, %d tokens, %d bits, %d centroids; %d queries, %d in a request, k = %d; %d processors; %d rounds of 2 × %g s\n\n",
		r.Documents, r.Tokens, r.Nbits, r.Centroids, r.Queries, r.Batch, r.K, r.Processors, r.Rounds, r.Slice)
	p.f("| loop | clients | writer | engine, queries a second | service | share | engine CPU ms | service | engine p50 ms | p99 | service p50 ms | p90 | p99 | most | errors |\n")
	p.f("|:--|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|\n")
	for i := range r.Rows {
		row := &r.Rows[i]
		writer := ""
		if f := row.Writer; f != nil {
			writer = fmt.Sprintf("%d updates, p50 %.0f ms, p99 %.0f ms", f.Requests, f.P50, f.P99)
		}
		errs := joined(row.Service.Errors)
		if of := joined(row.Engine.Errors); of != "0" {
			errs += "; engine: " + of
		}
		if f := row.Writer; f != nil && len(f.Errors) > 0 {
			errs += "; writer: " + joined(f.Errors)
		}
		e, s := &row.Engine, &row.Service
		p.f("| %s | %d | %s | %.0f | %.0f | %.3f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %s |\n",
			row.Loop, row.Clients, writer, e.Rate, s.Rate, row.Ratio, e.CPU, s.CPU, e.P50, e.P99, s.P50, s.P90, s.P99, s.Max, errs)
	}
	return p.err
}

// joined lists errors by code.
func joined(errs map[string]int) string {
	if len(errs) == 0 {
		return "0"
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(errs)) {
		all = append(all, fmt.Sprintf("%d × %s", errs[what], what))
	}
	return strings.Join(all, ", ")
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
