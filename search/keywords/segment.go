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

// segmentState is the record of a segment in the state of the file.
type segmentState struct {
	ID    uint32 `json:"id"`
	Docs  int    `json:"docs"`  // in its table, including dead ones
	Live  int    `json:"live"`  // documents that are not dead and have text
	Count uint64 `json:"count"` // tokens of these documents
	Bytes int64  `json:"bytes"`
	Dead  int    `json:"dead"` // documents that were replaced or deleted
}

// segment is the document table of a segment in memory. It never changes.
type segment struct {
	docs []docInfo
	// dense means that the ordinals are consecutive, from docs[0].ordinal on.
	dense bool
}

// newSegment returns the table of documents in ascending order of ordinals.
func newSegment(docs []docInfo) *segment {
	n := len(docs)
	return &segment{docs, n > 0 && uint64(docs[n-1].ordinal)-uint64(docs[0].ordinal) == uint64(n-1)}
}

// A segment is stored as a bucket: key "d" has its document table, and a dictionary its terms
// (dictionary.go).

func bigEndianKey(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// segmentKey returns the key of a value with its segment; the checksum of the value covers it.
func segmentKey(segment uint32, key []byte) []byte { return append(bigEndianKey(segment), key...) }

// localNumber returns the number of an ordinal in the segment.
func (s *segment) localNumber(ordinal uint32) (uint32, bool) {
	if len(s.docs) == 0 || ordinal < s.docs[0].ordinal || ordinal > s.docs[len(s.docs)-1].ordinal {
		return 0, false
	}
	if s.dense {
		return ordinal - s.docs[0].ordinal, true
	}
	compare := func(d docInfo, ordinal uint32) int { return cmp.Compare(d.ordinal, ordinal) }
	i, ok := slices.BinarySearchFunc(s.docs, ordinal, compare)
	return uint32(i), ok
}

const docInfoBytes = 16

// encodeDocs encodes a document table. Each document has ordinal u32, length u32, sum u64;
// little-endian.
func encodeDocs(docs []docInfo) []byte {
	b := make([]byte, 0, len(docs)*docInfoBytes+4)
	for _, d := range docs {
		b = binary.LittleEndian.AppendUint32(b, d.ordinal)
		b = binary.LittleEndian.AppendUint32(b, d.length)
		b = binary.LittleEndian.AppendUint64(b, uint64(d.sum))
	}
	return b
}

// decodeDocs decodes a document table. It returns ErrDamaged if ordinals do not ascend.
func decodeDocs(b []byte) (*segment, error) {
	if len(b)%docInfoBytes != 0 {
		return nil, ErrDamaged
	}
	docs := make([]docInfo, len(b)/docInfoBytes)
	le := binary.LittleEndian
	for i := range docs {
		r := b[i*docInfoBytes:]
		docs[i] = docInfo{le.Uint32(r), le.Uint32(r[4:]), storage.PayloadChecksum(le.Uint64(r[8:]))}
		if i > 0 && docs[i].ordinal <= docs[i-1].ordinal {
			return nil, ErrDamaged
		}
	}
	return newSegment(docs), nil
}

// termSource has the terms of documents in order: a batch, or a stored segment.
type termSource interface {
	documents() []docInfo
	// current returns the current term, or nil after the last one. Terms ascend.
	current() []byte
	advance() error
	// postings appends the postings of the current term. Their documents are indexes in documents().
	postings([]posting) ([]posting, error)
}

// segmentSource reads a stored segment.
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

func (s *segmentSource) documents() []docInfo { return s.seg.docs }

func (s *segmentSource) current() []byte { return s.term }

func (s *segmentSource) postings(dst []posting) ([]posting, error) {
	key, l, err := s.currentList()
	if err != nil {
		return nil, err
	}
	return l.appendPostings(dst, key, len(s.seg.docs))
}

// mergeSource is a source with the fate of its documents in a merge.
type mergeSource struct {
	termSource
	dead       *roaring.Bitmap // indexes of documents that are left out. nil means none
	newNumbers []int64         // the new number of each document; −1 means that it is left out
}

// writeSegment writes a segment with all documents of the sources that are not dead.
func writeSegment(ctx context.Context, tx *bolt.Tx, id uint32, sources []*mergeSource) (segmentState, *segment, error) {
	state := segmentState{ID: id}
	docs := numberDocuments(sources)
	bucket, err := tx.Bucket(bucketSegments).CreateBucket(bigEndianKey(id))
	if err != nil {
		return state, nil, err
	}
	bucket.FillPercent = 0.95 // keys are added nearly in order, and none later
	put := func(key, value []byte) error {
		state.Bytes += int64(len(key) + len(value))
		return bucket.Put(key, value)
	}
	if err := put(keyDocs, withChecksum(segmentKey(id, keyDocs), encodeDocs(docs))); err != nil {
		return state, nil, err
	}
	state.Docs = len(docs)
	for _, d := range docs {
		if d.length > 0 {
			state.Live++
			state.Count += uint64(d.length)
		}
	}
	// Merge the postings of each term, in the order of terms.
	var enc encoder
	dict := dictWriter{segment: id, put: put}
	var merged, sourcePostings []posting
	for n := 0; ; n++ {
		if n%256 == 0 {
			if err := ctx.Err(); err != nil {
				return state, nil, err
			}
		}
		term := slices.Clone(lowestCurrentTerm(sources))
		if term == nil {
			break
		}
		merged = merged[:0]
		sorted := true
		for _, s := range sources {
			if !bytes.Equal(s.current(), term) {
				continue
			}
			if sourcePostings, err = s.postings(sourcePostings[:0]); err != nil {
				return state, nil, err
			}
			for _, p := range sourcePostings {
				if number := s.newNumbers[p.doc]; number >= 0 {
					p.doc = uint32(number)
					sorted = sorted && (len(merged) == 0 || merged[len(merged)-1].doc < p.doc)
					merged = append(merged, p)
				}
			}
			if err := s.advance(); err != nil {
				return state, nil, err
			}
		}
		if len(merged) == 0 {
			continue
		}
		if !sorted {
			slices.SortFunc(merged, func(x, y posting) int { return cmp.Compare(x.doc, y.doc) })
		}
		if err := dict.add(term, enc.encode(segmentKey(id, prefixedKey(valuePrefix, term)), merged)); err != nil {
			return state, nil, err
		}
	}
	if err := dict.flush(nil); err != nil {
		return state, nil, err
	}
	return state, newSegment(docs), nil
}

// lowestCurrentTerm returns the lowest current term of all sources, or nil after the last.
func lowestCurrentTerm(sources []*mergeSource) []byte {
	var lowest []byte
	for _, s := range sources {
		if t := s.current(); t != nil && (lowest == nil || bytes.Compare(t, lowest) < 0) {
			lowest = t
		}
	}
	return lowest
}

// numberDocuments numbers the documents that are not dead, in the order of ordinals, and returns
// them.
func numberDocuments(sources []*mergeSource) []docInfo {
	type sourceDoc struct {
		docInfo
		source, doc int // indexes of the source, and of the document in it
	}
	var current []sourceDoc
	for i, s := range sources {
		info := s.documents()
		s.newNumbers = make([]int64, len(info))
		for d, x := range info {
			s.newNumbers[d] = -1
			if s.dead == nil || !s.dead.Contains(uint32(d)) {
				current = append(current, sourceDoc{x, i, d})
			}
		}
	}
	byOrdinal := func(x, y sourceDoc) int { return cmp.Compare(x.ordinal, y.ordinal) }
	if !slices.IsSortedFunc(current, byOrdinal) {
		slices.SortFunc(current, byOrdinal)
	}
	docs := make([]docInfo, len(current))
	for n, p := range current {
		sources[p.source].newNumbers[p.doc] = int64(n)
		docs[n] = p.docInfo
	}
	return docs
}

// docInfo is the record of a document in a segment.
type docInfo struct {
	ordinal uint32
	length  uint32 // in tokens
	sum     storage.PayloadChecksum
}

// batch has documents in memory, in ascending order of ordinals.
type batch struct {
	docs      []docInfo
	termIndex map[string]int
	terms     []batchTerm
	bytes     int64 // estimate of the memory in use

	tokens      []token
	occurrences []occurrence
}

type batchTerm struct {
	term    string
	docs    int
	last    int64  // last document with the term
	entries []byte // for each document: difference to the one before, tf, differences of positions; uvarints
}

type occurrence struct {
	termIndex int
	pos       uint32
}

func newBatch() *batch { return &batch{termIndex: map[string]int{}} }

// termBytes is about the memory of a term in addition to its entries.
const termBytes = 160

// add adds a document. Its ordinal must be above all earlier ones.
func (b *batch) add(ordinal uint32, sum storage.PayloadChecksum, a *analyzer, texts []string) {
	b.tokens = a.documentTokens(b.tokens[:0], texts)
	doc := int64(len(b.docs))
	b.docs = append(b.docs, docInfo{ordinal: ordinal, length: uint32(len(b.tokens) - a.pairTokens), sum: sum})
	b.bytes += docInfoBytes
	b.occurrences = b.occurrences[:0]
	for _, t := range b.tokens {
		index, ok := b.termIndex[t.term]
		if !ok {
			index = len(b.terms)
			term := strings.Clone(t.term) // t.term may share the memory of a long text
			b.termIndex[term] = index
			b.terms = append(b.terms, batchTerm{term: term, last: -1})
			b.bytes += termBytes + int64(len(t.term))
		}
		b.occurrences = append(b.occurrences, occurrence{index, t.pos})
	}
	slices.SortFunc(b.occurrences, func(x, y occurrence) int {
		return cmp.Or(cmp.Compare(x.termIndex, y.termIndex), cmp.Compare(x.pos, y.pos))
	})
	// Append an entry to each term of the document.
	for remaining := b.occurrences; len(remaining) > 0; {
		n := 1
		for n < len(remaining) && remaining[n].termIndex == remaining[0].termIndex {
			n++
		}
		t := &b.terms[remaining[0].termIndex]
		capBefore := cap(t.entries)
		t.entries = binary.AppendUvarint(t.entries, uint64(doc-t.last))
		t.entries = binary.AppendUvarint(t.entries, uint64(n))
		lastPosition := uint32(0)
		for _, x := range remaining[:n] {
			t.entries = binary.AppendUvarint(t.entries, uint64(x.pos-lastPosition))
			lastPosition = x.pos
		}
		b.bytes += int64(cap(t.entries) - capBefore)
		t.last = doc
		t.docs++
		remaining = remaining[n:]
	}
}

// batchSource returns the terms of a batch in order.
type batchSource struct {
	*batch
	next int
}

// sortedSource sorts the terms, after which no document may be added, and returns a source of them.
func (b *batch) sortedSource() *batchSource {
	slices.SortFunc(b.terms, func(x, y batchTerm) int { return cmp.Compare(x.term, y.term) })
	return &batchSource{batch: b}
}

func (s *batchSource) documents() []docInfo { return s.batch.docs }

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
		d, width := binary.Uvarint(b)
		b = b[width:]
		tf, width := binary.Uvarint(b)
		b = b[width:]
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
