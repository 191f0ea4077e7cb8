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
func (r *Run) Test(ctx context.Context, t *condition.Test, is condition.Truth) (sure, maybe *roaring.Bitmap, err error) {
	h, err := r.field(t.Field)
	if err != nil {
		return nil, nil, err
	}
	l := lookup{ctx: ctx, run: r, head: h, sure: roaring.New(), maybe: roaring.New()}
	if h != nil {
		if err := l.values(t, is); err != nil {
			return nil, nil, err
		}
	}
	unknown := r.unknown(t.Field, h)
	if t.Truth(condition.Value{}) == is { // as it is of NULL
		null := r.docs.Clone()
		null.AndNot(unknown)
		if h != nil {
			null.AndNot(h.given())
		}
		l.sure.Or(null)
	}
	l.maybe.Or(l.sure)
	l.maybe.Or(unknown)
	return l.sure, l.maybe, nil
}

// lookup finds documents by the values of a field: sure has those with a value that passes, maybe also those
// with a value that may pass.
type lookup struct {
	ctx         context.Context
	run         *Run
	head        *fieldHead
	sure, maybe *roaring.Bitmap
}

// leastFor returns the least truth of a value with which a document is found. Where the test has to be False, a
// document with such a value is left out.
func leastFor(is condition.Truth) condition.Truth {
	if is == condition.False {
		return condition.Unknown
	}
	return is
}

// values adds the documents whose field is not null and of which the test has a truth. It is False of a document
// if it is False of all values.
func (l *lookup) values(t *condition.Test, is condition.Truth) error {
	if is == condition.False && t.Never() {
		return nil
	}
	numbers, texts, ok := t.Spans(leastFor(is))
	if ok && is == condition.False && !l.head.several && l.head.arrays.IsEmpty() { // one value decides
		return l.within(condition.Complement(numbers), condition.Complement(texts))
	}
	var err error
	if ok {
		err = l.within(numbers, texts)
	} else {
		err = l.find(t, leastFor(is))
	}
	if is == condition.False {
		others := l.head.given()
		others.AndNot(l.sure)
		l.maybe.AndNot(l.sure) // of these it is not known either way
		others.AndNot(l.maybe)
		l.sure = others
	}
	return err
}

// split is the place of the first block of texts.
func (h *fieldHead) split() int {
	return sort.Search(h.values, func(i int) bool { return h.blocks[i].first.Kind == condition.Text })
}

// within adds the documents with a value in spans.
func (l *lookup) within(numbers, texts []condition.Span) error {
	split := l.head.split()
	if err := l.spans(numbers, &l.head.numbers, 0, split); err != nil {
		return err
	}
	return l.spans(texts, &l.head.texts, split, l.head.values)
}

// find adds the documents with a value, or the text of an array, of which a test that has no
// spans is at least least.
func (l *lookup) find(t *condition.Test, least condition.Truth) error {
	if numbers, texts, ok := t.Points(); ok {
		return l.points(numbers, texts)
	}
	return l.ask(t, least)
}

// points adds the documents with one of some values, which are in order.
func (l *lookup) points(numbers, texts []condition.Value) error {
	split := l.head.split()
	byValue := func(e, o *entry) int { return e.Value.Compare(o.Value) } // 2 is 2.0
	if err := l.match(entriesOf(numbers), byValue, 0, split); err != nil {
		return err
	}
	entries := entriesOf(texts)
	slices.SortFunc(entries, func(a, b entry) int { return a.compare(&b) }) // those that were cut are in order of their hash
	if err := l.match(entries, (*entry).compareValue, split, l.head.values); err != nil {
		return err
	}
	return l.match(entries, (*entry).compareValue, l.head.values, len(l.head.blocks))
}

func entriesOf(values []condition.Value) []entry {
	entries := make([]entry, len(values))
	for i, v := range values {
		entries[i] = entryOf(v, condition.Plain)
	}
	return entries
}

// match adds the documents with one of some entries, which are in order, from blocks lo
// to before hi. Each block is read once.
func (l *lookup) match(wanted []entry, compare func(a, b *entry) int, lo, hi int) error {
	from := func(e *entry) int { // the first that is wanted from an entry on
		return sort.Search(len(wanted), func(i int) bool { return compare(&wanted[i], e) >= 0 })
	}
	for ; len(wanted) > 0; lo++ {
		blocks := l.head.blocks
		lo += sort.Search(hi-lo, func(i int) bool { return compare(&blocks[lo+i].last, &wanted[0]) >= 0 })
		if lo >= hi {
			break
		}
		wanted = wanted[from(&blocks[lo].first):]
		here := sort.Search(len(wanted), func(i int) bool { return compare(&wanted[i], &blocks[lo].last) > 0 })
		if here > 0 {
			if err := l.matchBlock(wanted[:here], compare, lo); err != nil {
				return err
			}
		}
		wanted = wanted[from(&blocks[lo].last):] // the next block may begin with another equal to it
	}
	return nil
}

