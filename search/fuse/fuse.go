// Package fuse merges two rankings: by vectors and by words.
//
// Scores of different kinds cannot be added directly. [ReciprocalRank] uses ranks instead,
// [RelativeScore] scales the scores first.
package fuse

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Errors; test with errors.Is.
var (
	// ErrMethod reports an unknown method.
	ErrMethod = errors.New("unknown method of fusion")
	// ErrWeight reports an alpha that is not from 0 to 1.
	ErrWeight = errors.New("bad weight of a ranking")
	// ErrRanking reports a score that is not finite, or a document that a ranking has twice.
	ErrRanking = errors.New("bad ranking to fuse")
)

// DefaultAlpha is the weight of vectors where a user sets none; words have the rest.
const DefaultAlpha = .75

// Method is a way to merge rankings. Its texts, in flags and JSON, are "rrf" and "relative_score".
type Method int

const (
	// RelativeScore scales the scores of each ranking to 0 … 1, from its lowest to its highest (all
	// are 1 if all are equal), and adds them up, times the weights. A ranking that lacks a document
	// adds 0.
	RelativeScore Method = iota
	// ReciprocalRank adds up weight / (60 + rank), where the first rank is 1: Cormack, Clarke and
	// Büttcher, Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods
	// (SIGIR 2009). A ranking that lacks a document adds 0.
	ReciprocalRank
)

// rankOffset is the constant of [ReciprocalRank], as in the paper.
const rankOffset = 60

// ParseMethod reads the text of a method.
func ParseMethod(text string) (Method, error) {
	for _, m := range []Method{RelativeScore, ReciprocalRank} {
		if text == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%w: %q: %v or %v", ErrMethod, text, RelativeScore, ReciprocalRank)
}

func (m Method) String() string {
	switch m {
	case RelativeScore:
		return "relative_score"
	case ReciprocalRank:
		return "rrf"
	}
	return fmt.Sprintf("method %d", int(m))
}

// MarshalText returns the text of the method.
func (m Method) MarshalText() ([]byte, error) {
	if m != RelativeScore && m != ReciprocalRank {
		return nil, fmt.Errorf("%w: %v", ErrMethod, m)
	}
	return []byte(m.String()), nil
}

// UnmarshalText reads the text of a method.
func (m *Method) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMethod(string(text))
	return err
}

// ScoredDocument is a document of a ranking.
type ScoredDocument struct {
	Ordinal uint32  `json:"ordinal"` // of the document
	Score   float64 `json:"score"`   // on the scale of its ranking
}

// Fuse returns the k best documents of two rankings (all if there are fewer): the highest sum first
// and equal ones in the order of their ordinals. The first ranking has weight alpha, the second 1 −
// alpha. Each must have the best first, and each document once. A ranking of weight 0 contributes
// no documents.
//
// Errors: [ErrMethod], [ErrWeight], [ErrRanking].
func Fuse(m Method, k int, alpha float64, first, second []ScoredDocument) ([]ScoredDocument, error) {
	if m != RelativeScore && m != ReciprocalRank {
		return nil, fmt.Errorf("%w: %v", ErrMethod, m)
	}
	if !(alpha >= 0 && alpha <= 1) {
		return nil, fmt.Errorf("%w: alpha %g is not from 0 to 1", ErrWeight, alpha)
	}
	sums := map[uint32]float64{}
	for i, hits := range [][]ScoredDocument{first, second} {
		weight := []float64{alpha, 1 - alpha}[i]
		lo, hi := math.Inf(1), math.Inf(-1)
		seen := make(map[uint32]struct{}, len(hits))
		for rank, h := range hits {
			if math.IsNaN(h.Score) || math.IsInf(h.Score, 0) {
				return nil, fmt.Errorf("%w: ranking %d, place %d: score %g", ErrRanking, i, rank, h.Score)
			}
			if _, twice := seen[h.Ordinal]; twice {
				return nil, fmt.Errorf("%w: ranking %d has document %d twice", ErrRanking, i, h.Ordinal)
			}
			seen[h.Ordinal] = struct{}{}
			lo, hi = min(lo, h.Score), max(hi, h.Score)
		}
		if weight == 0 {
			continue
		}
		for i, h := range hits {
			gain := 1 / float64(rankOffset+i+1) // ranks count from 1
			if m == RelativeScore {
				gain = scaleScore(h.Score, lo, hi)
			}
			sums[h.Ordinal] += weight * gain
		}
	}
	fused := make([]ScoredDocument, 0, len(sums))
	for ordinal, sum := range sums {
		fused = append(fused, ScoredDocument{ordinal, sum})
	}
	slices.SortFunc(fused, func(a, b ScoredDocument) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return fused[:max(min(k, len(fused)), 0)], nil
}

// scaleScore maps a score to 0 … 1, from the lowest to the highest.
func scaleScore(score, lo, hi float64) float64 {
	if lo == hi {
		return 1
	}
	if math.IsInf(hi-lo, 0) { // halves avoid the overflow
		score, lo, hi = score/2, lo/2, hi/2
	}
	return (score - lo) / (hi - lo)
}
