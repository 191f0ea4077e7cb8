package encode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/native"
	"github.com/plaid-ir/plaid/encode/onnxruntime"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/encode/weights"
	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/internal/parallel"
)

// local is the backend of a model's folder: it tokenizes texts, and an engine computes.
type local struct {
	config         *modeldir.Config
	engine         engine.Engine
	chunkIDs       int // ids of a chunk
	threads        int // goroutines that tokenize
	tokenizer      *tokenizer.Tokenizer
	prefix, suffix []int32
	skipIDs        idSet     // ids without a vector, for roles that skip them
	keepIDs        idSet     // ids of documents that have a vector; empty means all
	memory         sync.Pool // of *engineBatch
}

// maxTexts bounds the texts of a chunk that has few ids: empty texts have no ids, so that the
// number of ids alone would not bound them.
const maxTexts = 500

// openLocal reads a folder for one of the backends that compute in this process, and sets
// the configuration.
func (e *Encoder) openLocal(ctx context.Context, dir string, o *Options, log *slog.Logger) error {
	m, err := findModel(ctx, dir, o)
	if err != nil {
		return err
	}
	c, dir := m.Config, m.Dir
	if err := m.Fetch(ctx); err != nil {
		return err
	}
	for _, w := range c.Warnings {
		log.Warn("model: "+w, "dir", dir)
	}
	l := &local{
		config: c, tokenizer: c.Tokenizer, prefix: c.Tokenizer.Prefix(), suffix: c.Tokenizer.Suffix(),
		skipIDs: newIDSet(c.Skip, c.Tokenizer.VocabSize()), keepIDs: newIDSet(c.Keep, c.Tokenizer.VocabSize()),
	}
	l.memory.New = func() any { return new(engineBatch) }
	e.config = Config{Config: *c, Name: m.Name, Backend: o.Backend}
	if e.threads <= 0 {
		e.threads = parallel.Processors()
	}
	l.threads = 1
	switch o.Backend {
	case ONNXRuntime:
		err = l.openGraph(o, log)
	case Device:
		if e.config.Device, err = l.openDevice(ctx, dir, o); err == nil {
			o.Precision, l.threads = e.config.Device.Precision, e.threads
			e.threads = max(e.threads, l.engine.Workers())
		}
	default:
		err = l.openNative(dir, o, log)
	}
	if err != nil {
		return err
	}
	e.config.Config, e.config.Precision = *c, o.Precision.String()
	if err := e.config.setFingerprints(o.Precision); err != nil {
		return errors.Join(err, l.close())
	}
	l.chunkIDs = l.engine.Chunk()
	if n := l.engine.Workers(); n > 0 { // the engine cannot use more. 0 means no limit
		e.threads = min(e.threads, n)
	}
	e.backend = l
	return nil
}

// nearPrecision maps a precision to the other one whose vectors agree, see [Config.Near].
var nearPrecision = map[Precision]Precision{F32: F16, F16: F32}

// setFingerprints computes the fingerprints for a precision and for the one near it. A graph has
// no near precision, since nothing is known about its vectors.
func (c *Config) setFingerprints(p Precision) error {
	precisions := []string{p.String()}
	if other, ok := nearPrecision[p]; ok && c.Backend != ONNXRuntime {
		precisions = append(precisions, other.String())
	}
	all, err := c.Config.Fingerprints(precisions...)
	if err != nil {
		return err
	}
	if c.Fingerprint = all[0]; len(all) > 1 {
		c.Near = all[1]
	}
	return nil
}

// openNative loads the weights into the native engine.
func (l *local) openNative(dir string, o *Options, log *slog.Logger) error {
	nc, w, err := weights.Load(l.config)
	if err != nil {
		return err
	}
	m, err := native.New(nc, w, native.Options{Precision: o.Precision, Tier: o.Tier})
	if err != nil {
		return &modeldir.ModelError{Path: dir, Err: modelDirError(err)}
	}
	log.Debug("native", "tier", m.Tier())
	l.engine = m
	return l.resolveDimension("weights")
}

// graphFiles returns the paths where a graph may be; the first file that exists is used.
func graphFiles(o *Options) []string {
	switch {
	case o.Graph != "":
		return []string{o.Graph}
	case o.Precision == Int8:
		return []string{
			"model_int8.onnx", "onnx/model_int8.onnx",
			"model_quantized.onnx", "onnx/model_quantized.onnx",
		}
	}
	return []string{"model.onnx", "onnx/model.onnx"}
}

