package encode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/encode/onnxruntime"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/encode/weights"
)

// local is a model's folder: texts become ids here, and an engine computes.
type local struct {
	c              *modeldir.Config
	engine         engine.Engine
	chunk          int // ids of a chunk
	tok            *tokenizer.Tokenizer
	prefix, suffix []int32
	skip           map[int32]bool
	mutant         mutant
}

// maxTexts bounds the texts of a chunk: empty ones have no ids, but must not be
// without bound either.
const maxTexts = 500

// openLocal reads a folder for one of the backends that compute here.
func (e *Encoder) openLocal(dir string, o *Options, log *slog.Logger) error {
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
	var c *modeldir.Config
	var err error
	if o.Backend == ONNXRuntime {
		c, err = modeldir.ReadGraph(dir, graphs(o), &over)
	} else {
		c, err = modeldir.Read(dir, &over)
	}
	if err != nil {
		return err
	}
	for _, w := range c.Warnings {
		log.Warn("model: "+w, "dir", dir)
	}
	l := &local{
		c: c, tok: c.Tokenizer, prefix: c.Tokenizer.Prefix(), suffix: c.Tokenizer.Suffix(), skip: map[int32]bool{}, mutant: o.mutant,
	}
	for _, id := range c.Skip {
		l.skip[id] = true
	}
	if o.Backend == ONNXRuntime {
		err = l.openGraph(o, log)
	} else {
		err = l.openNative(dir, o, log)
	}
	if err != nil {
		return err
	}
	e.c = Config{Config: *c, Backend: o.Backend, Precision: o.Precision.String()}
	if e.c.Fingerprint, err = c.Fingerprint(e.c.Precision); err != nil {
		return errors.Join(err, l.close())
	}
	l.chunk = l.engine.Chunk()
	if e.threads <= 0 {
		e.threads = runtime.GOMAXPROCS(0)
	}
	if n := l.engine.Workers(); n > 0 {
		e.threads = min(e.threads, n)
	}
	e.b = l
	return nil
}

// openNative loads the weights.
func (l *local) openNative(dir string, o *Options, log *slog.Logger) error {
	nc, w, err := weights.Load(l.c)
	if err != nil {
		return err
	}
	if k := l.mutant.positionOffset; k > 0 {
		nc.MaxPositions, nc.PositionOffset = nc.MaxPositions-k, k
	}
	m, err := native.New(nc, w, native.Options{Precision: o.Precision, Tier: o.Tier})
	if err != nil {
		return &modeldir.ModelError{Path: dir, Err: kindOf(err)}
	}
	log.Debug("native", "tier", m.Tier())
	l.engine = m
	return l.dimFrom("weights")
}

// graphs are the files, of which the first that is there is the graph.
func graphs(o *Options) []string {
	switch {
	case o.Graph != "":
		return []string{o.Graph}
	case o.Precision == Int8:
		return []string{"model_int8.onnx", "onnx/model_int8.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx"}
	}
	return []string{"model.onnx", "onnx/model.onnx"}
}

// openGraph hands the graph to onnxruntime.
func (l *local) openGraph(o *Options, log *slog.Logger) error {
	m, err := onnxruntime.Open(l.c.Weights[0], onnxruntime.Options{Library: o.Library, Device: o.Device, Logger: log})
	if err != nil {
		if errors.Is(err, onnxruntime.ErrGraph) {
			err = &modeldir.ModelError{Path: l.c.Weights[0], Err: fmt.Errorf("%w: %w", modeldir.ErrGraph, err)}
		}
		return err
	}
	l.engine = m
	if err := l.dimFrom("graph"); err != nil {
		return errors.Join(err, m.Close())
	}
	return nil
}

