package keywords

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/storage"
)

// segmentState is what the state of the file says of a segment.
type segmentState struct {
	ID    uint32 `json:"id"`
	Docs  int    `json:"docs"`  // in its table, dead ones included
	Live  int    `json:"live"`  // documents that are current and have text
	Count uint64 `json:"count"` // tokens of these
	Bytes int64  `json:"bytes"`
	Dead  int    `json:"dead"` // documents that are not current
}

// segment is the document table of a segment, in memory. It is not changed.
type segment struct {
	docs []docInfo
	// dense: the ordinals are docs[0].ordinal and those after it.
	dense bool
}

func newSegment(docs []docInfo) *segment {
	n := len(docs)
	return &segment{docs, n > 0 && uint64(docs[n-1].ordinal)-uint64(docs[0].ordinal) == uint64(n-1)}
}

// A segment is a bucket: "d" is its document table, and a dictionary has its terms.

func key32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// keyIn is the key of a value in a segment, for its checksum.
func keyIn(segment uint32, key []byte) []byte { return append(key32(segment), key...) }

// local finds the number of an ordinal in the segment.
func (s *segment) local(ordinal uint32) (uint32, bool) {
	if len(s.docs) == 0 || ordinal < s.docs[0].ordinal || ordinal > s.docs[len(s.docs)-1].ordinal {
		return 0, false
	}
	if s.dense {
		return ordinal - s.docs[0].ordinal, true
	}
	i, ok := slices.BinarySearchFunc(s.docs, ordinal, func(d docInfo, o uint32) int { return cmp.Compare(d.ordinal, o) })
	return uint32(i), ok
}

const docInfoBytes = 16

// encodeDocs: ordinal u32, length u32, sum u64 for each document; little-endian.
func encodeDocs(docs []docInfo) []byte {
	b := make([]byte, 0, len(docs)*docInfoBytes+4)
	for _, d := range docs {
		b = binary.LittleEndian.AppendUint32(b, d.ordinal)
		b = binary.LittleEndian.AppendUint32(b, d.length)
		b = binary.LittleEndian.AppendUint64(b, uint64(d.sum))
	}
	return b
}

func decodeDocs(b []byte) (*segment, error) {
	if len(b)%docInfoBytes != 0 {
		return nil, ErrDamaged
	}
	docs := make([]docInfo, len(b)/docInfoBytes)
	le := binary.LittleEndian
	for i := range docs {
		r := b[i*docInfoBytes:]
		docs[i] = docInfo{le.Uint32(r), le.Uint32(r[4:]), storage.PayloadSum(le.Uint64(r[8:]))}
		if i > 0 && docs[i].ordinal <= docs[i-1].ordinal {
			return nil, ErrDamaged
		}
	}
	return newSegment(docs), nil
}

// source is what a segment is made from: a batch, or a segment.
type source interface {
	info() []docInfo
	// current is the current term, nil after the last one; they ascend.
	current() []byte
	advance() error
	// postings of the current term, by the place of documents in info.
	postings([]posting) ([]posting, error)
}

// segmentSource reads a segment that is stored.
type segmentSource struct {
	*dictReader
	seg *segment
}

func newSegmentSource(tx *bolt.Tx, id uint32, seg *segment) (*segmentSource, error) {
	b := segmentBucket(tx, id)
	if b == nil {
		return nil, ErrDamaged
	}
	r, err := readDict(b, id, nil)
	return &segmentSource{r, seg}, err
}

func (s *segmentSource) info() []docInfo { return s.seg.docs }

func (s *segmentSource) current() []byte { return s.term }

func (s *segmentSource) postings(dst []posting) ([]posting, error) {
	key, l, err := s.list()
	if err != nil {
		return nil, err
	}
	return l.appendPostings(dst, key, len(s.seg.docs))
}

// merging is a source and what becomes of its documents.
type merging struct {
	source
	dead       *roaring.Bitmap // places in info; nil: none
	renumbered []int64         // the new number of each document; −1: it is left out
}

