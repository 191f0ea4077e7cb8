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

// SpoolOptions are options of [Spool]. The zero value, or nil, is right for most.
type SpoolOptions struct {
	// Float32 stores vectors as float32 instead of float16.
	Float32 bool
	// Vectors and Matrix are [vectors.SpoolOptions.Vectors] and [vectors.SpoolOptions.Matrix].
	Vectors, Matrix string
	// Progress is called after each document that was encoded, by the
	// goroutine that called Spool. It may be nil.
	Progress func(Report)
}

// spoolFlush is how many documents are buffered before they are written to the file.
const spoolFlush = 16

// Spool encodes a stream of texts into a file, and returns a [vectors.Source] of its vectors with the
// ids and payloads of the texts. The file has the vectors of each text once, by a digest of title and
// text. If the path has a file of the same model, precision and pooling, Spool resumes it: a text whose
// vectors the file has is not encoded again, whatever its position, id and payload. So a process may be
// killed at any time, texts may be corrected, and Spool be called again; only a few texts, whose vectors
// were not written yet, are encoded twice.
//
// Each text is checked before it is encoded, as [SurveyTexts] does. After an error the file keeps its
// vectors. The path "" means a temporary file. Ids, payloads and their order are those of
// this stream alone; payloads are in an unnamed file until the source is closed.
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
	store, err := vectors.NewSpool(e.Dim(), &vectors.SpoolOptions{
		Path:    path,
		Resume:  path != "",
		Float16: !o.Float32,
		Tag:     tag,
		Vectors: o.Vectors,
		Matrix:  o.Matrix,
		Keyed:   true,
	})
	if err != nil {
		return nil, nil, err
	}
	r := new(Report)
	s := &Spooled{store: store, rowsBefore: store.Len(), encodingRows: map[vectors.Key]uint32{}}
	if s.payloads, err = newPayloads(path); err != nil {
		return nil, r, errors.Join(err, store.Close())
	}
	// Encode the texts whose vectors the file does not have. Pooled vectors are rounded by the store.
	call := &encodeCall{role: Document, acceptsHalves: !o.Float32 && !e.config.Pools()}
	encoded := new(Report)
	for doc, err := range e.documents(ctx, call, s.textsToEncode(e, texts), encoded) {
		if err == nil {
			err = s.storeNext(doc.Tokens, r)
		}
		if err != nil {
			*r = s.skipped.withEncoded(encoded)
			return nil, r, errors.Join(err, s.Close())
		}
		if *r = r.withEncoded(encoded); o.Progress != nil {
			o.Progress(*r)
		}
	}
	*r = s.skipped.withEncoded(encoded)
	if err := store.Flush(); err != nil {
		return nil, r, errors.Join(err, s.Close())
	}
	for _, row := range s.rows {
		s.tokens += int64(store.Rows(int(row)))
	}
	s.encodingRows, s.queue = nil, nil
	return s, r, nil
}

// Spooled is documents whose vectors are in a spool. It is for one goroutine at a time.
type Spooled struct {
	store    *vectors.Spool // by the digest of a text
	payloads *payloads
	rows     []uint32 // of each document, the row of its vectors in the store
	ids      []string // nil means that ids are row numbers
	tokens   int64    // vectors of all documents

	rowsBefore   int                    // rows that the store had when it was opened
	used         []uint64               // a bit for each of these, set if a document uses it
	unused       int                    // how many of these no document uses
	encodingRows map[vectors.Key]uint32 // the future rows of texts that are being encoded
	queue        []queuedText           // the same texts, in order
	skipped      Report                 // counts the texts that were not encoded, since the vectors exist

	closed bool
}

// queuedText is a text that is being encoded.
type queuedText struct {
	key     vectors.Key
	skipped Report // counts the texts before it that were not encoded
}

// withEncoded returns the sum of two reports: r counts the texts that were not encoded, encoded the others.
func (r Report) withEncoded(encoded *Report) Report {
	sum := *encoded
	sum.Texts, sum.Empty, sum.Equal, sum.Resumed = sum.Texts+r.Equal, sum.Empty+r.Empty, r.Equal, r.Resumed
	return sum
}

