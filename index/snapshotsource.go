package index

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/vectors"
)

// snapshotSource yields the documents of a snapshot from the ordinal first to before end, with
// their decoded vectors or, if there are any, the original ones. A deleted document has no id and
// no tokens.
type snapshotSource struct {
	snap         *Snapshot
	first, end   uint32
	originals    vectors.Source // pooled as in the index, or nil
	rowOfOrdinal map[uint32]int // rows of originals
}

// Source returns the live documents of the snapshot, in the order of their ordinals, with their
// decoded vectors. It is valid until the snapshot is closed.
func (s *Snapshot) Source() vectors.Source {
	r := &snapshotSource{snap: s, end: s.State().Docs}
	p := &sourceSubset{Source: r, docs: make([]int, 0, s.Len())}
	for i := range r.Len() {
		if s.Live(uint32(i)) {
			p.docs = append(p.docs, i)
		}
	}
	return p
}

// Dim implements [vectors.Source].
func (s *snapshotSource) Dim() int { return s.snap.Dim() }

// Len implements [vectors.Source].
func (s *snapshotSource) Len() int { return int(s.end - s.first) }

// Rows implements [vectors.Source].
func (s *snapshotSource) Rows(i int) int {
	ordinal := s.first + uint32(i)
	chunk, doc, ok := s.snap.Locate(ordinal)
	if !ok || !s.snap.Live(ordinal) {
		return 0
	}
	_, offsets := s.snap.ChunkDocs(chunk)
	return int(offsets[doc+1] - offsets[doc])
}

// ID implements [vectors.Source].
func (s *snapshotSource) ID(i int) string {
	if ordinal := s.first + uint32(i); s.snap.Live(ordinal) {
		return s.snap.ID(ordinal)
	}
	return ""
}

// countTokens returns the number of tokens, and of documents that are not holes.
func (s *snapshotSource) countTokens() (tokens int64, live uint32) {
	for i := range s.Len() {
		tokens += int64(s.Rows(i))
		if s.ID(i) != "" {
			live++
		}
	}
	return tokens, live
}

// Close implements [vectors.Source].
func (s *snapshotSource) Close() error { return nil }

// Docs implements [vectors.Source].
func (s *snapshotSource) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for i := from; i < to; {
			count := s.countOriginals(i, to)
			// Without an original, decode one document.
			if count == 0 {
				d, err := s.decodeDocument(i)
				if err == nil {
					err = ctx.Err()
				}
				if !yield(d, err) || err != nil {
					return
				}
				i++
				continue
			}
			// Read a run of originals.
			row, end := s.rowOfOrdinal[s.first+uint32(i)], i+count
			for d, err := range s.originals.Docs(ctx, row, row+count) {
				if err == nil && i == end {
					err = fmt.Errorf("%w: the source of the original vectors did not end before document %d",
						vectors.ErrShape, row+count)
				}
				if err == nil {
					err = s.checkOriginal(i, d)
				}
				if err == nil {
					d.Payload, err = s.snap.Payload(s.first + uint32(i))
				}
				if !yield(d, err) || err != nil {
					return
				}
				i++
			}
			if i < end { // an error: another round would ask for the same documents again
				err := ctx.Err()
				if err == nil {
					missingRow := row + count - (end - i)
					err = fmt.Errorf("%w: the source of the original vectors ended before document %d, %q, of %d",
						vectors.ErrShape, missingRow, s.ID(i), s.originals.Len())
				}
				yield(vectors.Document{}, err)
				return
			}
		}
	}
}

// countOriginals returns how many documents from i on have their original vectors in consecutive
// rows.
func (s *snapshotSource) countOriginals(i, to int) int {
	n := 0
	for ; i+n < to; n++ {
		row, ok := s.rowOfOrdinal[s.first+uint32(i+n)]
		if !ok || row != s.rowOfOrdinal[s.first+uint32(i)]+n {
			break
		}
	}
	return n
}

// decodeDocument returns a document with its decoded vectors.
func (s *snapshotSource) decodeDocument(i int) (d vectors.Document, err error) {
	ordinal := s.first + uint32(i)
	if !s.snap.Live(ordinal) {
		return d, nil
	}
	d.ID = s.snap.ID(ordinal)
	if d.Tokens, err = s.snap.Vectors(ordinal); err == nil {
		d.Payload, err = s.snap.Payload(ordinal)
	}
	return d, err
}

// matchOriginals finds the documents that have original vectors.
func (s *snapshotSource) matchOriginals(ctx context.Context, r *retraining) error {
	src, h := r.options.Vectors, s.snap.Header()
	if d := src.Dim(); d != 0 && d != s.Dim() {
		return fmt.Errorf("%w: vectors have %d, %s has %d", ErrDimension, d, s.snap.Path(), s.Dim())
	}
	p := &pooledSource{
		Source:    src,
		pooling:   poolingFromBuild(h.Build),
		threads:   r.options.Threads,
		normalize: h.Normalize,
		memory:    r.options.Memory,
	}
	p.fallbackPayload = func(id string) ([]byte, error) {
		ordinal, ok, err := s.snap.Ordinal(id)
		if err != nil || !ok {
			return nil, err
		}
		return s.snap.Payload(ordinal)
	}
	var err error
	if s.originals, err = newPooledSource(ctx, p); err != nil {
		return err
	}
	// Find the ordinal of each row.
	s.rowOfOrdinal = make(map[uint32]int, src.Len())
	for row := range src.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		ordinal, ok, err := s.snap.Ordinal(src.ID(row))
		if err != nil {
			return err
		}
		if !ok {
			r.report.Unused++
			continue
		}
		if have, want := s.originals.Rows(row), s.Rows(int(ordinal-s.first)); have != want {
			return fmt.Errorf("document %d, %q: %w: %d tokens, not %d", row, src.ID(row), ErrMismatch, have, want)
		}
		s.rowOfOrdinal[ordinal] = row
	}
	matched := roaring.New()
	for ordinal := range s.rowOfOrdinal {
		matched.Add(ordinal)
	}
	r.report.Original = s.snap.countDocuments(matched).Documents
	return nil
}

// minCosine is the mean of ⟨v, v̂⟩ below which vectors count as those of another document.
// Decoded with one bit per component, the right document has about .8. Vectors of other documents
// have less than minCosine, or about as much if the model maps everything to one corner.
const minCosine = 0.25

// checkOriginal compares original vectors with the stored ones.
func (s *snapshotSource) checkOriginal(i int, d vectors.Document) error {
	stored, err := s.snap.Vectors(s.first + uint32(i))
	if err != nil {
		return err
	}
	if len(stored) != len(d.Tokens) {
		return fmt.Errorf("document %q: %w: %d values, not %d", d.ID, ErrMismatch, len(d.Tokens), len(stored))
	}
	dim := s.Dim()
	original := append([]float32(nil), d.Tokens...)
	if len(original) == 0 {
		return nil
	}
	codec.Normalize(original, dim)
	codec.Normalize(stored, dim)
	sum := 0.0
	for j, x := range original {
		sum += float64(float64(x) * float64(stored[j]))
	}
	if mean := sum / float64(len(original)/dim); mean < minCosine || math.IsNaN(mean) {
		return fmt.Errorf("document %q: %w: their cosine is %.2f", d.ID, ErrMismatch, mean)
	}
	return nil
}
