package collection

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Growth says how a collection is kept while it is small, and when it is trained
// anew. The sizes are tokens of live documents.
//
//	up to Flat     8 bits a component around zero; nothing is trained, and searches
//	               score every document exactly
//	up to Until    the bits of [Config], at least 4, around centroids, trained anew each
//	               time the collection has grown by Factor since the last training
//	from there on  the bits of [Config], trained once. The drift of what is added is
//	               watched, and [Retrainer] is for whoever runs the service.
//
// A training reads one state of the collection, beside searches and writes, and what
// comes meanwhile is encoded again before the new file takes the place of the old one
// by one rename. A process that dies leaves the one or the other.
type Growth struct {
	Flat   int64   // 0: 65,536; −1: nothing but what a training needs
	Until  int64   // 0: 1,048,576; −1: the first documents are encoded for good
	Factor float64 // 0: 8
	// Drift is how many times the error of training the error of what was added since
	// may be before a training is said to pay; 0: 1.5.
	Drift float64
}

// Completed is a Growth with what is 0 filled in. The error is [ErrConfig].
func (g Growth) Completed() (Growth, error) {
	if g.Flat == 0 {
		g.Flat = 1 << 16
	}
	if g.Until == 0 {
		g.Until = 1 << 20
	}
	if g.Factor == 0 {
		g.Factor = 8
	}
	if g.Drift == 0 {
		g.Drift = 1.5
	}
	if g.Flat < -1 || g.Until < -1 || !(g.Factor >= 1.25) || !(g.Drift > 1) {
		return Growth{}, fmt.Errorf("%w: growth of %+v", ErrConfig, g)
	}
	return g, nil
}

// Least is the number of tokens from which a collection is trained.
func (g *Growth) Least() int64 { return max(g.Flat, 1) }

// Stage is how far a collection has grown; see [Growth].
type Stage string

// The stages.
const (
	StageEmpty   Stage = "empty"
	StageFlat    Stage = "flat"
	StageGrowing Stage = "growing"
	StageFinal   Stage = "final"
)

// Training is how a collection is trained.
type Training struct {
	Stage     Stage
	Nbits     int
	Centroids int // 0: by the rule
	Seed      uint64
}

// HeldOut is how many vectors there are for each that centroids are not trained on, so that step and scales suit
// documents that come later; 0: they are trained on all. See [codec.TrainOptions].
func (t *Training) HeldOut() int {
	if t.Stage == StageGrowing {
		return 8
	}
	return 0
}

// Codec is the one of a training that needs no documents; nil for the others.
func (t *Training) Codec(dim int) (*codec.Quantizer, error) {
	if t.Stage != StageFlat {
		return nil, nil
	}
	return codec.Flat(dim)
}

// Coded says how a collection is coded now.
type Coded struct {
	Stage   Stage
	Nbits   int
	Trained int64 // how many tokens there were when the codec was trained
}

// minGrowingBits is how many bits a component of stored vectors has to have to be trained on: each training
// encodes them again, which adds its error to the one that they have.
const minGrowingBits = 4

// CodedBy tells how an index is coded. One that was not trained by these rules is in the
// stage that its bits and tokens say. Like the methods after it, it is of a [Growth.Completed].
func (g *Growth) CodedBy(h *storage.Header) Coded {
	c := Coded{StageGrowing, h.Nbits, int64(h.Build.Tokens)}
	switch {
	case h.Build.Source != "vectors" || h.Nbits < minGrowingBits:
		c.Stage = StageFinal
	case h.Nbits == 8 && h.Centroids == 1 && c.Trained == 0:
		c.Stage = StageFlat
	case g.Until < 0 || c.Trained == 0 || c.Trained >= g.Until:
		c.Stage = StageFinal
	}
	return c
}

// Training returns how a collection of this many tokens is kept.
func (g *Growth) Training(tokens int64, cfg Config) Training {
	switch {
	case tokens == 0: // there is nothing to train on
	case tokens >= g.Until:
		return Training{StageFinal, cfg.finalBits(), 0, cfg.seedOrDefault()}
	case tokens >= g.Flat:
		return whileGrowing(tokens, cfg)
	}
	return Training{StageFlat, 8, 1, cfg.seedOrDefault()}
}