// writeSegment makes a segment of all that is current in the sources.
func writeSegment(ctx context.Context, tx *bolt.Tx, id uint32, sources []*merging) (segmentState, *segment, error) {
	st := segmentState{ID: id}
	docs := numberDocuments(sources)
	b, err := tx.Bucket(bucketSegments).CreateBucket(key32(id))
	if err != nil {
		return st, nil, err
	}
	b.FillPercent = 0.95 // keys come nearly in order, and no more follow
	put := func(key, value []byte) error {
		st.Bytes += int64(len(key) + len(value))
		return b.Put(key, value)
	}
	if err := put(keyDocs, seal(keyIn(id, keyDocs), encodeDocs(docs))); err != nil {
		return st, nil, err
	}
	st.Docs = len(docs)
	for _, d := range docs {
		if d.length > 0 {
			st.Live++
			st.Count += uint64(d.length)
		}
	}
	var e encoder
	dict := dictWriter{segment: id, put: put}
	var found, some []posting
	for n := 0; ; n++ {
		if n%256 == 0 {
			if err := ctx.Err(); err != nil {
				return st, nil, err
			}
		}
		term := slices.Clone(lowestTerm(sources))
		if term == nil {
			break
		}
		found = found[:0]
		sorted := true
		for _, s := range sources {
			if !bytes.Equal(s.current(), term) {
				continue
			}
			if some, err = s.postings(some[:0]); err != nil {
				return st, nil, err
			}
			for _, p := range some {
				if to := s.renumbered[p.doc]; to >= 0 {
					p.doc = uint32(to)
					sorted = sorted && (len(found) == 0 || found[len(found)-1].doc < p.doc)
					found = append(found, p)
				}
			}
			if err := s.advance(); err != nil {
				return st, nil, err
			}
		}
		if len(found) == 0 {
			continue
		}
		if !sorted {
			slices.SortFunc(found, func(x, y posting) int { return cmp.Compare(x.doc, y.doc) })
		}
		if err := dict.add(term, e.encode(keyIn(id, keyOf(valuePrefix, term)), found)); err != nil {
			return st, nil, err
		}
	}
	if err := dict.flush(nil); err != nil {
		return st, nil, err
	}
	return st, newSegment(docs), nil
}

// lowestTerm is the first term of all sources.
func lowestTerm(sources []*merging) []byte {
	var low []byte
	for _, s := range sources {
		if t := s.current(); t != nil && (low == nil || bytes.Compare(t, low) < 0) {
			low = t
		}
	}
	return low
}

// numberDocuments gives the documents that stay their numbers, in the order of ordinals.
func numberDocuments(sources []*merging) []docInfo {
	type place struct {
		docInfo
		source, doc int
	}
	var all []place
	for i, s := range sources {
		info := s.info()
		s.renumbered = make([]int64, len(info))
		for d, x := range info {
			s.renumbered[d] = -1
			if s.dead == nil || !s.dead.Contains(uint32(d)) {
				all = append(all, place{x, i, d})
			}
		}
	}
	byOrdinal := func(x, y place) int { return cmp.Compare(x.ordinal, y.ordinal) }
	if !slices.IsSortedFunc(all, byOrdinal) {
		slices.SortFunc(all, byOrdinal)
	}
	docs := make([]docInfo, len(all))
	for n, p := range all {
		sources[p.source].renumbered[p.doc] = int64(n)
		docs[n] = p.docInfo
	}
	return docs
}

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
	b.docs = append(b.docs, docInfo{ordinal: ordinal, length: uint32(len(b.tokens) - a.pairs), sum: sum})
	b.bytes += 16
	b.numbers = b.numbers[:0]
	for _, t := range b.tokens {
		n, ok := b.number[t.term]
		if !ok {
			n = len(b.terms)
			term := strings.Clone(t.term) // which may be part of a long one
			b.number[term] = n
			b.terms = append(b.terms, batchTerm{term: term, last: -1})
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
