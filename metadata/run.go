package metadata

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/condition"
)

// Run is a run as it is read. It is for one goroutine at a time.
type Run struct {
	get      func(key []byte) ([]byte, error)
	docs     roaring.Bitmap
	overflow bool
	names    []condition.Field // in order
}

// head is a field of a run.
type head struct {
	number                  uint32
	present, numbers, texts roaring.Bitmap
	blocks                  []span
	inline                  [][]byte // the blocks, where they are in the head
}

// span are the first and the last entry of a block.
type span struct{ first, last entry }

// block is a block as it is read.
type block struct {
	entries []entry
	docs    roaring.Bitmap
	of      []byte // u16 a document, unless there is one entry
}

// Open reads the head of a run. get returns a value by its key, nil if there is none;
// the value must stay as it is while the run is in use.
func Open(get func(key []byte) ([]byte, error)) (*Run, error) {
	b, err := get(keyHead)
	if err != nil {
		return nil, err
	}
	r := &Run{get: get}
	in := reader{b: b}
	r.overflow = in.u8() == 1
	in.bitmap(&r.docs)
	n := in.u32()
	for range n {
		if in.failed {
			break
		}
		r.names = append(r.names, condition.Field(in.bytes()))
	}
	if !slices.IsSorted(r.names) || len(slices.Compact(slices.Clone(r.names))) != len(r.names) {
		in.failed = true
	}
	return r, in.end("head of a run")
}

func (r *reader) bitmap(bm *roaring.Bitmap) {
	b := r.bytes()
	if r.failed {
		return
	}
	// Into memory of its own: the file may be closed while the bitmap is in use.
	if err := bm.UnmarshalBinary(b); err != nil || bm.Validate() != nil {
		r.failed = true
		bm.Clear()
	}
}

// Docs are the documents that the run covers, not to be changed.
func (r *Run) Docs() *roaring.Bitmap { return &r.docs }

// field reads a field that the run has.
func (r *Run) field(f condition.Field) (*head, error) {
	number, ok := slices.BinarySearch(r.names, f)
	if !ok {
		return nil, nil
	}
	b, err := r.get(fieldKey(f))
	if err != nil {
		return nil, err
	}
	h := &head{number: uint32(number)}
	in := reader{b: b}
	in.bitmap(&h.present)
	in.bitmap(&h.numbers)
	in.bitmap(&h.texts)
	n := int(in.u32())
	for range n {
		if in.failed {
			break
		}
		h.blocks = append(h.blocks, span{in.entry(), in.entry()})
	}
	if in.u8() == 1 {
		for range n {
			if in.failed {
				break
			}
			h.inline = append(h.inline, in.bytes())
		}
	}
	return h, in.end(fmt.Sprintf("field %s", f))
}

// value is the value of a block.
func (r *Run) value(h *head, i int) ([]byte, error) {
	if h.inline != nil {
		return h.inline[i], nil
	}
	return r.get(blockKey(h.number, uint32(i)))
}

// documents are those of a block.
func (r *Run) documents(h *head, i int) (*roaring.Bitmap, error) {
	b, err := r.value(h, i)
	if err != nil {
		return nil, err
	}
	in, docs := reader{b: b}, roaring.New()
	if in.bitmap(docs); in.failed {
		return nil, badBlock(h, i)
	}
	return docs, nil
}

func badBlock(h *head, i int) error {
	return fmt.Errorf("%w: block %d of field %d", ErrFormat, i, h.number)
}

func (r *Run) block(h *head, i int) (*block, error) {
	b, err := r.value(h, i)
	if err != nil {
		return nil, err
	}
	in, bl := reader{b: b}, &block{}
	in.bitmap(&bl.docs)
	n := int(in.u32())
	in.text = string(in.b)
	bl.entries = make([]entry, 0, min(n, len(in.b)))
	for range n {
		if in.failed {
			break
		}
		bl.entries = append(bl.entries, in.entry())
	}
	if n > 1 && !in.failed {
		bl.of = in.take(2 * int(bl.docs.GetCardinality()))
	}
	if n == 0 || in.end("") != nil {
		return nil, badBlock(h, i)
	}
	for at := 0; at < len(bl.of); at += 2 {
		if int(bl.entryAt(at)) >= n {
			return nil, badBlock(h, i)
		}
	}
	return bl, nil
}

func (b *block) entryAt(at int) uint16 { return uint16(b.of[at]) | uint16(b.of[at+1])<<8 }

// each visits the documents of the block with their entries.
func (b *block) each(visit func(e *entry, ordinal uint32)) {
	at := 0
	for it := b.docs.Iterator(); it.HasNext(); at += 2 {
		e := uint16(0)
		if b.of != nil {
			e = b.entryAt(at)
		}
		visit(&b.entries[e], it.Next())
	}
}

// Present are documents that have a field, be it null; all that have it, if complete.
func (r *Run) Present(f condition.Field) (docs *roaring.Bitmap, complete bool, err error) {
	h, err := r.field(f)
	if err != nil {
		return nil, false, err
	}
	if h == nil {
		return roaring.New(), !r.beyond(f), nil
	}
	return &h.present, true, nil
}

// beyond says that the run may lack a field of its documents because of the limits.
func (r *Run) beyond(f condition.Field) bool { return r.overflow || len(f.Keys()) > maxDepth }

