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

// Growth says how a collection is kept while it is small, and when it is trained. Sizes are tokens of live documents.
//
//	up to Flat      8 bits a component, quantized around zero. Nothing is trained, and searches score every document
//	                exactly.
//	up to Until     the bits of [Config], but at least 4, around centroids. It is trained each time that the
//	                collection has grown by Factor since the last training.
//	beyond Until    the bits of [Config], trained once. Drift is watched, and an operator may call [Retrainer].
//
// A training reads one state of the collection, while searches and writes go on. Documents that come meanwhile are
// encoded again, before a rename replaces the old file by the new one. A process that dies leaves one of the two.
type Growth struct {
	Flat   int64   // 0 means 65,536; −1 means only while there are no vectors
	Until  int64   // 0 means 1,048,576; −1 means that the first documents are encoded in the final form
	Factor float64 // 0 means 8
	// Drift is how many times the error of the training the error of later documents may be before another training is
	// advised. 0 means 1.5.
	Drift float64
}

// Completed returns a Growth with defaults for fields that are 0. The error is [ErrConfig].
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

// MinTokens returns the number of tokens from which a collection is trained.
func (g *Growth) MinTokens() int64 { return max(g.Flat, 1) }

// Stage is how far a collection has grown; see [Growth].
type Stage string

// Stages of growth.
const (
	StageEmpty   Stage = "empty"
	StageFlat    Stage = "flat"
	StageGrowing Stage = "growing"
	StageFinal   Stage = "final"
)

// Training describes how a collection is trained.
type Training struct {
	Stage     Stage
	Nbits     int
	Centroids int // 0 means the number that the size suggests
	Seed      uint64
}

// HeldOut returns the n of "one of n vectors is not trained on", so that step and scales suit later documents. 0 means
// that all vectors are trained on. See [codec.TrainOptions].
func (t *Training) HeldOut() int {
	if t.Stage == StageGrowing {
		return 8
	}
	return 0
}

// Codec returns the codec of a training that needs no documents, nil if it needs some.
func (t *Training) Codec(dim int) (*codec.Quantizer, error) {
	if t.Stage != StageFlat {
		return nil, nil
	}
	return codec.NewFlat(dim)
}

// Encoding describes how a collection is encoded at present.
type Encoding struct {
	Stage   Stage
	Nbits   int
	Trained int64 // tokens of the collection when the codec was trained
}

// minGrowingBits is the least number of bits a component with which stored vectors can be trained on again: each
// training encodes the decoded vectors, which adds its error to the one that they have.
const minGrowingBits = 4

// EncodingOf returns how an index is encoded. An index that was not made by these rules gets the stage that its bits
// and tokens suggest. This and the following methods require a Growth from [Growth.Completed].
func (g *Growth) EncodingOf(h *storage.Header) Encoding {
	c := Encoding{StageGrowing, h.Nbits, int64(h.Build.Tokens)}
	switch {
	case h.Build.Source != "vectors" || h.Nbits < minGrowingBits:
		c.Stage = StageFinal
	case h.Nbits == 8 && h.Centroids == 1 && c.Trained == 0: // the codec of codec.NewFlat
		c.Stage = StageFlat
	case g.Until < 0 || c.Trained == 0 || c.Trained >= g.Until:
		c.Stage = StageFinal
	}
	return c
}

// Training returns how a collection with a number of tokens is kept.
func (g *Growth) Training(tokens int64, cfg Config) Training {
	switch {
	case tokens == 0: // there is nothing to train on
	case tokens >= g.Until:
		return Training{StageFinal, cfg.finalBits(), 0, cfg.seedOrDefault()}
	case tokens >= g.Flat:
		return growingTraining(tokens, cfg)
	}
	return Training{StageFlat, 8, 1, cfg.seedOrDefault()}
}

