package encode

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/plaid-ir/plaid/vectors"
)

// SpoolOptions for Spool. The zero value, or nil, is right for most.
type SpoolOptions struct {
	// Float32 stores whole numbers instead of halves.
	Float32 bool
	// Vectors and Matrix, where set, are a file for the vectors alone and what is made of
	// it; see [vectors.SpoolOptions].
	Vectors, Matrix string
	// Progress, where set, is called after each document that was encoded, by the
	// goroutine that called Spool.
	Progress func(Report)
}

// spoolFlush is after how many documents the file has all of them.
const spoolFlush = 16

// Spool encodes a stream of texts into a file, and makes a [vectors.Source] of it and of what else
// the texts have. The file has the vectors of each text once, by a digest of title and text. A file
// that is at the path already, by the same model in the same precision and pooled alike, is gone on
// with: a text whose vectors it has is not encoded again, wherever the text stands, and whatever its
// id and payload are. So a process may be killed at any time, texts be corrected, and the work be
// called for again; a few texts, whose vectors were not yet on their way to the disk, are encoded twice.
//
// Each text is checked before it is encoded, as [SurveyTexts] does. An error leaves the file as far
// as it is. With the path "" the file is a temporary one. Ids, payloads and their order are those of
// this stream alone, and payloads are in a file without a name until the source is closed.
//
// Errors: [vectors.ErrSpool] for a file of another model; those of [SurveyTexts] and of
// [Encoder.Documents].
func Spool(
	ctx context.Context, e *Encoder, texts iter.Seq2[Text, error], path string, o *SpoolOptions,
) (*Spooled, *Report, error) {
	if o == nil {
		o = new(SpoolOptions)
	}
	tag := "plaid encode " + e.config.Fingerprint
	if e.config.Pool > 0 {
		tag = fmt.Sprintf("%s pool %d", tag, e.config.Pool)
	}
	store, err := vectors.NewSpool(e.Dim(), &vectors.SpoolOptions{Path: path, Resume: path != "", Float16: !o.Float32,
		Tag: tag, Vectors: o.Vectors, Matrix: o.Matrix, Keyed: true})
	if err != nil {
		return nil, nil, err
	}
	r := new(Report)
	s := &Spooled{store: store, before: store.Len(), ahead: map[vectors.Key]uint32{}}
	if s.payloads, err = newPayloads(path); err != nil {
		return nil, r, errors.Join(err, store.Close())
	}
	documents := &call{role: Document, halves: !o.Float32 && !e.config.Pools()} // pooled vectors are rounded later
	encoded := new(Report)
	for doc, err := range e.documents(ctx, documents, s.fresh(e, texts), encoded) {
		if err == nil {
			err = s.put(doc.Tokens, r)
		}
		if err != nil {
			*r = s.others.withEncoded(encoded)
			return nil, r, errors.Join(err, s.Close())
		}
		if *r = r.withEncoded(encoded); o.Progress != nil {
			o.Progress(*r)
		}
	}
	*r = s.others.withEncoded(encoded)
	if err := store.Flush(); err != nil {
		return nil, r, errors.Join(err, s.Close())
	}
	for _, row := range s.rows {
		s.tokens += int64(store.Rows(int(row)))
	}
	s.ahead, s.queue = nil, nil
	return s, r, nil
}

// Spooled is documents whose vectors are in a spool. It is for one goroutine at a time.
type Spooled struct {
	store    *vectors.Spool // by the digest of a text
	payloads *payloads
	rows     []uint32 // of each document, the one of its vectors in the store
	ids      []string // nil: row numbers
	tokens   int64

	before int                    // rows that the store had when it was opened
	used   []uint64               // bits: which of these are used
	unused int                    // how many are not
	ahead  map[vectors.Key]uint32 // the rows of texts that are being encoded
	queue  []queuedText           // these, in order
	others Report                 // of texts that were not encoded: their vectors are there

	closed bool
}

// queuedText is a text that is being encoded.
type queuedText struct {
	key    vectors.Key
	others Report // of the texts before it
}

// withEncoded adds the report of texts that were encoded to one of texts that were not.
func (r Report) withEncoded(encoded *Report) Report {
	sum := *encoded
	sum.Texts, sum.Empty, sum.Equal, sum.Resumed = sum.Texts+r.Equal, sum.Empty+r.Empty, r.Equal, r.Resumed
	return sum
}