func whileGrowing(tokens int64, cfg Config) Training {
	return Training{StageGrowing, max(cfg.finalBits(), minGrowingBits), fewCentroids(tokens), cfg.seedOrDefault()}
}

// Due says whether a collection is to be trained anew because it has grown.
func (g *Growth) Due(c Coded, tokens int64, cfg Config) (t Training, due bool) {
	t = g.Again(c, tokens, cfg)
	switch c.Stage {
	case StageFlat:
		return t, t.Stage != StageFlat
	case StageGrowing:
		return t, float64(tokens) >= g.Factor*float64(c.Trained) || t.Stage == StageFinal && t.Nbits < c.Nbits
	}
	return t, false
}

// Again returns how a collection is trained once more on its stored vectors, however much it has grown. One that
// is trained keeps the bits that it has, since more would add nothing; in its final stage it stays.
func (g *Growth) Again(c Coded, tokens int64, cfg Config) Training {
	t := g.Training(tokens, cfg)
	switch {
	case c.Stage == StageFinal:
		t = Training{StageFinal, cfg.finalBits(), 0, cfg.seedOrDefault()}
	case c.Stage == StageGrowing && t.Stage == StageFlat: // much was deleted
		t = whileGrowing(tokens, cfg)
	}
	if c.Stage != StageFlat {
		t.Nbits = min(t.Nbits, c.Nbits)
	}
	return t
}

// FailedAgain says whether a training that is due is left alone, since one has failed when the
// collection had so many tokens: it is tried again when there is a tenth more.
func FailedAgain(failed, tokens int64) bool { return failed > 0 && tokens < failed+failed/10 }

// minDriftShare is the share of the tokens trained on that must have been added before
// their error says something.
const minDriftShare = 16

// Advice says why training anew would pay; "": it would not. It is for collections that
// are not trained by themselves any more.
func (g *Growth) Advice(stage Stage, d index.Drift) string {
	switch {
	case stage != StageFinal:
		return ""
	case d.Ratio > g.Drift && d.Added*minDriftShare > d.Trained:
		return fmt.Sprintf("vectors that were added since the training have %.2f times its error", d.Ratio)
	case d.Wanted >= 4*d.Centroids:
		return fmt.Sprintf("the collection has %d centroids, and so many tokens by now that one would train %d", d.Centroids, d.Wanted)
	}
	return ""
}

// fewCentroids is how many centroids a collection gets that will have more documents
// soon: so many that each has some 39 of the tokens, below which faiss warns. With the
// rule of a whole collection a small one would have a centroid for each few tokens,
// which fit them so well that what comes later does not fit the levels.
func fewCentroids(tokens int64) int {
	return max(min(int(tokens/39), codec.DefaultK(tokens)), 1)
}

// noDim stands for a dimension that is not known, in the codec of an index without vectors.
const noDim = 1

// Undecided reports whether an index has no dimension yet: [Growth.First] made it of documents without
// vectors, and the first vectors decide the dimension.
func Undecided(snap *index.Snapshot) bool {
	h := snap.Header()
	return h.Dim == noDim && h.Centroids == 1 && h.Build.Tokens == 0 && snap.State().Tokens == 0
}

// First says how the first documents of a collection are encoded. dim is the dimension where they
// have no vectors, 0 if it is not known ([Undecided]).
func (g Growth) First(src vectors.Source, dim int, cfg Config) (*index.BuildOptions, error) {
	g, gerr := g.Completed()
	cfg, cerr := cfg.Completed()
	if err := errors.Join(gerr, cerr); err != nil {
		return nil, err
	}
	tokens := int64(0)
	for i := range src.Len() {
		tokens += int64(src.Rows(i))
	}
	t := g.Training(tokens, cfg)
	fixed, err := t.Codec(cmp.Or(src.Dim(), dim, noDim))
	return &index.BuildOptions{Nbits: t.Nbits, Centroids: t.Centroids, HeldOut: t.HeldOut(), Seed: t.Seed, Codec: fixed}, err
}
