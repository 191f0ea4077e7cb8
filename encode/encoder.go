package encode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/encode/weights"
)

// Precision is how products with weights are computed.
type Precision = native.Precision

// The precisions. F32 is exact; Int8 is about two and a half times as fast, its
// vectors are about 0.001 of a cosine off.
const (
	F32  = native.F32
	Int8 = native.Int8
)

// Options of Open. The zero value, or nil, is right for most.
type Options struct {
	Precision Precision
	// Threads is how many texts are computed at once; 0: one a processor.
	Threads int
	// QueryLength and DocumentLength are in ids, with all that is put around a
	// text; 0: those of the model.
	QueryLength, DocumentLength int
	// Override decides what the folder leaves open or contradicts itself in.
	Override *modeldir.Override
	// Tier names an instruction set; see [native.Options].
	Tier   string
	Logger *slog.Logger // nil: silent

	mutant mutant
}

// mutant are mistakes that tests make on purpose, to see that they are noticed.
type mutant struct {
	noMarker, documentMarker, keepSkipped, cutEnd bool
	positionOffset                                int
}

// Config is that of the model, resolved; see [modeldir.Config].
type Config struct {
	modeldir.Config
	Precision   string `json:"precision"`
	Fingerprint string `json:"fingerprint"` // of all that vectors depend on
}

// Role says what a text is. The two are encoded differently.
type Role int

// The roles.
const (
	Query Role = iota
	Document
)

func (r Role) String() string {
	if r == Query {
		return "query"
	}
	return "document"
}

// Encoder turns texts into token vectors. It is safe for concurrent use.
type Encoder struct {
	c              Config
	model          *native.Model
	tok            *tokenizer.Tokenizer
	prefix, suffix []int32
	skip           map[int32]bool
	threads        int
	mutant         mutant
	closed         atomic.Bool
}

// ErrClosed: the encoder was closed.
var ErrClosed = errors.New("encoder is closed")

// Open reads a model's folder. Errors of the folder are [*modeldir.ModelError].
func Open(dir string, o *Options) (*Encoder, error) {
	if o == nil {
		o = new(Options)
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	over := modeldir.Override{}
	if o.Override != nil {
		over = *o.Override
	}
	for _, l := range []struct {
		n  int
		to **int
	}{{o.QueryLength, &over.QueryLength}, {o.DocumentLength, &over.DocumentLength}} {
		if l.n != 0 {
			*l.to = &l.n
		}
	}
	c, err := modeldir.Read(dir, &over)
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		log.Warn("model: "+w, "dir", dir)
	}
	nc, w, err := weights.Load(c)
	if err != nil {
		return nil, err
	}
	if k := o.mutant.positionOffset; k > 0 {
		nc.MaxPositions, nc.PositionOffset = nc.MaxPositions-k, k
	}
	e := &Encoder{
		tok: c.Tokenizer, prefix: c.Tokenizer.Prefix(), suffix: c.Tokenizer.Suffix(), skip: map[int32]bool{},
		threads: o.Threads, mutant: o.mutant,
	}
	if e.model, err = native.New(nc, w, native.Options{Precision: o.Precision, Tier: o.Tier}); err != nil {
		return nil, &modeldir.ModelError{Path: dir, Err: kindOf(err)}
	}
	if c.Dim == 0 {
		c.Dim = e.model.Dim()
		c.Origin["dim"] = "weights"
	}
	e.c = Config{Config: *c, Precision: o.Precision.String()}
	if e.c.Fingerprint, err = c.Fingerprint(e.c.Precision); err != nil {
		return nil, err
	}
	for _, id := range c.Skip {
		e.skip[id] = true
	}
	if e.threads <= 0 {
		e.threads = runtime.GOMAXPROCS(0)
	}
	log.Info("model opened", "dir", dir, "dim", e.Dim(), "precision", e.c.Precision, "tier", e.model.Tier())
	return e, nil
}

// kindOf gives errors of the engine the kinds of model folders.
func kindOf(err error) error {
	switch {
	case errors.Is(err, native.ErrWeights):
		return fmt.Errorf("%w: %w", modeldir.ErrWeights, err)
	case errors.Is(err, native.ErrConfig):
		return fmt.Errorf("%w: %w", modeldir.ErrFamily, err)
	}
	return err
}

// Config is that of the model.
func (e *Encoder) Config() Config { return e.c }

// Dim is the dimension of the vectors.
func (e *Encoder) Dim() int { return e.model.Dim() }

// Close ends the use of the encoder. Calls after it are [ErrClosed]; those under
// way end as they would have. It may be called twice.
func (e *Encoder) Close() error {
	e.closed.Store(true)
	return nil
}

