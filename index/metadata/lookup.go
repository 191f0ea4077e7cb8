package metadata

import (
	"context"
	"slices"
	"sort"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Test returns bounds of the documents of the run for which a test has the wanted truth: all of
// sure have it, and none outside of maybe. The caller may change the bitmaps.
func (r *Run) Test(
	ctx context.Context, t *condition.Test, wanted condition.Truth,
) (sure, maybe *roaring.Bitmap, err error) {
	head, err := r.readField(t.Field)
	if err != nil {
		return nil, nil, err
	}
	l := fieldLookup{ctx: ctx, run: r, head: head, sure: roaring.New(), maybe: roaring.New()}
	if head != nil {
		if err := l.addMatches(t, wanted); err != nil {
			return nil, nil, err
		}
	}
	undecided := r.undecidedDocs(t.Field, head)
	if t.Truth(condition.Value{}) == wanted { // documents without a value have the truth of NULL
		null := r.docs.Clone()
		null.AndNot(undecided)
		if head != nil {
			null.AndNot(head.notNull())
		}
		l.sure.Or(null)
	}
	l.maybe.Or(l.sure)
	l.maybe.Or(undecided)
	return l.sure, l.maybe, nil
}

// fieldLookup finds documents by the values of a field: sure has those with a value that passes,
// maybe also those with a value that may pass.
type fieldLookup struct {
	ctx         context.Context
	run         *Run
	head        *fieldHead
	sure, maybe *roaring.Bitmap
}

// minTruthFor returns the lowest truth of a value with which a document is found. If the test must
// be False, documents with a value that is True or Unknown are found, and excluded by the caller.
func minTruthFor(wanted condition.Truth) condition.Truth {
	if wanted == condition.False {
		return condition.Unknown
	}
	return wanted
}

// addMatches adds the documents whose field is not null and for which the test has the wanted
// truth. A test is False of a document if it is False of all values.
func (l *fieldLookup) addMatches(t *condition.Test, wanted condition.Truth) error {
	if wanted == condition.False && t.NeverFalse() {
		return nil
	}
	numbers, texts, ok := t.Spans(minTruthFor(wanted))
	oneValueEach := !l.head.multiValued && l.head.arrays.IsEmpty()
	if ok && wanted == condition.False && oneValueEach { // False of the only value is False of the document
		return l.addSpans(condition.Complement(numbers), condition.Complement(texts))
	}
	var err error
	if ok {
		err = l.addSpans(numbers, texts)
	} else {
		err = l.addByTest(t, minTruthFor(wanted))
	}
	if wanted == condition.False {
		// So far sure has the documents with a value that is not False, and maybe those with a value
		// that may not be: sure becomes the remaining documents, and maybe those that are undecided.
		others := l.head.notNull()
		others.AndNot(l.sure)
		l.maybe.AndNot(l.sure)
		others.AndNot(l.maybe)
		l.sure = others
	}
	return err
}

// firstTextBlock returns the index of the first block of texts. Blocks of numbers come before it.
func (h *fieldHead) firstTextBlock() int {
	return sort.Search(h.valueBlocks, func(i int) bool { return h.blocks[i].first.Kind == condition.Text })
}

// addSpans adds the documents with a value in one of the spans.
func (l *fieldLookup) addSpans(numbers, texts []condition.Span) error {
	firstText := l.head.firstTextBlock()
	if err := l.addSpansInBlocks(numbers, &l.head.numbers, 0, firstText); err != nil {
		return err
	}
	return l.addSpansInBlocks(texts, &l.head.texts, firstText, l.head.valueBlocks)
}

// addByTest adds the documents with a value, or an array as text, for which a test without spans
// has at least minTruth.
func (l *fieldLookup) addByTest(t *condition.Test, minTruth condition.Truth) error {
	if numbers, texts, ok := t.Points(); ok {
		return l.addPoints(numbers, texts)
	}
	return l.testEveryEntry(t, minTruth)
}

// addPoints adds the documents with one of the values, which are sorted.
func (l *fieldLookup) addPoints(numbers, texts []condition.Value) error {
	firstText := l.head.firstTextBlock()
	byValue := func(a, b *entry) int { return a.Value.Compare(b.Value) } // 2 equals 2.0
	if err := l.addEntries(newEntries(numbers), byValue, 0, firstText); err != nil {
		return err
	}
	entries := newEntries(texts)
	slices.SortFunc(entries, func(a, b entry) int { return a.compare(&b) }) // cut texts are ordered by their hash
	if err := l.addEntries(entries, (*entry).compareValue, firstText, l.head.valueBlocks); err != nil {
		return err
	}
	return l.addEntries(entries, (*entry).compareValue, l.head.valueBlocks, len(l.head.blocks))
}

// newEntries returns the entries of values.
func newEntries(values []condition.Value) []entry {
	entries := make([]entry, len(values))
	for i, v := range values {
		entries[i] = newEntry(v, condition.Plain)
	}
	return entries
}

// addEntries adds the documents with one of the wanted entries, which are sorted, from the blocks
// lo to before hi. It reads each block once.
func (l *fieldLookup) addEntries(wanted []entry, compare func(a, b *entry) int, lo, hi int) error {
	firstFrom := func(e *entry) int { // index of the first wanted entry that is not below e
		return sort.Search(len(wanted), func(i int) bool { return compare(&wanted[i], e) >= 0 })
	}
	for ; len(wanted) > 0; lo++ {
		blocks := l.head.blocks
		lo += sort.Search(hi-lo, func(i int) bool { return compare(&blocks[lo+i].last, &wanted[0]) >= 0 })
		if lo >= hi {
			break
		}
		wanted = wanted[firstFrom(&blocks[lo].first):]
		inBlock := sort.Search(len(wanted), func(i int) bool { return compare(&wanted[i], &blocks[lo].last) > 0 })
		if inBlock > 0 {
			if err := l.addEntriesOfBlock(wanted[:inBlock], compare, lo); err != nil {
				return err
			}
		}
		// Keep entries equal to the last: the next block may begin with one.
		wanted = wanted[firstFrom(&blocks[lo].last):]
	}
	return nil
}

// addEntriesOfBlock adds the documents of block i with one of the wanted entries.
func (l *fieldLookup) addEntriesOfBlock(wanted []entry, compare func(a, b *entry) int, i int) error {
	block, err := l.readBlock(i)
	if err != nil {
		return err
	}
	passes := slices.Repeat([]condition.Truth{condition.False}, len(block.entries))
	for w := range wanted {
		truth := condition.True
		if wanted[w].cut {
			truth = condition.Unknown
		}
		e := sort.Search(len(passes), func(e int) bool { return compare(&block.entries[e], &wanted[w]) >= 0 })
		for ; e < len(passes) && compare(&block.entries[e], &wanted[w]) == 0; e++ {
			passes[e] = truth
		}
	}
	block.addPassing(l.sure, l.maybe, passes)
	return nil
}

// readBlock reads a block unless the context has ended.
func (l *fieldLookup) readBlock(i int) (*valueBlock, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	return l.run.readBlock(l.head, i)
}

// testEveryEntry evaluates the test for each value, and for each array as text. For cut texts the
// result is Unknown.
func (l *fieldLookup) testEveryEntry(t *condition.Test, minTruth condition.Truth) error {
	evaluation := condition.NewEvaluation(l.ctx)
	blocks := len(l.head.blocks)
	if !t.MatchesArrayText() {
		blocks = l.head.valueBlocks
	}
	for i := range blocks {
		block, err := l.readBlock(i)
		if err != nil {
			return err
		}
		passes := make([]condition.Truth, len(block.entries))
		for e := range passes {
			if block.entries[e].cut {
				continue // Unknown
			}
			truth, err := evaluation.Truth(t, block.entries[e].Value)
			if err != nil {
				return err
			}
			passes[e] = condition.False
			if truth >= minTruth {
				passes[e] = condition.True
			}
		}
		block.addPassing(l.sure, l.maybe, passes)
	}
	return nil
}

// addSpansInBlocks adds the documents with a value in one of the spans, from the blocks lo to
// before hi. kindDocs are all documents of these blocks.
func (l *fieldLookup) addSpansInBlocks(spans []condition.Span, kindDocs *roaring.Bitmap, lo, hi int) error {
	for i := range spans {
		if spans[i].IsUnbounded() {
			l.sure.Or(kindDocs)
			continue
		}
		if err := l.addSpan(&spans[i], lo, hi); err != nil {
			return err
		}
	}
	return nil
}

// addSpan adds the documents with a value in the span, from the blocks lo to before hi.
func (l *fieldLookup) addSpan(s *condition.Span, lo, hi int) error {
	blocks := l.head.blocks
	first := lo + sort.Search(hi-lo, func(i int) bool { return !endsBelow(&blocks[lo+i].last, s) })
	for i := first; i < hi && !startsAbove(&blocks[i].first, s); i++ {
		// The first entry is inside, and the last is not above: all entries are inside.
		if entryInSpan(s, &blocks[i].first) == condition.True && endsNotAbove(&blocks[i].last, s) {
			docs, err := l.run.blockDocuments(l.head, i)
			if err != nil {
				return err
			}
			l.sure.Or(docs)
			continue
		}
		block, err := l.readBlock(i)
		if err != nil {
			return err
		}
		passes := make([]condition.Truth, len(block.entries))
		for e := range passes {
			passes[e] = entryInSpan(s, &block.entries[e])
		}
		block.addPassing(l.sure, l.maybe, passes)
	}
	return nil
}

// Blocks are found by the prefixes of texts, which cut texts have too: entries with different
// prefixes are in the order of their complete texts.

// endsBelow reports whether all entries up to e are below the span: the span is above them.
func endsBelow(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return s.Above(e.Value)
	}
	return s.Low.Kind != condition.Null && prefixOf(e.Text) < prefixOf(s.Low.Text)
}