// textsToEncode yields the texts that have to be encoded, and records ids, payloads and rows of all
// texts.
func (s *Spooled) textsToEncode(e *Encoder, texts iter.Seq2[Text, error]) iter.Seq2[Text, error] {
	s.used, s.unused = make([]uint64, (s.rowsBefore+63)/64), s.rowsBefore
	next := s.rowsBefore
	var checker textChecker
	return func(yield func(Text, error) bool) {
		for t, err := range texts {
			if err == nil {
				err = checker.checkNext(&t, t.checkStorable(false))
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
			if t.From == (Place{}) { // errors name the row in this stream, not in the stream of texts to encode
				t.From.Row = s.payloads.len()
			}
			full := t.Full()
			trimmed, _ := e.trimText(Document, full)
			// Look for the vectors in the file, and among the texts that are being encoded.
			encoded := trimmed
			if e.config.Tokenizer == nil { // a server receives the text untrimmed
				encoded = full
			}
			digest := sha256.Sum256([]byte(encoded))
			key := vectors.Key(digest[:len(vectors.Key{})])
			row, known := s.store.Row(key)
			if !known {
				var future uint32
				if future, known = s.encodingRows[key]; known {
					row = int(future)
				}
			}
			if !known {
				s.rows = append(s.rows, uint32(next))
				s.encodingRows[key] = uint32(next)
				s.queue = append(s.queue, queuedText{key, s.skipped})
				next++
				if !yield(Text{ID: t.ID, Text: full, From: t.From}, nil) {
					return
				}
				continue
			}
			// Count a text whose vectors exist.
			s.rows = append(s.rows, uint32(row))
			if row < s.rowsBefore {
				s.skipped.Resumed++
				if bit := uint64(1) << (row % 64); s.used[row/64]&bit == 0 {
					s.used[row/64] |= bit
					s.unused--
				}
				continue
			}
			s.skipped.Equal++
			if trimmed == "" {
				s.skipped.Empty++
			}
		}
	}
}

// storeNext stores the vectors of the next text in the queue, and sets skipped to the report of the texts
// before it that were not encoded.
func (s *Spooled) storeNext(tokens []float32, skipped *Report) error {
	key := s.queue[0].key
	*skipped = s.queue[0].skipped
	s.queue = s.queue[1:]
	if err := s.store.Add(vectors.Document{ID: string(key[:]), Tokens: tokens}); err != nil {
		return err
	}
	delete(s.encodingRows, key)
	if s.store.Len()%spoolFlush == 0 {
		return s.store.Flush()
	}
	return nil
}

// Tokens returns the number of token vectors of all documents.
func (s *Spooled) Tokens() int64 { return s.tokens }

// Unused returns the number of texts that the file had before and that the stream did not have.
func (s *Spooled) Unused() int { return s.unused }

// HasPayload reports whether any document has a payload.
func (s *Spooled) HasPayload() bool { return s.payloads.size() > 0 }

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
	return s.documents(ctx, from, to, func(i int) (vectors.Document, error) {
		return s.store.Doc(int(s.rows[i]))
	})
}

// Heads yields all documents without their vectors.
func (s *Spooled) Heads(ctx context.Context) iter.Seq2[vectors.Document, error] {
	return s.documents(ctx, 0, s.Len(), func(int) (d vectors.Document, err error) { return d, nil })
}

// documents yields documents with the vectors that get returns, and their ids and payloads.
func (s *Spooled) documents(
	ctx context.Context, from, to int, get func(i int) (vectors.Document, error),
) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		if n := s.Len(); from < 0 || to > n || from > to {
			yield(vectors.Document{}, rangeError(from, to, n))
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

// InOrder reports whether the vectors in the file are exactly those of the documents, in the same
// order.
func (s *Spooled) InOrder() bool {
	for i, row := range s.rows {
		if int(row) != i {
			return false
		}
	}
	return len(s.rows) == s.store.Len()
}

// Matrix calls [vectors.Spool.CompleteMatrix]. The documents have to be in order.
func (s *Spooled) Matrix(path string) error {
	if !s.InOrder() {
		return fmt.Errorf("%w: the vectors are not in the order of the documents", vectors.ErrShape)
	}
	return s.store.CompleteMatrix(path)
}

// Close implements [vectors.Source]. A file that is not temporary stays, with all vectors.
func (s *Spooled) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.store.Close(), s.payloads.close())
}
