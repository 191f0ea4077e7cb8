package command

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
	"github.com/plaid-ir/plaid/vectors"
)

// hitWriter prints the results of a batch of queries to stdout.
type hitWriter func(queries *querySet, results []search.Result) error

// resultFlags hold the flags for how results are printed.
type resultFlags struct {
	format    flags.Format
	stats     string
	payload   bool
	highlight bool
}

func (r *resultFlags) register(cmd *cobra.Command) {
	r.format.Register(cmd, "results", "table", "jsonl", "trec", "tsv", "grep")
	f := cmd.Flags()
	f.BoolVar(&r.payload, "show-metadata", false, "print the metadata of documents (formats table and jsonl)")
	f.BoolVar(&r.highlight, "highlight", false,
		"mark the words that matched the question (table: in colour or in brackets; "+
			"jsonl: spans)")
	flags.BareChoice(f, &r.stats, "stats", "print statistics of the searches to stderr", "table", "json")
}

// showsPayloads reports whether the results show anything of payloads.
func (r *resultFlags) showsPayloads() bool {
	_, isRun := r.runLayout()
	return r.payload || !isRun
}

// runLayout returns the layout of a run; isRun is false if the format is not that of a run.
func (r *resultFlags) runLayout() (l eval.Layout, isRun bool) {
	switch r.format.Word() {
	case "trec":
		return eval.TREC, true
	case "tsv":
		return eval.TSV, true
	}
	return 0, false
}

// checkID returns an error for an id that the format cannot express, before anything is searched.
// kind is "query" or "document".
func (r *resultFlags) checkID(kind, id string) error {
	l, isRun := r.runLayout()
	if !isRun {
		return nil
	}
	if err := l.CheckID(kind, id); err != nil && l == eval.TREC {
		return fmt.Errorf("%w: --format tsv or jsonl takes it", err)
	} else if err != nil {
		return fmt.Errorf("%w: --format jsonl takes it", err)
	}
	return nil
}

// checkIDs checks the ids of all queries or documents of a source.
func (r *resultFlags) checkIDs(kind string, src vectors.Source) error {
	if _, isRun := r.runLayout(); !isRun {
		return nil
	}
	for i := range src.Len() {
		if err := r.checkID(kind, src.ID(i)); err != nil {
			return err
		}
	}
	return nil
}

// checkIndex checks the ids of all documents of the indexes.
func (r *resultFlags) checkIndex(ctx context.Context, target *searchTarget) error {
	if _, isRun := r.runLayout(); !isRun {
		return nil
	}
	for _, snap := range target.shards {
		for ordinal := range snap.State().Docs {
			if ordinal%(1<<16) == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if !snap.Live(ordinal) {
				continue
			}
			if err := r.checkID("document", snap.ID(ordinal)); err != nil {
				return fmt.Errorf("%s: %w", snap.Path(), err)
			}
		}
	}
	return nil
}

// newHitWriter returns the writer of the chosen format.
func (t *stdio) newHitWriter(r *resultFlags) (hitWriter, error) {
	switch {
	case r.payload && r.format.Word() != "jsonl" && r.format.Word() != "table":
		return nil, flags.Usagef("--show-metadata goes with --format table and jsonl")
	case r.highlight && r.format.Word() != "table" && r.format.Word() != "jsonl":
		return nil, flags.Usagef("--highlight goes with --format table and jsonl")
	}
	switch r.format.Word() {
	case "jsonl":
		return func(queries *querySet, results []search.Result) error {
			return t.writeJSONL(r.payload, queries, results)
		}, nil
	case "grep":
		return t.writeGrep, nil
	}
	if layout, isRun := r.runLayout(); isRun {
		header := layout.Header()
		return func(queries *querySet, results []search.Result) error {
			err := t.writeRun(layout, header, queries, results)
			header = "" // only before the first hits
			return err
		}, nil
	}
	table := hitTable{
		stdio:   t,
		colours: t.colours(),
		payload: r.payload,
		lines:   1,
	}
	if r.highlight && t.outWidth > 0 {
		table.lines = highlightLines
	}
	return table.write, nil
}