func (e *Encoder) usable() error {
	if e.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Token is an id that a vector is computed for.
type Token struct {
	ID    int32
	Piece string
	// Start and End bound the bytes of the text that the token was made of. A
	// token of what is put around a text has an empty range at 0.
	Start, End int
	// Kept says that the vector is used: those of punctuation in documents mostly
	// are not.
	Kept bool
}

// Embedding is a query as vectors: those of the tokens that are kept, one after
// the other.
type Embedding struct {
	Vectors []float32
	Tokens  []Token // all of them, also those that are not kept
	// Truncated says that the text was cut at the longest length.
	Truncated bool
}

// Tokenize gives the tokens of a text as the model sees them: with all that is
// put around it, and without what is cut off. An empty text has none.
func (e *Encoder) Tokenize(r Role, text string) ([]Token, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	trimmed, lead := trim(text)
	if trimmed == "" {
		return nil, nil
	}
	s, err := e.ids(r, trimmed)
	if err != nil {
		return nil, err
	}
	prompt := e.role(r).Prompt
	pieces, err := e.tok.Encode(prompt + trimmed)
	if err != nil {
		return nil, err
	}
	tokens := make([]Token, len(s.ids))
	for i, id := range s.ids {
		tokens[i] = Token{ID: id, Piece: e.tok.Piece(id), Kept: e.keeps(r, s, i)}
		if j := i - s.first; j >= 0 && j < s.pieces {
			p := pieces[j]
			tokens[i].Start = min(max(p.Start-len(prompt), 0)+lead, len(text))
			tokens[i].End = min(max(p.End-len(prompt), 0)+lead, len(text))
		}
	}
	return tokens, nil
}

func (e *Encoder) role(r Role) *modeldir.Role {
	if r == Query {
		return &e.c.Query
	}
	return &e.c.Document
}

// sequence is a text as ids.
type sequence struct {
	ids       []int32
	first     int // place of the first piece of the text
	pieces    int // how many there are
	real      int // ids that are no filling
	attended  int // ids that are attended to
	truncated bool
}

// trim is Python's strip, and how many bytes it took from the beginning.
func trim(text string) (string, int) {
	isSpace := func(r rune) bool { return r >= 0x1c && r <= 0x1f || strings.ContainsRune(spaces, r) }
	s := strings.TrimLeftFunc(text, isSpace)
	return strings.TrimRightFunc(s, isSpace), len(text) - len(s)
}

// spaces are those of Unicode that Python strips.
const spaces = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

// ids are those of a trimmed text: prompt and text as pieces, cut so that what
// is put around them has room, the marker behind the first id, and mask tokens
// up to the length where queries are expanded.
func (e *Encoder) ids(r Role, text string) (s sequence, err error) {
	role, x := e.role(r), &e.c.Expand
	length := role.Length
	marker := role.Marker
	if e.mutant.noMarker {
		marker = -1
	}
	if e.mutant.documentMarker {
		marker = e.c.Document.Marker
	}
	around := len(e.prefix) + len(e.suffix)
	if marker >= 0 {
		around++
	}
	if around > length {
		return s, fmt.Errorf("%w: %d ids have no room for the %d around a text", modeldir.ErrConfig, length, around)
	}
	ids := make([]int32, 0, min(length, around+len(text))+1)
	ids = append(ids, e.prefix[:1]...)
	if marker >= 0 {
		ids = append(ids, marker)
	}
	ids = append(ids, e.prefix[1:]...)
	s.first = len(ids)
	if ids, err = e.tok.EncodeIDs(ids, role.Prompt+text); err != nil {
		return s, err
	}
	s.pieces = len(ids) - s.first
	if most := length - around; s.pieces > most {
		s.pieces, s.truncated = most, true
		ids = ids[:s.first+most]
	}
	ids = append(ids, e.suffix...)
	if e.mutant.cutEnd && s.truncated {
		ids = ids[:len(ids)-len(e.suffix)]
	}
	s.real, s.attended = len(ids), len(ids)
	if r == Query && x.On {
		for len(ids) < x.Length {
			ids = append(ids, x.Mask)
		}
		if x.Attend {
			s.attended = len(ids)
		}
	}
	s.ids = slices.Clip(ids)
	return s, nil
}

// keeps says whether the vector of an id is used.
func (e *Encoder) keeps(r Role, s sequence, i int) bool {
	return i >= s.real || !e.role(r).Skip || e.mutant.keepSkipped || !e.skip[s.ids[i]]
}

// Query encodes a query. An empty one has no vectors.
func (e *Encoder) Query(ctx context.Context, text string) (Embedding, error) {
	out, err := e.Queries(ctx, []string{text})
	if err != nil {
		return Embedding{}, err
	}
	return out[0], nil
}