// openGraph opens the graph of the folder in onnxruntime.
func (l *local) openGraph(o *Options, log *slog.Logger) error {
	m, err := onnxruntime.Open(l.config.Weights[0], onnxruntime.Options{Library: o.Library, Logger: log})
	if err != nil {
		if errors.Is(err, onnxruntime.ErrGraph) {
			err = &modeldir.ModelError{Path: l.config.Weights[0], Err: fmt.Errorf("%w: %w", modeldir.ErrGraph, err)}
		}
		return err
	}
	l.engine = m
	if err := l.resolveDimension("graph"); err != nil {
		return errors.Join(err, m.Close())
	}
	return nil
}

// resolveDimension compares the dimension of the engine with that of the folder, which the engine's
// dimension completes if it has none. origin names the source of the engine's.
func (l *local) resolveDimension(origin string) error {
	switch d := l.engine.Dim(); l.config.Dim {
	case 0:
		l.config.Dim, l.config.Origin["dim"] = d, origin
	case d:
	default:
		return modeldir.Errorf(l.config.Weights[0], "", modeldir.ErrContradiction,
			"gives vectors of %d dimensions, but %s says %d", d, l.config.Origin["dim"], l.config.Dim)
	}
	return nil
}

// modelDirError wraps errors of the native engine in the matching errors of [modeldir].
func modelDirError(err error) error {
	switch {
	case errors.Is(err, native.ErrWeights):
		return fmt.Errorf("%w: %w", modeldir.ErrWeights, err)
	case errors.Is(err, native.ErrConfig):
		return fmt.Errorf("%w: %w", modeldir.ErrFamily, err)
	}
	return err
}

func (l *local) dimension() int { return l.engine.Dim() }
func (l *local) close() error   { return l.engine.Close() }

// roleSettings returns the settings of a role.
func (l *local) roleSettings(r Role) *modeldir.Role {
	if r == Query {
		return &l.config.Query
	}
	return &l.config.Document
}

// idsAround returns how many ids surround prompt and text: special tokens and the marker.
func idsAround(t *tokenizer.Tokenizer, role *modeldir.Role) int {
	n := t.IDsAround()
	if role.Marker >= 0 {
		n++
	}
	return n
}

// buildSequence returns the ids of a trimmed text:
//
//	prefix[0] marker prefix[1:] pieces of prompt and text, cut to the length  suffix  masks
//
// Masks fill a query up to the length of expansion. If the tokenizer has no prefix, the marker
// follows the first piece and counts as one of the pieces. withRanges also returns the ranges of
// the pieces.
func (l *local) buildSequence(r Role, text string, withRanges bool) (s sequence, err error) {
	role, expansion := l.roleSettings(r), &l.config.Expand
	length, marker := role.Length, role.Marker
	around := idsAround(l.tokenizer, role)
	if around > length {
		return s, fmt.Errorf("%w: %d ids have no room for the %d around a text", modeldir.ErrConfig, length, around)
	}
	ids := make([]int32, 0, min(length, around+len(text))+1)
	ids = append(ids, l.prefix...)
	if marker >= 0 && len(ids) > 0 {
		ids = slices.Insert(ids, 1, marker)
		marker = -1
	}
	// Tokenize, and cut the text.
	s.firstPiece = len(ids)
	if withRanges {
		s.pieceTokens, err = l.tokenizer.Encode(role.Prompt + text)
		ids = slices.Grow(ids, len(s.pieceTokens))
		for _, p := range s.pieceTokens {
			ids = append(ids, p.ID)
		}
	} else {
		ids, err = l.tokenizer.EncodeIDs(ids, role.Prompt+text)
	}
	if err != nil {
		return s, err
	}
	s.pieces = len(ids) - s.firstPiece
	if limit := length - around; s.pieces > limit {
		s.pieces, s.dropped = limit, s.pieces-limit
		// Copies, so that a long text does not keep the memory of the tokens that are cut.
		ids = slices.Clone(ids[:s.firstPiece+limit])
		if withRanges {
			s.pieceTokens = slices.Clone(s.pieceTokens[:limit])
		}
	}
	if unknown, ok := l.tokenizer.Unknown(); ok {
		for _, id := range ids[s.firstPiece:] {
			if id == unknown {
				s.unknown++
			}
		}
	}
	// Add the ids after the text.
	ids = append(ids, l.suffix...)
	if marker >= 0 { // no prefix: the marker follows the first piece
		ids = slices.Insert(ids, min(1, len(ids)), marker)
		if s.pieces > 0 {
			s.pieces++
			if withRanges {
				s.pieceTokens = slices.Insert(s.pieceTokens, 1, tokenizer.Token{ID: marker})
			}
		}
	}
	s.real, s.attended = len(ids), len(ids)
	if r == Query && expansion.On {
		for len(ids) < expansion.Length {
			ids = append(ids, expansion.Mask)
		}
		if expansion.Attend {
			s.attended = len(ids)
		}
	}
	s.ids = slices.Clip(ids)
	return s, nil
}

