package maxsim

import (
	"context"
	"fmt"
)

// Screening is the documents of a batch rounded to bytes, for the search in two stages
// ([HoldOptions.Screen]). It has the tokens of all items one after another, without those
// that are masked. What is in it is for backends: it is exported so that it can be kept
// in a file beside the documents.
type Screening struct {
	// Levels is [tokens, Stride]: 128 + x/unit, rounded, with the unit of a token that
	// makes its largest value ±127; bytes beyond the dimension are 128.
	Levels []byte
	Stride int // the dimension, rounded up to a multiple of 4
	// Plain is of the vectors as they are, Unit of those divided by their lengths.
	Plain, Unit ScreeningTerms
}

// ScreeningTerms are what depends on the lengths of vectors.
type ScreeningTerms struct {
	// Scales are the units of the tokens, and Factors what the products of their values
	// count times (nil: all 1).
	Scales, Factors []float32
	// Errors and Norms have, for each item, the largest length of a rounding error and
	// of a rounded vector.
	Errors, Norms []float32
}

// packer is a [Backend] that makes a Screening. Backends of the processor do, also where
// they have no use for it; all of them make the same.
type packer interface {
	// Pack rounds documents to bytes on so many threads (0: one a processor); nil if
	// there are values that bytes are no good for.
	Pack(ctx context.Context, b *Batch, threads int) (*Screening, error)
}

// Pack makes a screening on a backend that can, and is [ErrUnsupported] on others.
func Pack(ctx context.Context, b Backend, documents *Batch, threads int) (*Screening, error) {
	if p, ok := b.(packer); ok {
		return p.Pack(ctx, documents, threads)
	}
	return nil, fmt.Errorf("%w: packing on %s", ErrUnsupported, b.Name())
}

// CountTokens counts the rows of the items that are tokens.
func (l *Layout) CountTokens() int {
	n := 0
	for i := range l.Len() {
		n += l.tokens(i)
	}
	return n
}

// tokens counts those of an item.
func (l *Layout) tokens(i int) int {
	lo, hi := l.Span(i)
	n := hi - lo
	if l.Mask != nil {
		for _, real := range l.Mask[lo:hi] {
			if !real {
				n--
			}
		}
	}
	return n
}

// Starts has for each item the number of its first token, and at last that of all
// tokens: where the tokens of items are in a [Screening].
func (l *Layout) Starts() []int {
	starts := make([]int, l.Len()+1)
	for i := range l.Len() {
		starts[i+1] = starts[i] + l.tokens(i)
	}
	return starts
}

// Check checks that a screening has the sizes that it has to have for a batch.
func (s *Screening) Check(b *Batch) error {
	tokens, items := b.CountTokens(), b.Len()
	if stride := (b.Tokens.Dim + 3) &^ 3; s.Stride != stride || len(s.Levels) != tokens*stride {
		return faultf("%d bytes, %d a token, screen %d tokens of dimension %d", len(s.Levels), s.Stride, tokens, b.Tokens.Dim)
	}
	for i, t := range []*ScreeningTerms{&s.Plain, &s.Unit} {
		factors := tokens
		if i == 0 && b.Tokens.Scales == nil {
			factors = 0
		}
		if len(t.Scales) != tokens || len(t.Factors) != factors || len(t.Errors) != items || len(t.Norms) != items {
			return faultf("terms of %d, %d, %d and %d values screen %d tokens of %d items", len(t.Scales), len(t.Factors), len(t.Errors), len(t.Norms), tokens, items)
		}
	}
	return nil
}

// Slice is the screening of the items from to to, whose tokens are those from first
// to last.
func (s *Screening) Slice(from, to, first, last int) *Screening {
	return &Screening{s.Levels[first*s.Stride : last*s.Stride], s.Stride, s.Plain.slice(from, to, first, last), s.Unit.slice(from, to, first, last)}
}

func (t *ScreeningTerms) slice(from, to, first, last int) ScreeningTerms {
	s := ScreeningTerms{Scales: t.Scales[first:last], Errors: t.Errors[from:to], Norms: t.Norms[from:to]}
	if t.Factors != nil {
		s.Factors = t.Factors[first:last]
	}
	return s
}
