package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/highlight"
)

// highlighter finds the words of hits that match a question.
type highlighter struct {
	encoder *encode.Encoder
	// poolFactor returns the pooling factor of an index by its number.
	poolFactor func(shard int) int
	warn       func(format string, args ...any)
	warned     bool

	question string
	// queryTokens are the tokens of question.
	queryTokens []encode.Token
	// queryError says why queryTokens are missing.
	queryError error
}

// newHighlighter returns a highlighter for queries that are texts.
func (a *app) newHighlighter(q *openedQueries, target *searchTarget) *highlighter {
	return &highlighter{encoder: q.encoder, warn: a.printWarning,
		poolFactor: func(shard int) int { return target.shards[shard].Header().Build.Pool }}
}

// highlightWordHits encodes questions that are searched by words, and hands use the queries and a
// searcher. Both are needed to find the words of hits that match.
func (a *app) highlightWordHits(ctx context.Context, target *searchTarget, s *flags.Search, ids, texts []string,
	use func(*openedQueries, search.Searcher) error) (err error) {
	list := func(yield func(encode.Text, error) bool) {
		for i := range ids {
			if !yield(encode.Text{ID: ids[i], Text: texts[i]}, nil) {
				return
			}
		}
	}
	q, err := a.openTextQueries(ctx, &s.Queries.Encoder, list, "--highlight", s.Threads, &s.Device,
		target.snap.Header().Model, target.snap.Path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	if err := q.checkFor(target.snap); err != nil {
		return err
	}
	q.highlighter = a.newHighlighter(q, target)
	return a.withSearcher(ctx, target, s.Threads, &s.Device, func(engine searcher) error { return use(q, engine) })
}

// findSpans returns the words of a hit that match the question, or none if they cannot be found. The
// hit has its payload and its matches.
func (h *highlighter) findSpans(question string, hit *search.Hit) (spans []highlight.Span, err error) {
	if h == nil || hit.Matches == nil {
		return nil, nil
	}
	if question != h.question {
		h.queryTokens, h.queryError = highlight.KeptTokens(h.encoder, encode.Query, question)
		h.question = question
	}
	if err = h.queryError; err == nil {
		factor := h.poolFactor(hit.Shard)
		var source *highlight.SourceText
		if source, err = highlight.FindSourceText(h.encoder, hit.Payload, nil, hit.Tokens, factor); err == nil {
			return source.Spans(question, h.queryTokens, hit.Matches), nil
		}
	}
	if !highlight.IsUnknown(err) {
		return nil, err
	}
	if !h.warned {
		h.warned = true
		h.warn("no words of document %q: %v", hit.ID, err)
	}
	return nil, nil
}

// payloadSnippet returns the text that a payload shows, in lines of limit characters: with spans,
// the part of the field with the best matches, each of them marked.
func (t *hitTable) payloadSnippet(payload search.Payload, spans []highlight.Span, limit int) []string {
	score, best := map[string]float64{}, ""
	for _, s := range spans {
		if score[s.Field] += s.Score; best == "" || score[s.Field] > score[best] {
			best = s.Field
		}
	}
	text := out.TextField(payload, best)
	if best == "" || text == "" {
		return t.colours.Wrap(out.Clean(out.Snippet([]byte(payload))), limit, 1)
	}
	available := limit * t.lines
	start, end := highlight.BestWindow(text, best, spans, available-available/5)
	var windowSpans []highlight.Span
	for _, s := range spans {
		if s.Field == best && s.Start >= start && s.End <= end {
			s.Start, s.End = s.Start-start, s.End-start
			windowSpans = append(windowSpans, s)
		}
	}
	marked := highlight.MarkSpans(text[start:end], best, windowSpans, out.MarkBegin, out.MarkEnd, out.Clean)
	if start > 0 {
		marked = "…" + marked
	}
	if end < len(text) && t.lines > 1 {
		marked += " …"
	}
	return t.colours.Wrap(marked, limit, t.lines)
}

// passageColumns are the columns before the text of a passage, after its indent: the score, the number of the
// passage, and two blanks after each.
const passageColumns = 10 + 2 + 5 + 2

// writePassageLines writes the passages of a hit below it.
func (t *hitTable) writePassageLines(b *bytes.Buffer, queries *querySet, i int, h *search.Hit, indent int) error {
	for j := range h.Passages {
		p := &h.Passages[j]
		if p.Passage == nil && len(h.Passages) == 1 {
			continue // the document itself, which the line above shows
		}
		spans, err := queries.matchedSpans(i, p)
		if err != nil {
			return err
		}
		name := "#?" // stored by another program, or not returned by a service
		if p.Passage != nil {
			name = fmt.Sprintf("#%d", p.Passage.Number)
		}
		text := t.payloadSnippet(p.Payload, spans, t.payloadWidth(indent+passageColumns+1))
		line := fmt.Sprintf("%*s%10.4f  %s  %s", indent, "", p.Score, t.colours.Name(fmt.Sprintf("%-5s", name)),
			strings.Join(text[:min(1, len(text))], ""))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, line := range text[min(1, len(text)):] {
			fmt.Fprintf(b, "%*s%s\n", indent+passageColumns, "", line)
		}
	}
	return nil
}
