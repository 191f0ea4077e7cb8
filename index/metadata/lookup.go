package metadata

import (
	"context"
	"slices"
	"sort"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/index/metadata/condition"
)

// Test returns the documents of the run for which a test has a truth: those of sure,
// and none that is not in maybe. The bitmaps are the caller's.
func (r *Run) Test(ctx context.Context, t *condition.Test, wanted condition.Truth) (sure, maybe *roaring.Bitmap, err error) {
	h, err := r.readField(t.Field)
	if err != nil {
		return nil, nil, err
	}
	l := fieldLookup{ctx: ctx, run: r, head: h, sure: roaring.New(), maybe: roaring.New()}
	if h != nil {
		if err := l.addMatches(t, wanted); err != nil {
			return nil, nil, err
		}
	}
	unknown := r.undecidedDocs(t.Field, h)
	if t.Truth(condition.Value{}) == wanted { // as it is of NULL
		null := r.docs.Clone()
		null.AndNot(unknown)
		if h != nil {
			null.AndNot(h.notNull())
		}
		l.sure.Or(null)
	}
	l.maybe.Or(l.sure)
	l.maybe.Or(unknown)
	return l.sure, l.maybe, nil
}

// fieldLookup finds documents by the values of a field: sure has those with a value that passes, maybe also those
// with a value that may pass.
type fieldLookup struct {
	ctx         context.Context
	run         *Run
	head        *fieldHead
	sure, maybe *roaring.Bitmap
}

// minTruthFor returns the least truth of a value with which a document is found. Where the test has to be False, a
// document with such a value is left out.
func minTruthFor(wanted condition.Truth) condition.Truth {
	if wanted == condition.False {
		return condition.Unknown
	}
	return wanted
}

// addMatches adds the documents whose field is not null and of which the test has a truth. It is False of a document
// if it is False of all values.
func (l *fieldLookup) addMatches(t *condition.Test, wanted condition.Truth) error {
	if wanted == condition.False && t.Never() {
		return nil
	}
	numbers, texts, ok := t.Spans(minTruthFor(wanted))
	if ok && wanted == condition.False && !l.head.multiValued && l.head.arrays.IsEmpty() { // one value decides
		return l.addSpans(condition.Complement(numbers), condition.Complement(texts))
	}
	var err error
	if ok {
		err = l.addSpans(numbers, texts)
	} else {
		err = l.addByTest(t, minTruthFor(wanted))
	}
	if wanted == condition.False {
		others := l.head.notNull()
		others.AndNot(l.sure)
		l.maybe.AndNot(l.sure) // of these it is not known either way
		others.AndNot(l.maybe)
		l.sure = others
	}
	return err
}

// firstTextBlock is the place of the first block of texts.
func (h *fieldHead) firstTextBlock() int {
	return sort.Search(h.valueBlocks, func(i int) bool { return h.blocks[i].first.Kind == condition.Text })
}

// addSpans adds the documents with a value in spans.
func (l *fieldLookup) addSpans(numbers, texts []condition.Span) error {
	firstText := l.head.firstTextBlock()
	if err := l.addSpansInBlocks(numbers, &l.head.numbers, 0, firstText); err != nil {
		return err
	}
	return l.addSpansInBlocks(texts, &l.head.texts, firstText, l.head.valueBlocks)
}

// addByTest adds the documents with a value, or the text of an array, of which a test that has no
// spans is at least least.
func (l *fieldLookup) addByTest(t *condition.Test, minTruth condition.Truth) error {
	if numbers, texts, ok := t.Points(); ok {
		return l.addPoints(numbers, texts)
	}
	return l.testEveryEntry(t, minTruth)
}

// addPoints adds the documents with one of some values, which are in order.
func (l *fieldLookup) addPoints(numbers, texts []condition.Value) error {
	firstText := l.head.firstTextBlock()
	byValue := func(e, o *entry) int { return e.Value.Compare(o.Value) } // 2 is 2.0
	if err := l.addEntries(newEntries(numbers), byValue, 0, firstText); err != nil {
		return err
	}
	entries := newEntries(texts)
	slices.SortFunc(entries, func(a, b entry) int { return a.compare(&b) }) // those that were cut are in order of their hash
	if err := l.addEntries(entries, (*entry).compareValue, firstText, l.head.valueBlocks); err != nil {
		return err
	}
	return l.addEntries(entries, (*entry).compareValue, l.head.valueBlocks, len(l.head.blocks))
}

func newEntries(values []condition.Value) []entry {
	entries := make([]entry, len(values))
	for i, v := range values {
		entries[i] = newEntry(v, condition.Plain)
	}
	return entries
}

// addEntries adds the documents with one of some entries, which are in order, from blocks lo
// to before hi. Each block is read once.
func (l *fieldLookup) addEntries(wanted []entry, compare func(a, b *entry) int, lo, hi int) error {
	firstFrom := func(e *entry) int { // the first that is wanted from an entry on
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
		wanted = wanted[firstFrom(&blocks[lo].last):] // the next block may begin with another equal to it
	}
	return nil
}