// startsAbove reports whether all entries from e on are above the span: the span is below them.
func startsAbove(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return s.Below(e.Value)
	}
	return s.High.Kind != condition.Null && prefixOf(e.Text) > prefixOf(s.High.Text)
}

// endsNotAbove reports whether all entries up to e are not above the span.
func endsNotAbove(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return !s.Below(e.Value)
	}
	return s.High.Kind == condition.Null || prefixOf(e.Text) < prefixOf(s.High.Text)
}

// prefixOf returns the part of a text that cut texts have.
func prefixOf(text string) string { return text[:min(len(text), textPrefix)] }

// isBelow reports whether the number, or every text that the entry may stand for, is below the
// span.
func isBelow(s *condition.Span, e *entry) bool {
	if !e.cut {
		return s.Above(e.Value)
	}
	// The longer texts of a prefix are all below a text that is greater and has another prefix.
	return s.Low.Kind != condition.Null && s.Low.Text > e.Text && !strings.HasPrefix(s.Low.Text, e.Text)
}

// isAbove reports whether the number, or every text that the entry may stand for, is above the
// span.
func isAbove(s *condition.Span, e *entry) bool {
	if !e.cut {
		return s.Below(e.Value)
	}
	return s.High.Kind != condition.Null && s.High.Text <= e.Text
}

// entryInSpan returns whether the value of the entry is in the span; Unknown if that depends on the
// text that was cut.
func entryInSpan(s *condition.Span, e *entry) condition.Truth {
	switch {
	case isBelow(s, e) || isAbove(s, e):
		return condition.False
	case !e.cut:
		return condition.True
	// Low has the prefix of the entry, or High has it: the complete text may be outside.
	case s.Low.Kind != condition.Null && s.Low.Text > e.Text,
		s.High.Kind != condition.Null && strings.HasPrefix(s.High.Text, e.Text):
		return condition.Unknown
	}
	return condition.True
}
