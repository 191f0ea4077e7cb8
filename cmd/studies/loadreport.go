package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/collection"
)

// figures are of the requests of a row; times are in milliseconds.
type figures struct {
	requests            int
	rate                float64 // a second
	p50, p90, p99, most float64
	// cpu is processor time of the whole process, clients and writer with it, for each
	// request; what others do on the machine changes it little.
	cpu    float64
	errors map[string]int
}

func summary(t *tally) figures {
	return figures{
		requests: len(t.took), rate: t.rate(), p50: t.quantile(0.5), p90: t.quantile(0.9), p99: t.quantile(0.99), most: t.quantile(1),
		cpu: milliseconds(t.cpu) / float64(max(len(t.took), 1)), errors: t.wrong,
	}
}

// loadRow is one loop with one number of clients. Rates are of queries.
type loadRow struct {
	loop            string
	clients         int
	writing         bool
	engine, service figures
	ratio           float64 // median of the rounds
	writer          *figures
}

// loadReport is what the service reaches.
type loadReport struct {
	*loadOptions
	stats               collection.Stats
	queries, processors int
	rows                []loadRow
}

func (r *loadReport) table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d documents, %d tokens, %d bits, %d centroids; %d queries, %d in a request, k = %d; %d processors; %d rounds of 2 × %v\n\n",
		r.stats.Documents, r.stats.Tokens, r.stats.Nbits, r.stats.Centroids, r.queries, r.batch, r.k, r.processors, r.rounds, r.slice)
	b.WriteString("| loop | clients | writer | engine, queries a second | service | share | engine CPU ms | service | engine p50 ms | p99 | service p50 ms | p90 | p99 | most | errors |\n")
	b.WriteString("|:--|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|\n")
	for _, row := range r.rows {
		e, s := &row.engine, &row.service
		writer, errs := "", joined("", s.errors)+joined("engine: ", e.errors)
		if f := row.writer; f != nil {
			writer = fmt.Sprintf("%d updates, p50 %.0f ms, p99 %.0f ms", f.requests, f.p50, f.p99)
			errs += joined("writer: ", f.errors)
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %.0f | %.0f | %.3f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %s |\n",
			row.loop, row.clients, writer, e.rate, s.rate, row.ratio, e.cpu, s.cpu, e.p50, e.p99, s.p50, s.p90, s.p99, s.most, errs)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// joined lists errors by code.
func joined(whose string, errs map[string]int) (all string) {
	for _, what := range slices.Sorted(maps.Keys(errs)) {
		all += fmt.Sprintf("%s%d × %s; ", whose, errs[what], what)
	}
	return all
}
