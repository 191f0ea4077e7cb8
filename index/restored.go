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

// restored is a source of the documents of a snapshot from one ordinal up to another,
// with their vectors as they were decoded or, where there are such, the original ones.
// A document that was deleted has no id and no tokens.
type restored struct {
	snap       *Snapshot
	first, end uint32
	originals  vectors.Source // pooled alike; nil: none
	rows       map[uint32]int // of originals
}

// Source is the live documents of the snapshot, in the order of their ordinals, with their
// vectors as they are decoded. It ends with the snapshot.
func (s *Snapshot) Source() vectors.Source {
	r := &restored{snap: s, end: s.State().Docs}
	p := &picked{Source: r, docs: make([]int, 0, s.Len())}
	for i := range r.Len() {
		if s.Live(uint32(i)) {
			p.docs = append(p.docs, i)
		}
	}
	return p
}

// Dim implements [vectors.Source].
func (s *restored) Dim() int { return s.snap.Dim() }

// Len implements [vectors.Source].
func (s *restored) Len() int { return int(s.end - s.first) }

// Rows implements [vectors.Source].
func (s *restored) Rows(i int) int {
	ordinal := s.first + uint32(i)
	chunk, doc, ok := s.snap.Locate(ordinal)
	if !ok || !s.snap.Live(ordinal) {
		return 0
	}
	_, offsets := s.snap.ChunkDocs(chunk)
	return int(offsets[doc+1] - offsets[doc])
}

// ID implements [vectors.Source].
func (s *restored) ID(i int) string {
	if ordinal := s.first + uint32(i); s.snap.Live(ordinal) {
		return s.snap.ID(ordinal)
	}
	return ""
}

// count is how many tokens there are, and how many documents without the holes.
func (s *restored) count() (tokens int64, live uint32) {
	for i := range s.Len() {
		tokens += int64(s.Rows(i))
		if s.ID(i) != "" {
			live++
		}
	}
	return tokens, live
}

// Close implements [vectors.Source].
func (s *restored) Close() error { return nil }

// Docs implements [vectors.Source].
func (s *restored) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for i := from; i < to; {
			run := s.originalsFrom(i, to)
			if run == 0 {
				d, err := s.decodedDocument(i)
				if err == nil {
					err = ctx.Err()
				}
				if !yield(d, err) || err != nil {
					return
				}
				i++
				continue
			}
			row, end := s.rows[s.first+uint32(i)], i+run
			for d, err := range s.originals.Docs(ctx, row, row+run) {
				if err == nil && i == end {
					err = fmt.Errorf("%w: the source of the original vectors did not end before document %d", vectors.ErrShape, row+run)
				}
				if err == nil {
					err = s.check(i, d)
				}
				if err == nil {
					d.Payload, err = s.snap.Payload(s.first + uint32(i))
				}
				if !yield(d, err) || err != nil {
					return
				}
				i++
			}
			if i < end { // the next round would ask for the same again
				err := ctx.Err()
				if err == nil {
					err = fmt.Errorf("%w: the source of the original vectors ended before document %d, %q, of %d",
						vectors.ErrShape, row+run-(end-i), s.ID(i), s.originals.Len())
				}
				yield(vectors.Document{}, err)
				return
			}
		}
	}
}

// originalsFrom is how many documents from i on have original vectors in one piece.
func (s *restored) originalsFrom(i, to int) int {
	n := 0
	for ; i+n < to; n++ {
		row, ok := s.rows[s.first+uint32(i+n)]
		if !ok || row != s.rows[s.first+uint32(i)]+n {
			break
		}
	}
	return n
}

// decodedDocument is a document as the index has it.
func (s *restored) decodedDocument(i int) (d vectors.Document, err error) {
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

// match finds the documents that have original vectors.
func (s *restored) match(ctx context.Context, r *retraining) error {
	src, h := r.options.Vectors, s.snap.Header()
	if d := src.Dim(); d != 0 && d != s.Dim() {
		return fmt.Errorf("%w: vectors have %d, %s has %d", ErrDimension, d, s.snap.Path(), s.Dim())
	}
	p := &pooledSource{Source: src, pooling: poolingOf(h.Build), threads: r.options.Threads, normalize: h.Normalize, memory: r.options.Memory}
	p.payload = func(id string) ([]byte, error) {
		ordinal, ok, err := s.snap.Ordinal(id)
		if err != nil || !ok {
			return nil, err
		}
		return s.snap.Payload(ordinal)
	}
	var err error
	if s.originals, err = pooled(ctx, p); err != nil {
		return err
	}
	s.rows = make(map[uint32]int, src.Len())
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
		s.rows[ordinal] = row
	}
	given := roaring.New()
	for ordinal := range s.rows {
		given.Add(ordinal)
	}
	r.report.Original = s.snap.countDocuments(given).Documents
	return nil
}

// leastCosine is the mean of ⟨v, v̂⟩ below which a document is taken for another one.
// With one bit a component it is about .8; vectors of other documents have less than
// this, or something like it if the model has them all in one corner.
const leastCosine = 0.25

// check holds original vectors against what is stored.
func (s *restored) check(i int, d vectors.Document) error {
	stored, err := s.snap.Vectors(s.first + uint32(i))
	if err != nil {
		return err
	}
	if len(stored) != len(d.Tokens) {
		return fmt.Errorf("document %q: %w: %d values, not %d", d.ID, ErrMismatch, len(d.Tokens), len(stored))
	}
	dim := s.Dim()
	given := append([]float32(nil), d.Tokens...)
	if len(given) == 0 {
		return nil
	}
	codec.Normalize(given, dim)
	codec.Normalize(stored, dim)
	sum := 0.0
	for j, x := range given {
		sum += float64(float64(x) * float64(stored[j]))
	}
	if mean := sum / float64(len(given)/dim); mean < leastCosine || math.IsNaN(mean) {
		return fmt.Errorf("document %q: %w: their cosine is %.2f", d.ID, ErrMismatch, mean)
	}
	return nil
}