// dimFrom holds the dimension of the engine against that of the folder.
func (l *local) dimFrom(origin string) error {
	switch d := l.engine.Dim(); l.c.Dim {
	case 0:
		l.c.Dim, l.c.Origin["dim"] = d, origin
	case d:
	default:
		return modeldir.Faultf(l.c.Weights[0], "", modeldir.ErrContradiction, "gives vectors of %d dimensions, but %s says %d",
			d, l.c.Origin["dim"], l.c.Dim)
	}
	return nil
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

func (l *local) dim() int { return l.engine.Dim() }

func (l *local) close() error { return l.engine.Close() }

func (l *local) role(r Role) *modeldir.Role {
	if r == Query {
		return &l.c.Query
	}
	return &l.c.Document
}

// ids are those of a trimmed text: prompt and text as pieces, cut so that what
// is put around them has room, the marker behind the first id, and mask tokens
// up to the length where queries are expanded.
func (l *local) ids(r Role, text string) (s sequence, err error) {
	role, x := l.role(r), &l.c.Expand
	length := role.Length
	marker := role.Marker
	if l.mutant.noMarker {
		marker = -1
	}
	if l.mutant.documentMarker {
		marker = l.c.Document.Marker
	}
	around := len(l.prefix) + len(l.suffix)
	if marker >= 0 {
		around++
	}
	if around > length {
		return s, fmt.Errorf("%w: %d ids have no room for the %d around a text", modeldir.ErrConfig, length, around)
	}
	ids := make([]int32, 0, min(length, around+len(text))+1)
	ids = append(ids, l.prefix[:1]...)
	if marker >= 0 {
		ids = append(ids, marker)
	}
	ids = append(ids, l.prefix[1:]...)
	s.first = len(ids)
	if ids, err = l.tok.EncodeIDs(ids, role.Prompt+text); err != nil {
		return s, err
	}
	s.pieces = len(ids) - s.first
	if most := length - around; s.pieces > most {
		s.pieces, s.truncated = most, true
		ids = ids[:s.first+most]
	}
	ids = append(ids, l.suffix...)
	if l.mutant.cutEnd && s.truncated {
		ids = ids[:len(ids)-len(l.suffix)]
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
func (l *local) keeps(r Role, s sequence, i int) bool {
	return i >= s.real || !l.role(r).Skip || l.mutant.keepSkipped || !l.skip[s.ids[i]]
}

// tokens implements backend.
func (l *local) tokens(r Role, text string) ([]Token, error) {
	s, err := l.ids(r, text)
	if err != nil {
		return nil, err
	}
	prompt := l.role(r).Prompt
	pieces, err := l.tok.Encode(prompt + text)
	if err != nil {
		return nil, err
	}
	tokens := make([]Token, len(s.ids))
	for i, id := range s.ids {
		tokens[i] = Token{ID: id, Piece: l.tok.Piece(id), Kept: l.keeps(r, s, i)}
		if j := i - s.first; j >= 0 && j < s.pieces {
			tokens[i].Start, tokens[i].End = max(pieces[j].Start-len(prompt), 0), max(pieces[j].End-len(prompt), 0)
		}
	}
	return tokens, nil
}

// add implements backend.
func (l *local) add(c *chunk, r Role, text string) (s sequence, err error) {
	if s, err = l.ids(r, text); err == nil {
		c.batch.IDs = append(c.batch.IDs, s.ids...)
	}
	return s, err
}

// full implements backend.
func (l *local) full(c *chunk) bool {
	return len(c.batch.IDs) >= l.chunk || len(c.texts) >= max(maxTexts, l.chunk/8)
}

// compute implements backend.
func (l *local) compute(ctx context.Context, r Role, c *chunk) error {
	d, b := l.dim(), &c.batch
	b.Offsets, b.Attended = append(b.Offsets[:0], 0), b.Attended[:0]
	for i := range c.texts {
		s := &c.texts[i].seq
		b.Offsets = append(b.Offsets, b.Offsets[i]+len(s.ids))
		b.Attended = append(b.Attended, s.attended)
	}
	c.memory = slices.Grow(c.memory[:0], len(b.IDs)*d)[:len(b.IDs)*d]
	if len(b.IDs) == 0 {
		return nil
	}
	if err := l.engine.Encode(ctx, c.memory, *b); err != nil {
		return err
	}
	// The vectors that are kept move together.
	for i := range c.texts {
		t := &c.texts[i]
		all := c.memory[b.Offsets[i]*d : b.Offsets[i+1]*d]
		n := 0
		for j := range t.seq.ids {
			if l.keeps(r, t.seq, j) {
				copy(all[n*d:(n+1)*d], all[j*d:(j+1)*d])
				n++
			}
		}
		t.vectors = all[: n*d : n*d]
	}
	return nil
}