// keepsVector reports whether the vector of id i of a sequence is used.
func (l *local) keepsVector(r Role, s sequence, i int) bool {
	id := s.ids[i]
	if r == Document && len(l.keepIDs) > 0 && !l.keepIDs.contains(id) {
		return false
	}
	return !l.roleSettings(r).Skip || !l.skipIDs.contains(id)
}

// idSet is a bitmap of the ids of a vocabulary. nil is the empty set.
type idSet []uint64

// newIDSet returns the set of ids, without those that the vocabulary does not have.
func newIDSet(ids []int32, vocabulary int) idSet {
	if len(ids) == 0 {
		return nil
	}
	s := make(idSet, vocabulary/64+1)
	for _, id := range ids {
		if id >= 0 && int(id) < vocabulary {
			s[id/64] |= 1 << (id % 64)
		}
	}
	return s
}

func (s idSet) contains(id int32) bool { return int(id)/64 < len(s) && s[id/64]>>(id%64)&1 == 1 }

func (l *local) tokenize(r Role, text string) ([]Token, error) {
	s, err := l.buildSequence(r, text, true)
	if err != nil {
		return nil, err
	}
	return l.tokensFromSequence(r, s), nil
}

func (l *local) queryTokens(s sequence) []Token { return l.tokensFromSequence(Query, s) }

// tokensFromSequence returns the tokens of a sequence that has ranges. Their ranges are in the
// text without the prompt.
func (l *local) tokensFromSequence(r Role, s sequence) []Token {
	prompt := l.roleSettings(r).Prompt
	tokens := make([]Token, len(s.ids))
	for i, id := range s.ids {
		tokens[i] = Token{ID: id, Piece: l.tokenizer.Piece(id), Kept: l.keepsVector(r, s, i)}
		if j := i - s.firstPiece; j >= 0 && j < s.pieces {
			piece := s.pieceTokens[j]
			tokens[i].Start, tokens[i].End = max(piece.Start-len(prompt), 0), max(piece.End-len(prompt), 0)
		}
	}
	return tokens
}

func (l *local) prepare(r Role, text string) (sequence, error) {
	return l.buildSequence(r, text, r == Query)
}

// bytesPerID is a low estimate of the bytes of text per id: a chunk must not be overfilled.
const bytesPerID = 4

// readAhead returns 0 bytes, which means one text at a time, if one goroutine tokenizes.
func (l *local) readAhead(c *chunk) (bytes, goroutines int) {
	if l.threads <= 1 {
		return 0, 1
	}
	return bytesPerID * (l.chunkIDs - len(c.batch.IDs)), l.threads
}

func (l *local) isFull(c *chunk) bool {
	return len(c.batch.IDs) >= l.chunkIDs || len(c.texts) >= l.textLimit()
}

// textLimit returns how many texts a chunk may have: at least maxTexts, more if chunks have many ids.
func (l *local) textLimit() int { return max(maxTexts, l.chunkIDs/8) }

// canJoin reports whether all chunks together are no larger than one full chunk. Resident vectors are
// computed chunk by chunk.
func (l *local) canJoin(batch []*chunk, c *chunk) bool {
	ids, texts := len(c.batch.IDs), len(c.texts)
	if c.call.resident != nil || batch[0].call.resident != nil {
		return false
	}
	for _, other := range batch {
		ids, texts = ids+len(other.batch.IDs), texts+len(other.texts)
	}
	return ids <= l.chunkIDs && texts <= l.textLimit()
}