func (l *fieldLookup) addEntriesOfBlock(wanted []entry, compare func(a, b *entry) int, i int) error {
	bl, err := l.readBlock(i)
	if err != nil {
		return err
	}
	passes := slices.Repeat([]condition.Truth{condition.False}, len(bl.entries))
	for w := range wanted {
		found := condition.True
		if wanted[w].cut {
			found = condition.Unknown
		}
		e := sort.Search(len(passes), func(e int) bool { return compare(&bl.entries[e], &wanted[w]) >= 0 })
		for ; e < len(passes) && compare(&bl.entries[e], &wanted[w]) == 0; e++ {
			passes[e] = found
		}
	}
	bl.addPassing(l.sure, l.maybe, passes)
	return nil
}

// readBlock reads a block, if the context goes on.
func (l *fieldLookup) readBlock(i int) (*valueBlock, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	return l.run.readBlock(l.head, i)
}

// testEveryEntry asks the test of each value, and of the text of each array. Of those that were cut it
// cannot be told.
func (l *fieldLookup) testEveryEntry(t *condition.Test, minTruth condition.Truth) error {
	evaluation := condition.NewEvaluation(l.ctx)
	blocks := len(l.head.blocks)
	if !t.Whole() {
		blocks = l.head.valueBlocks
	}
	for i := range blocks {
		bl, err := l.readBlock(i)
		if err != nil {
			return err
		}
		passes := make([]condition.Truth, len(bl.entries))
		for e := range passes {
			if bl.entries[e].cut {
				continue // Unknown
			}
			truth, err := evaluation.Truth(t, bl.entries[e].Value)
			if err != nil {
				return err
			}
			passes[e] = condition.False
			if truth >= minTruth {
				passes[e] = condition.True
			}
		}
		bl.addPassing(l.sure, l.maybe, passes)
	}
	return nil
}

// addSpansInBlocks adds the documents with a value in one of some spans, from blocks lo to before
// hi, all of which have the documents of all.
func (l *fieldLookup) addSpansInBlocks(spans []condition.Span, kindDocs *roaring.Bitmap, lo, hi int) error {
	for i := range spans {
		if spans[i].Whole() {
			l.sure.Or(kindDocs)
			continue
		}
		if err := l.addSpan(&spans[i], lo, hi); err != nil {
			return err
		}
	}
	return nil
}

func (l *fieldLookup) addSpan(s *condition.Span, lo, hi int) error {
	blocks := l.head.blocks
	first := lo + sort.Search(hi-lo, func(i int) bool { return !endsBelow(&blocks[lo+i].last, s) })
	for i := first; i < hi && !startsAbove(&blocks[i].first, s); i++ {
		if entryInSpan(s, &blocks[i].first) == condition.True && endsNotAbove(&blocks[i].last, s) {
			docs, err := l.run.blockDocuments(l.head, i)
			if err != nil {
				return err
			}
			l.sure.Or(docs)
			continue
		}
		bl, err := l.readBlock(i)
		if err != nil {
			return err
		}
		passes := make([]condition.Truth, len(bl.entries))
		for e := range passes {
			passes[e] = entryInSpan(s, &bl.entries[e])
		}
		bl.addPassing(l.sure, l.maybe, passes)
	}
	return nil
}

// Blocks are found by what all texts have, whether they were cut or not: entries that
// differ in their first bytes are in the order of what they stand for.

// endsBelow says that entries up to this one are below a span.
func endsBelow(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return s.Above(e.Value)
	}
	return s.Low.Kind != condition.Null && prefixOf(e.Text) < prefixOf(s.Low.Text)
}

// startsAbove says that entries from this one on are above a span.
func startsAbove(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return s.Below(e.Value)
	}
	return s.High.Kind != condition.Null && prefixOf(e.Text) > prefixOf(s.High.Text)
}

// endsNotAbove says that entries up to this one are not above a span.
func endsNotAbove(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return !s.Below(e.Value)
	}
	return s.High.Kind == condition.Null || prefixOf(e.Text) < prefixOf(s.High.Text)
}

func prefixOf(text string) string { return text[:min(len(text), textPrefix)] }

// isBelow says that all texts, or the number, that an entry stands for are below a span.
func isBelow(s *condition.Span, e *entry) bool {
	if !e.cut {
		return s.Above(e.Value)
	}
	// Longer texts of one beginning are below what is greater and begins otherwise.
	return s.Low.Kind != condition.Null && s.Low.Text > e.Text && !strings.HasPrefix(s.Low.Text, e.Text)
}

// isAbove says that all of them are above it.
func isAbove(s *condition.Span, e *entry) bool {
	if !e.cut {
		return s.Below(e.Value)
	}
	return s.High.Kind != condition.Null && s.High.Text <= e.Text
}

// entryInSpan says whether what an entry stands for is in a span.
func entryInSpan(s *condition.Span, e *entry) condition.Truth {
	switch {
	case isBelow(s, e) || isAbove(s, e):
		return condition.False
	case !e.cut:
		return condition.True
	case s.Low.Kind != condition.Null && s.Low.Text > e.Text,
		s.High.Kind != condition.Null && strings.HasPrefix(s.High.Text, e.Text):
		return condition.Unknown
	}
	return condition.True
}