// hitJSON is a [search.Hit] without the fields that have a meaning only inside the index.
type hitJSON struct {
	// Rank counts from 1.
	Rank    int            `json:"rank"`
	ID      string         `json:"id"`
	Score   float32        `json:"score"`
	Payload search.Payload `json:"metadata,omitzero"`
	// Image and Grid belong to a page of a document.
	Image string        `json:"image,omitempty"`
	Grid  *vectors.Grid `json:"grid,omitempty"`
	// Passages are those of a document, if hits are grouped.
	Passages []hitJSON `json:"passages,omitempty"`
	// Number is the number of a passage.
	Number *int `json:"n,omitempty"`
	// Start and End bound the bytes of a passage in the text of its document.
	Start *int             `json:"start,omitempty"`
	End   *int             `json:"end,omitempty"`
	Spans []highlight.Span `json:"spans,omitempty"`
}

// hitsJSON converts hits of query i, with their payloads if payload is true. offset is the number of better
// hits that were skipped.
func hitsJSON(payload bool, queries *querySet, i, offset int, hits []search.Hit) ([]hitJSON, error) {
	converted := make([]hitJSON, len(hits))
	for j := range hits {
		hit, h := &hits[j], &converted[j]
		*h = hitJSON{Rank: offset + j + 1, ID: hit.ID, Score: hit.Score}
		if payload {
			h.Payload = hit.Payload
		}
		if page, _ := vectors.PageFromPayload(hit.Payload); page != nil { // plaid explain reports a bad grid
			h.Image, h.Grid = page.Image, page.Grid
		}
		if p := hit.Passage; p != nil {
			h.Number, h.Start, h.End = &p.Number, &p.Start, &p.End
		}
		var err error
		if h.Spans, err = queries.matchedSpans(i, hit); err != nil {
			return nil, err
		}
		if hit.Passages == nil {
			continue
		}
		if h.Passages, err = hitsJSON(payload, queries, i, 0, hit.Passages); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

// writeJSONL prints one line of JSON for each query.
func (t *stdio) writeJSONL(payload bool, queries *querySet, results []search.Result) error {
	var b bytes.Buffer
	for i, r := range results {
		hits, err := hitsJSON(payload, queries, i, r.Offset, r.Hits)
		if err != nil {
			return fmt.Errorf("query %q: %w", queries.displayName(i), err)
		}
		line, err := out.TypedJSONLine("result", struct {
			Query string    `json:"query"`
			Hits  []hitJSON `json:"hits"`
		}{queries.displayName(i), hits})
		if err != nil {
			return fmt.Errorf("query %q: %w", queries.displayName(i), err)
		}
		b.Write(line)
	}
	return t.writeOutput(b.Bytes())
}

// writeRun prints hits as a run, after a header, which may be "".
func (t *stdio) writeRun(layout eval.Layout, header string, queries *querySet, results []search.Result) error {
	run := &eval.Run{Tag: "plaid"}
	for i, r := range results {
		if err := beir.AddHits(run, queries.ids[i], r.Hits); err != nil {
			return err
		}
		run.RankOffset = r.Offset
	}
	b := bytes.NewBufferString(header)
	if err := layout.WriteHits(b, run); err != nil {
		return err
	}
	return t.writeOutput(b.Bytes())
}

// hitTable prints results for reading: query, rank, score, id and a text of the payload.
type hitTable struct {
	*stdio
	colours out.Colours
	payload bool
	// lines is the maximum number of lines of a payload's text.
	lines    int
	wroteAny bool
}

// snippetColumn is the width of a payload's text without a terminal, and highlightLines its number
// of lines with --highlight on a terminal.
const (
	snippetColumn  = 60
	highlightLines = 3
)

// write prints the results of a batch: below their questions, if these are arguments, or else as
// rows.
func (t *hitTable) write(queries *querySet, results []search.Result) error {
	var b bytes.Buffer
	var err error
	if queries.questionArgs != nil {
		err = t.writeAnswers(&b, queries, results)
	} else {
		err = t.writeRows(&b, queries, results)
	}
	if err != nil {
		return err
	}
	return t.writeOutput(b.Bytes())
}

// writeAnswers writes each question with its hits below it.
func (t *hitTable) writeAnswers(b *bytes.Buffer, queries *querySet, results []search.Result) error {
	for i, r := range results {
		if t.wroteAny {
			b.WriteByte('\n')
		}
		t.wroteAny = true
		fmt.Fprintln(b, t.colours.Bold(out.Printable(queries.questionArgs[i], 200)))
		idWidth := 0
		for _, h := range r.Hits {
			idWidth = max(idWidth, utf8.RuneCountInString(out.TableID(h.ID)))
		}
		if len(r.Hits) == 0 {
			fmt.Fprintln(b, "     no document matches")
		}
		for j := range r.Hits {
			h := &r.Hits[j]
			const columns = 4 + 2 + 10 + 2 + 2 // the rank, the score, and blanks after them and the id
			text, err := t.payloadLines(queries, i, h, t.payloadWidth(idWidth+columns))
			if err != nil {
				return err
			}
			t.writeHit(b, fmt.Sprintf("%4d  %10.4f  ", r.Offset+j+1, h.Score), idWidth, h, text)
			if err := t.writePassageLines(b, queries, i, h, 4+2); err != nil { // below the score
				return err
			}
		}
	}
	return nil
}

// writeHit writes a hit after a prefix: its id, padded to idWidth columns, and the lines of its
// text.
func (t *hitTable) writeHit(b *bytes.Buffer, prefix string, idWidth int, h *search.Hit, text []string) {
	id := out.TableID(h.ID)
	fill := strings.Repeat(" ", idWidth-utf8.RuneCountInString(id)+2)
	b.WriteString(strings.TrimRight(prefix+t.colours.Name(id)+fill+strings.Join(text[:min(1, len(text))], ""), " ") +
		"\n")
	indent := strings.Repeat(" ", len(prefix)+idWidth+2)
	for _, line := range text[min(1, len(text)):] {
		b.WriteString(indent + line + "\n")
	}
	if t.payload && h.Payload != nil {
		b.WriteString("      " + t.colours.Dim(out.Printable(string(h.Payload), math.MaxInt)) + "\n")
	}
}

// payloadLines returns the text of a hit's payload, in lines of limit characters.
func (t *hitTable) payloadLines(queries *querySet, i int, h *search.Hit, limit int) ([]string, error) {
	shown := h
	if len(h.Passages) == 1 && h.Passages[0].Passage == nil {
		shown = &h.Passages[0]
	}
	spans, err := queries.matchedSpans(i, shown)
	return t.payloadSnippet(shown.Payload, spans, limit), err
}

// payloadWidth returns the columns that are left for the text of a payload.
func (t *hitTable) payloadWidth(usedColumns int) int {
	if t.outWidth > 0 {
		return max(t.outWidth-usedColumns, 10)
	}
	return snippetColumn
}

// writeRows writes a row for each hit, with the id of its query.
func (t *hitTable) writeRows(b *bytes.Buffer, set *querySet, results []search.Result) error {
	queries := set.ids
	widths := struct{ query, id int }{len("QUERY"), len("ID")}
	for i, r := range results {
		widths.query = max(widths.query, utf8.RuneCountInString(out.TableID(queries[i])))
		for _, h := range r.Hits {
			widths.id = max(widths.id, utf8.RuneCountInString(out.TableID(h.ID)))
		}
	}
	payloadColumns := t.payloadWidth(widths.query + widths.id + len("  RANK       SCORE    "))
	line := func(query, rank, score, id string) {
		fmt.Fprintf(b, "%-*s  %4s  %10s  %s\n", widths.query, query, rank, score, id)
	}
	if !t.wroteAny {
		t.wroteAny = true
		line("QUERY", "RANK", "SCORE", "ID")
	}
	for i, r := range results {
		query := out.TableID(queries[i])
		if len(r.Hits) == 0 {
			line(query, "-", "-", "no document matches")
		}
		for j := range r.Hits {
			h := &r.Hits[j]
			text, err := t.payloadLines(set, i, h, payloadColumns)
			if err != nil {
				return err
			}
			t.writeHit(b, fmt.Sprintf("%-*s  %4d  %10.4f  ", widths.query, query, r.Offset+j+1, h.Score), widths.id,
				h, text)
			if err := t.writePassageLines(b, set, i, h, widths.query+2+4+2); err != nil { // below the score
				return err
			}
		}
	}
	return nil
}
