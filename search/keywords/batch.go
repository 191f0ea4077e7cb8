package keywords

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/plaid-ir/plaid/storage"
)

// docInfo is what a segment knows of a document.
type docInfo struct {
	ordinal uint32
	length  uint32 // tokens
	sum     storage.PayloadSum
}

// batch is documents in memory, in ascending order.
type batch struct {
	docs   []docInfo
	number map[string]int
	terms  []batchTerm
	bytes  int64 // about as much as is used

	tokens  []token
	numbers []numbered
}

type batchTerm struct {
	term    string
	docs    int
	last    int64  // document
	entries []byte // difference of documents, tf, positions: uvarints
}

type numbered struct {
	term int
	pos  uint32
}

func newBatch() *batch { return &batch{number: map[string]int{}} }

// termBytes is about what a term costs beside its entries.
const termBytes = 160

// add takes a document in. Its ordinal is above those before.
func (b *batch) add(ordinal uint32, sum storage.PayloadSum, a *analyzer, texts []string) {
	b.tokens = a.document(b.tokens[:0], texts)
	doc := int64(len(b.docs))
	b.docs = append(b.docs, docInfo{ordinal: ordinal, length: uint32(len(b.tokens)), sum: sum})
	b.bytes += 16
	b.numbers = b.numbers[:0]
	for _, t := range b.tokens {
		n, ok := b.number[t.term]
		if !ok {
			n = len(b.terms)
			b.number[t.term] = n
			b.terms = append(b.terms, batchTerm{term: t.term, last: -1})
			b.bytes += termBytes + int64(len(t.term))
		}
		b.numbers = append(b.numbers, numbered{n, t.pos})
	}
	slices.SortFunc(b.numbers, func(x, y numbered) int {
		return cmp.Or(cmp.Compare(x.term, y.term), cmp.Compare(x.pos, y.pos))
	})
	for rest := b.numbers; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].term == rest[0].term {
			n++
		}
		t := &b.terms[rest[0].term]
		had := cap(t.entries)
		t.entries = binary.AppendUvarint(t.entries, uint64(doc-t.last))
		t.entries = binary.AppendUvarint(t.entries, uint64(n))
		before := uint32(0)
		for _, x := range rest[:n] {
			t.entries = binary.AppendUvarint(t.entries, uint64(x.pos-before))
			before = x.pos
		}
		b.bytes += int64(cap(t.entries) - had)
		t.last = doc
		t.docs++
		rest = rest[n:]
	}
}

// batchSource hands the terms of a batch out in order.
type batchSource struct {
	*batch
	next int
}

func (b *batch) source() *batchSource {
	slices.SortFunc(b.terms, func(x, y batchTerm) int { return cmp.Compare(x.term, y.term) })
	return &batchSource{batch: b}
}

func (s *batchSource) info() []docInfo { return s.batch.docs }

func (s *batchSource) current() []byte {
	if s.next == len(s.terms) {
		return nil
	}
	return []byte(s.terms[s.next].term)
}

func (s *batchSource) advance() error {
	s.next++
	return nil
}

func (s *batchSource) postings(dst []posting) ([]posting, error) {
	t := &s.terms[s.next]
	doc := int64(-1)
	for b := t.entries; len(b) > 0; {
		d, w := binary.Uvarint(b)
		b = b[w:]
		tf, w := binary.Uvarint(b)
		b = b[w:]
		doc += int64(d)
		end := 0
		for range tf {
			for b[end] >= 0x80 {
				end++
			}
			end++
		}
		dst = append(dst, posting{doc: uint32(doc), tf: uint32(tf), pos: b[:end:end]})
		b = b[end:]
	}
	return dst, nil
}