// fresh passes on the texts that have to be encoded, and notes all.
func (s *Spooled) fresh(e *Encoder, texts iter.Seq2[Text, error]) iter.Seq2[Text, error] {
	s.used, s.unused = make([]uint64, (s.before+63)/64), s.before
	next := s.before
	var roll roll
	return func(yield func(Text, error) bool) {
		for t, err := range texts {
			if err == nil {
				err = roll.note(&t, t.check(false))
			}
			if err == nil {
				err = s.payloads.add(t.Payload)
			}
			if err != nil {
				yield(Text{}, err)
				return
			}
			if t.ID != "" {
				s.ids = append(s.ids, t.ID)
			}
			if t.From == (Place{}) {
				t.From.Row = s.payloads.len()
			}
			full := t.Full()
			trimmed, _ := e.trim(Document, full)
			encoded := trimmed
			if e.config.Tokenizer == nil { // a server gets it as it is
				encoded = full
			}
			digest := sha256.Sum256([]byte(encoded))
			key := vectors.Key(digest[:len(vectors.Key{})])
			row, known := s.store.Row(key)
			if !known {
				var on uint32
				if on, known = s.ahead[key]; known {
					row = int(on)
				}
			}
			if !known {
				s.rows = append(s.rows, uint32(next))
				s.ahead[key] = uint32(next)
				s.queue = append(s.queue, queuedText{key, s.others})
				next++
				if !yield(Text{ID: t.ID, Text: full, From: t.From}, nil) {
					return
				}
				continue
			}
			s.rows = append(s.rows, uint32(row))
			if row < s.before {
				s.others.Resumed++
				if bit := uint64(1) << (row % 64); s.used[row/64]&bit == 0 {
					s.used[row/64] |= bit
					s.unused--
				}
				continue
			}
			s.others.Equal++
			if trimmed == "" {
				s.others.Empty++
			}
		}
	}
}

// put stores the vectors of the text that is next in the queue, and sets the report of those before it.
func (s *Spooled) put(tokens []float32, others *Report) error {
	key := s.queue[0].key
	*others = s.queue[0].others
	s.queue = s.queue[1:]
	if err := s.store.Add(vectors.Document{ID: string(key[:]), Tokens: tokens}); err != nil {
		return err
	}
	delete(s.ahead, key)
	if s.store.Len()%spoolFlush == 0 {
		return s.store.Flush()
	}
	return nil
}

// Tokens is the number of token vectors of all documents.
func (s *Spooled) Tokens() int64 { return s.tokens }

// Unused is the number of texts that the file had before, and that were not among those of the stream.
func (s *Spooled) Unused() int { return s.unused }

// HasPayload reports whether some document has one.
func (s *Spooled) HasPayload() bool { return s.payloads.bytes() > 0 }

// Numbered reports whether ids are row numbers.
func (s *Spooled) Numbered() bool { return s.ids == nil }

// Dim implements [vectors.Source].
func (s *Spooled) Dim() int {
	if s.tokens == 0 {
		return 0
	}
	return s.store.Dim()
}

// Len implements [vectors.Source].
func (s *Spooled) Len() int { return len(s.rows) }

// Rows implements [vectors.Source].
func (s *Spooled) Rows(i int) int { return s.store.Rows(int(s.rows[i])) }

// ID implements [vectors.Source].
func (s *Spooled) ID(i int) string {
	if s.ids == nil {
		return strconv.Itoa(i)
	}
	return s.ids[i]
}

// Docs implements [vectors.Source].
func (s *Spooled) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return s.each(ctx, from, to, func(i int) (vectors.Document, error) { return s.store.Doc(int(s.rows[i])) })
}

// Heads yields all documents without their vectors.
func (s *Spooled) Heads(ctx context.Context) iter.Seq2[vectors.Document, error] {
	return s.each(ctx, 0, s.Len(), func(i int) (d vectors.Document, err error) { return d, nil })
}

// each yields documents with the vectors that get returns.
func (s *Spooled) each(
	ctx context.Context, from, to int, get func(i int) (vectors.Document, error),
) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		if n := s.Len(); from < 0 || to > n || from > to {
			yield(vectors.Document{}, fmt.Errorf("%w: documents %d to %d asked of %d", vectors.ErrShape, from, to, n))
			return
		}
		for i := from; i < to; i++ {
			err := ctx.Err()
			var d vectors.Document
			if err == nil {
				d, err = get(i)
			}
			if d.ID = s.ID(i); err == nil {
				d.Payload, err = s.payloads.get(i)
			}
			if err != nil {
				yield(vectors.Document{}, err)
				return
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

// InOrder reports whether the vectors in the file are those of the documents, in their order and
// without others between them or behind them.
func (s *Spooled) InOrder() bool {
	for i, row := range s.rows {
		if int(row) != i {
			return false
		}
	}
	return len(s.rows) == s.store.Len()
}

// Matrix is [vectors.Spool.Matrix], for documents that are in order.
func (s *Spooled) Matrix(path string) error {
	if !s.InOrder() {
		return fmt.Errorf("%w: the vectors are not in the order of the documents", vectors.ErrShape)
	}
	return s.store.Matrix(path)
}

// Close implements [vectors.Source]. A file that has a path of its own stays, with all that was
// encoded.
func (s *Spooled) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.store.Close(), s.payloads.close())
}