// Test returns the documents of the run for which a test has a truth: those of sure,
// and none that is not in maybe. The bitmaps are the caller's.
func (r *Run) Test(t *condition.Test, is condition.Truth) (sure, maybe *roaring.Bitmap, err error) {
	sure, maybe = roaring.New(), roaring.New()
	h, err := r.field(t.Field)
	if err != nil {
		return nil, nil, err
	}
	null := t.Truth(condition.Value{}) == is
	switch {
	case h == nil && r.beyond(t.Field):
		return sure, r.docs.Clone(), nil
	case h == nil:
		if null {
			sure.Or(&r.docs)
		}
	default:
		if null {
			sure.Or(&r.docs)
			sure.AndNot(&h.numbers)
			sure.AndNot(&h.texts)
		}
		if err := r.values(h, t, is, sure, maybe); err != nil {
			return nil, nil, err
		}
	}
	maybe.Or(sure)
	return sure, maybe, nil
}

// values adds the documents whose value passes.
func (r *Run) values(h *head, t *condition.Test, is condition.Truth, sure, maybe *roaring.Bitmap) error {
	numbers, texts, ok := t.Spans(is)
	if !ok {
		return r.asked(h, t, is, sure, maybe)
	}
	split := sort.Search(len(h.blocks), func(i int) bool { return h.blocks[i].first.Kind == condition.Text })
	for _, c := range []struct {
		spans  []condition.Span
		all    *roaring.Bitmap
		lo, hi int
	}{{numbers, &h.numbers, 0, split}, {texts, &h.texts, split, len(h.blocks)}} {
		w := within{run: r, head: h, sure: sure, maybe: maybe, opened: -1}
		for i := range c.spans {
			if c.spans[i].Whole() {
				sure.Or(c.all)
				continue
			}
			if err := w.span(&c.spans[i], c.lo, c.hi); err != nil {
				return err
			}
		}
	}
	return nil
}

// asked asks the test of each value. Of those that were cut it cannot be told.
func (r *Run) asked(h *head, t *condition.Test, is condition.Truth, sure, maybe *roaring.Bitmap) error {
	for i := range h.blocks {
		bl, err := r.block(h, i)
		if err != nil {
			return err
		}
		bl.add(sure, maybe, func(e *entry) condition.Truth {
			if e.cut {
				return condition.Unknown
			}
			if t.Truth(e.Value) == is {
				return condition.True
			}
			return condition.False
		})
	}
	return nil
}

// add adds the documents of entries that pass to sure, and those of which it is not
// known to maybe.
func (b *block) add(sure, maybe *roaring.Bitmap, pass func(*entry) condition.Truth) {
	to := make([]*roaring.Bitmap, len(b.entries))
	n, same := 0, 0
	for i := range b.entries {
		switch pass(&b.entries[i]) {
		case condition.True:
			to[i] = sure
			n++
		case condition.Unknown:
			to[i] = maybe
			n++
		}
		if to[i] == to[0] {
			same++
		}
	}
	switch {
	case n == 0:
	case same == len(to):
		to[0].Or(&b.docs)
	default:
		var few [2][]uint32
		at := 0
		for it := b.docs.Iterator(); it.HasNext(); at += 2 {
			doc := it.Next()
			switch to[b.entryAt(at)] {
			case sure:
				few[0] = append(few[0], doc)
			case maybe:
				few[1] = append(few[1], doc)
			}
		}
		sure.AddMany(few[0])
		maybe.AddMany(few[1])
	}
}

// within finds the documents of spans in the blocks of a field.
type within struct {
	run         *Run
	head        *head
	sure, maybe *roaring.Bitmap
	opened      int // the block that was read last
	block       *block
}

// read reads a block, unless it is the one that was read last.
func (w *within) read(i int) error {
	if i == w.opened {
		return nil
	}
	bl, err := w.run.block(w.head, i)
	if err == nil {
		w.opened, w.block = i, bl
	}
	return err
}

// point adds the documents with one text.
func (w *within) point(text condition.Value, lo, hi int) error {
	e := entryOf(text)
	blocks := w.head.blocks[lo:hi]
	i := sort.Search(len(blocks), func(i int) bool { return blocks[i].last.compare(&e) >= 0 })
	if i == len(blocks) || blocks[i].first.compare(&e) > 0 {
		return nil
	}
	if err := w.read(lo + i); err != nil {
		return err
	}
	found := condition.True
	if e.cut {
		found = condition.Unknown
	}
	at, ok := slices.BinarySearchFunc(w.block.entries, e, func(x, e entry) int { return x.compare(&e) })
	if ok {
		w.block.add(w.sure, w.maybe, func(x *entry) condition.Truth {
			if x == &w.block.entries[at] {
				return found
			}
			return condition.False
		})
	}
	return nil
}

// span adds the documents of a span, which is looked for in blocks of its kind.
func (w *within) span(s *condition.Span, lo, hi int) error {
	if s.Low.Kind == condition.Text && s.High.Kind == condition.Text && s.Low.Text == s.High.Text {
		return w.point(s.Low, lo, hi)
	}
	blocks := w.head.blocks
	first := lo + sort.Search(hi-lo, func(i int) bool { return !before(&blocks[lo+i].last, s) })
	for i := first; i < hi && !after(&blocks[i].first, s); i++ {
		if inside(s, &blocks[i].first) == condition.True && ends(&blocks[i].last, s) {
			docs, err := w.run.documents(w.head, i)
			if err != nil {
				return err
			}
			w.sure.Or(docs)
			continue
		}
		if err := w.read(i); err != nil {
			return err
		}
		w.block.add(w.sure, w.maybe, func(e *entry) condition.Truth { return inside(s, e) })
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