// growingTraining returns the training of a collection in [StageGrowing].
func growingTraining(tokens int64, cfg Config) Training {
	return Training{StageGrowing, max(cfg.finalBits(), minGrowingBits), fewCentroids(tokens), cfg.seedOrDefault()}
}

// NextTraining returns the next training of a collection, and whether it is due because the collection has grown.
func (g *Growth) NextTraining(c Encoding, tokens int64, cfg Config) (t Training, due bool) {
	t = g.Retraining(c, tokens, cfg)
	switch c.Stage {
	case StageFlat:
		return t, t.Stage != StageFlat
	case StageGrowing:
		return t, float64(tokens) >= g.Factor*float64(c.Trained) || t.Stage == StageFinal && t.Nbits < c.Nbits
	}
	return t, false
}

// Retraining returns how a collection is trained again on its stored vectors, whether or not it has grown. A trained
// collection keeps its bits, since more bits would add nothing, and one in the final stage stays in it.
func (g *Growth) Retraining(c Encoding, tokens int64, cfg Config) Training {
	t := g.Training(tokens, cfg)
	switch {
	case c.Stage == StageFinal:
		t = Training{StageFinal, cfg.finalBits(), 0, cfg.seedOrDefault()}
	case c.Stage == StageGrowing && t.Stage == StageFlat: // many documents were deleted
		t = growingTraining(tokens, cfg)
	}
	if c.Stage != StageFlat {
		t.Nbits = min(t.Nbits, c.Nbits)
	}
	return t
}

// SkipFailedTraining reports whether a due training is skipped because the last one failed, when the collection had
// failedAt tokens. It is tried again when the collection has a tenth more. A failedAt of 0 means that none has failed.
func SkipFailedTraining(failedAt, tokens int64) bool {
	return failedAt > 0 && tokens < failedAt+failedAt/10
}

// driftShareDivisor is the inverse of a share: the error of tokens added since the training counts if they are more
// than 1/driftShareDivisor of the tokens that were trained on.
const driftShareDivisor = 16

// Advice returns why another training would help. "" means that it would not. It is for collections in the final stage,
// which are not trained automatically any more.
func (g *Growth) Advice(stage Stage, d index.Drift) string {
	switch {
	case stage != StageFinal:
		return ""
	case d.Ratio > g.Drift && d.Added*driftShareDivisor > d.Trained:
		return fmt.Sprintf("the error of vectors added since the training is %.2f times that of the training", d.Ratio)
	case d.Wanted >= 4*d.Centroids:
		return fmt.Sprintf("the collection has %d centroids, and a training with its present size would make %d",
			d.Centroids, d.Wanted)
	}
	return ""
}

// fewCentroids returns the number of centroids of a growing collection. Each gets at least 39 tokens, the number below
// which faiss warns. The rule for complete collections would give a small one a centroid for every few tokens, which
// would fit them too well: later documents would not fit the levels.
func fewCentroids(tokens int64) int {
	return max(min(int(tokens/39), codec.DefaultK(tokens)), 1)
}

// noDim is the dimension of the codec of an index without vectors, while the real dimension is not known.
const noDim = 1

// Undecided reports whether an index has no dimension yet: [Growth.FirstBuild] made it for documents without vectors,
// and the first vectors will set the dimension.
func Undecided(snap *index.Snapshot) bool {
	h := snap.Header()
	return h.Dim == noDim && h.Centroids == 1 && h.Build.Tokens == 0 && snap.State().Tokens == 0
}

// FirstBuild returns how the first documents of a collection are encoded. dim is the dimension if they have no vectors,
// 0 if it is not known ([Undecided]).
func (g Growth) FirstBuild(src vectors.Source, dim int, cfg Config) (*index.BuildOptions, error) {
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
	return &index.BuildOptions{
		Nbits:     t.Nbits,
		Centroids: t.Centroids,
		HeldOut:   t.HeldOut(),
		Seed:      t.Seed,
		Codec:     fixed,
	}, err
}