func (l *lookup) matchBlock(wanted []entry, compare func(a, b *entry) int, i int) error {
	bl, err := l.block(i)
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
	bl.add(l.sure, l.maybe, passes)
	return nil
}

// block reads a block, if the context goes on.
func (l *lookup) block(i int) (*block, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	return l.run.block(l.head, i)
}

// ask asks the test of each value, and of the text of each array. Of those that were cut it
// cannot be told.
func (l *lookup) ask(t *condition.Test, least condition.Truth) error {
	evaluation := condition.NewEvaluation(l.ctx)
	blocks := len(l.head.blocks)
	if !t.Whole() {
		blocks = l.head.values
	}
	for i := range blocks {
		bl, err := l.block(i)
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
			if truth >= least {
				passes[e] = condition.True
			}
		}
		bl.add(l.sure, l.maybe, passes)
	}
	return nil
}

// spans adds the documents with a value in one of some spans, from blocks lo to before
// hi, all of which have the documents of all.
func (l *lookup) spans(spans []condition.Span, all *roaring.Bitmap, lo, hi int) error {
	for i := range spans {
		if spans[i].Whole() {
			l.sure.Or(all)
			continue
		}
		if err := l.span(&spans[i], lo, hi); err != nil {
			return err
		}
	}
	return nil
}

func (l *lookup) span(s *condition.Span, lo, hi int) error {
	blocks := l.head.blocks
	first := lo + sort.Search(hi-lo, func(i int) bool { return !before(&blocks[lo+i].last, s) })
	for i := first; i < hi && !after(&blocks[i].first, s); i++ {
		if inside(s, &blocks[i].first) == condition.True && ends(&blocks[i].last, s) {
			docs, err := l.run.documents(l.head, i)
			if err != nil {
				return err
			}
			l.sure.Or(docs)
			continue
		}
		bl, err := l.block(i)
		if err != nil {
			return err
		}
		passes := make([]condition.Truth, len(bl.entries))
		for e := range passes {
			passes[e] = inside(s, &bl.entries[e])
		}
		bl.add(l.sure, l.maybe, passes)
	}
	return nil
}

// Blocks are found by what all texts have, whether they were cut or not: entries that
// differ in their first bytes are in the order of what they stand for.

// before says that entries up to this one are below a span.
func before(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return s.Above(e.Value)
	}
	return s.Low.Kind != condition.Null && beginning(e.Text) < beginning(s.Low.Text)
}

// after says that entries from this one on are above a span.
func after(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return s.Below(e.Value)
	}
	return s.High.Kind != condition.Null && beginning(e.Text) > beginning(s.High.Text)
}

// ends says that entries up to this one are not above a span.
func ends(e *entry, s *condition.Span) bool {
	if e.Kind != condition.Text {
		return !s.Below(e.Value)
	}
	return s.High.Kind == condition.Null || beginning(e.Text) < beginning(s.High.Text)
}

func beginning(text string) string { return text[:min(len(text), textPrefix)] }

// below says that all texts, or the number, that an entry stands for are below a span.
func below(s *condition.Span, e *entry) bool {
	if !e.cut {
		return s.Above(e.Value)
	}
	// Longer texts of one beginning are below what is greater and begins otherwise.
	return s.Low.Kind != condition.Null && s.Low.Text > e.Text && !strings.HasPrefix(s.Low.Text, e.Text)
}

// above says that all of them are above it.
func above(s *condition.Span, e *entry) bool {
	if !e.cut {
		return s.Below(e.Value)
	}
	return s.High.Kind != condition.Null && s.High.Text <= e.Text
}

// inside says whether what an entry stands for is in a span.
func inside(s *condition.Span, e *entry) condition.Truth {
	switch {
	case below(s, e) || above(s, e):
		return condition.False
	case !e.cut:
		return condition.True
	case s.Low.Kind != condition.Null && s.Low.Text > e.Text,
		s.High.Kind != condition.Null && strings.HasPrefix(s.High.Text, e.Text):
		return condition.Unknown
	}
	return condition.True
}