// engineBatch is the input and the memory of one call of the engine, for one or more chunks.
type engineBatch struct {
	engine.Batch
	vectors  []float32
	kept     []int32 // indexes of the ids whose vectors are used
	textEnds []int   // of each text, the end of its indexes in kept
	halves   []byte
}

// compute encodes a batch in one call of the engine. The engine does not know roles: they
// matter only for the ids, which the chunks have, and for the vectors that are kept.
func (l *local) compute(ctx context.Context, _ Role, batch []*chunk) error {
	// Halves are computed if the engine can, and all calls accept them.
	d := l.dimension()
	halfEngine, useHalves := l.engine.(halver)
	for _, c := range batch {
		c.rounded = false
		useHalves = useHalves && c.call.acceptsHalves
	}
	// Join the ids of all chunks.
	b := l.memory.Get().(*engineBatch)
	defer l.memory.Put(b)
	b.IDs, b.Offsets, b.Attended = b.IDs[:0], append(b.Offsets[:0], 0), b.Attended[:0]
	for _, c := range batch {
		b.IDs = append(b.IDs, c.batch.IDs...)
		for i := range c.texts {
			s := &c.texts[i].seq
			b.Offsets = append(b.Offsets, b.Offsets[len(b.Offsets)-1]+len(s.ids))
			b.Attended = append(b.Attended, s.attended)
		}
	}
	if len(b.IDs) == 0 {
		return nil
	}
	if batch[0].call.resident != nil {
		return l.computeResident(ctx, batch[0], b)
	}
	if useHalves {
		return l.computeHalves(ctx, halfEngine, b, batch)
	}
	// Encode all ids, and copy the vectors that are kept.
	b.vectors = slices.Grow(b.vectors[:0], len(b.IDs)*d)[:len(b.IDs)*d]
	if err := l.engine.Encode(ctx, b.vectors, b.Batch); err != nil {
		return err
	}
	remaining := b.vectors
	for _, c := range batch {
		c.memory = slices.Grow(c.memory[:0], len(c.batch.IDs)*d)
		for i := range c.texts {
			t := &c.texts[i]
			first := len(c.memory)
			for j := range t.seq.ids {
				if l.keepsVector(c.call.role, t.seq, j) {
					c.memory = append(c.memory, remaining[j*d:(j+1)*d]...)
				}
			}
			t.vectors, remaining = c.memory[first:len(c.memory):len(c.memory)], remaining[len(t.seq.ids)*d:]
		}
	}
	return nil
}

// setKept sets kept and textEnds of b for the texts of a batch.
func (l *local) setKept(b *engineBatch, batch ...*chunk) {
	id := int32(0)
	b.kept, b.textEnds = b.kept[:0], b.textEnds[:0]
	for _, c := range batch {
		for i := range c.texts {
			s := c.texts[i].seq
			for j := range s.ids {
				if l.keepsVector(c.call.role, s, j) {
					b.kept = append(b.kept, id)
				}
				id++
			}
			b.textEnds = append(b.textEnds, len(b.kept))
		}
	}
}

// computeHalves encodes a batch. The engine returns only the kept vectors, as float16.
func (l *local) computeHalves(ctx context.Context, e halver, b *engineBatch, batch []*chunk) error {
	d := l.dimension()
	l.setKept(b, batch...)
	b.halves = slices.Grow(b.halves[:0], 2*len(b.kept)*d)[:2*len(b.kept)*d]
	if err := e.EncodeHalves(ctx, b.halves, b.Batch, b.kept); err != nil {
		return err
	}
	first, ends := 0, b.textEnds
	for _, c := range batch {
		if len(c.texts) == 0 {
			continue
		}
		end := ends[len(c.texts)-1]
		n := (end - first) * d
		c.memory, c.rounded = slices.Grow(c.memory[:0], n)[:n], true
		floats.DecodeFloat16(c.memory, b.halves[2*first*d:])
		begin := 0
		for i := range c.texts {
			last := (ends[i] - first) * d
			c.texts[i].vectors, begin = c.memory[begin:last:last], last
		}
		first, ends = end, ends[len(c.texts):]
	}
	return nil
}
