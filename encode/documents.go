package encode

import (
	"context"
	"fmt"
	"iter"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// chunksPerWorker is how many chunks each worker has: one that it computes, and enough others that it
// never waits for the tokenizer.
const chunksPerWorker = 4

// chunk holds texts of one call. A worker computes it alone or with chunks of other calls.
type chunk struct {
	texts     []chunkText
	batch     engine.Batch // the ids of the texts; empty for a server
	memory    []float32    // holds the vectors of the texts
	pooler    pool.Pooler
	pooled    []float32 // memory of pooling
	halves    []byte    // memory of rounding
	rounded   bool      // the vectors are rounded to float16
	call      *encodeCall
	firstRow  int   // row of its first vector among the resident vectors of the call
	err       error // of the computation
	streamErr error // of the stream of texts, after the texts of this chunk
	panic     *parallel.Panic
	done      chan struct{} // closed when the chunk is computed or has failed
}

// chunkText is a text of a chunk.
type chunkText struct {
	text    Text
	seq     sequence  // empty for a server
	empty   bool      // the text is white space
	row     int       // of the text in the stream, from 0
	vectors []float32 // those that are kept
}

// Report counts the texts and vectors of an encoding.
type Report struct {
	Texts     int   // texts that were encoded
	Empty     int   // of Texts, those without vectors: no text, or no token of it is kept
	Truncated int   // of Texts, those cut at the model's length (unknown for servers)
	Dropped   int64 // tokens that were cut off
	Unknown   int   // texts with more than half of their tokens unknown (not counted for servers)
	Tokens    int64 // ids computed; for Remote, vectors received
	Vectors   int64 // vectors kept
	Equal     int   // texts that are equal to an earlier one and share its vectors
	Resumed   int   // documents whose vectors the file had before
}

// String reads like: 46 texts, 1 of them empty, 2 cut, 10255 tokens, 7010 vectors.
func (r *Report) String() string {
	s := fmt.Sprintf("%d texts", r.Texts)
	for _, count := range []struct {
		n     int64
		label string
	}{
		{int64(r.Resumed), "encoded before"},
		{int64(r.Equal), "of them equal to others"},
		{int64(r.Empty), "of them empty"},
		{int64(r.Truncated), "cut"},
		{r.Dropped, "tokens dropped"},
		{int64(r.Unknown), "of unknown tokens"},
		{r.Tokens, "tokens"},
		{r.Vectors, "vectors"},
	} {
		if count.n != 0 {
			s += fmt.Sprintf(", %d %s", count.n, count.label)
		}
	}
	return s
}

// Documents encodes a stream of texts, in its order. While the caller uses a document, the
// following texts are tokenized and computed by all threads. The tokens of a
// document are valid until the next iteration.
//
// Memory is bounded: four chunks per thread, each of about 500 ids or one text
// (8,192 ids for onnxruntime, one request for a server), with Dim float32 values
// per id. Concurrent calls share this memory, as they share the threads. A stream
// that blocks delays the documents before it.
//
// The first error ends the sequence, after the documents before it. A text that
// is not valid UTF-8 is a [*TextError] that wraps [tokenizer.ErrText].
func (e *Encoder) Documents(ctx context.Context, texts iter.Seq2[Text, error]) iter.Seq2[vectors.Document, error] {
	return e.DocumentsReport(ctx, texts, new(Report))
}

// DocumentsReport is [Encoder.Documents], and counts into r. Only the loop over the sequence may
// read r: a document is counted before it is yielded.
func (e *Encoder) DocumentsReport(
	ctx context.Context, texts iter.Seq2[Text, error], r *Report,
) iter.Seq2[vectors.Document, error] {
	return e.documents(ctx, &encodeCall{role: Document}, texts, r)
}

// documents is DocumentsReport with the settings of a call.
func (e *Encoder) documents(
	ctx context.Context, call *encodeCall, texts iter.Seq2[Text, error], r *Report,
) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		e.encodeStream(ctx, call, texts, func(t *chunkText) bool {
			r.countText(t, e.Dim())
			return yield(vectors.Document{ID: t.text.ID, Tokens: t.vectors, Payload: t.text.Payload}, nil)
		}, func(err error) { yield(vectors.Document{}, err) })
	}
}

// countText counts an encoded text. Without ids, those of a server, each vector is a token.
func (r *Report) countText(t *chunkText, dim int) {
	n := len(t.vectors) / dim
	ids := len(t.seq.ids)
	if t.seq.ids == nil {
		ids = n
	}
	r.addCounts(n, ids, t.empty, &t.seq)
}

// addCounts counts a text with its numbers of kept vectors and ids.
func (r *Report) addCounts(vectors, ids int, empty bool, s *sequence) {
	r.Texts++
	r.Vectors += int64(vectors)
	r.Tokens += int64(ids)
	if empty || vectors == 0 {
		r.Empty++
	}
	if s.dropped > 0 {
		r.Truncated++
		r.Dropped += int64(s.dropped)
	}
	if 2*s.unknown > s.pieces {
		r.Unknown++
	}
}

// Queries encodes queries, as many at a time as there are threads.
func (e *Encoder) Queries(ctx context.Context, texts []string) ([]Embedding, error) {
	out := make([]Embedding, 0, len(texts))
	var streamErr error
	stream := make([]Text, len(texts))
	for i, t := range texts {
		stream[i].Text = t
	}
	e.encodeStream(ctx, &encodeCall{role: Query}, Texts(stream...), func(t *chunkText) bool {
		var em Embedding
		if !t.empty {
			_, lead := e.trimText(Query, t.text.Text)
			em.Tokens = shiftTokens(e.backend.queryTokens(t.seq), t.text.Text, lead)
		}
		em.Vectors = append(em.Vectors, t.vectors...)
		em.Dropped = t.seq.dropped
		out = append(out, em)
		return true
	}, func(err error) { streamErr = err })
	if streamErr != nil {
		return nil, streamErr
	}
	return out, nil
}

// encodeStream encodes texts and passes them to visit, in their order, until it returns false. An
// error is passed to fail, and ends the stream. The texts are read and tokenized on the
// caller's goroutine, so that a panic of the stream reaches the caller; workers compute the
// chunks. It returns at once when the context ends.
func (e *Encoder) encodeStream(
	ctx context.Context, call *encodeCall, texts iter.Seq2[Text, error], visit func(*chunkText) bool, fail func(error),
) {
	if err := e.beginCall(); err != nil {
		fail(err)
		return
	}
	defer e.endCall()
	next, stop := iter.Pull2(texts)
	defer stop()
	var cancel context.CancelFunc
	call.ctx, cancel = context.WithCancel(ctx)
	defer e.workers.cancelWaiting(call)
	defer cancel()
	var waiting, free []*chunk
	row, ended := 0, false
	for {
		// Fill and submit chunks, as many as may be in memory.
		for !ended && (len(waiting) == 0 || len(waiting) < e.maxChunks()) {
			c := new(chunk)
			if n := len(free); n > 0 {
				c, free = free[n-1], free[:n-1]
			}
			ended = e.fillChunk(ctx, c, call.role, next, &row)
			if len(c.texts) == 0 {
				close(c.done) // the end of the stream, or its error
			} else {
				e.workers.submit(call, c)
			}
			waiting = append(waiting, c)
		}
		if len(waiting) == 0 {
			return
		}
		// Wait for the oldest chunk.
		c := waiting[0]
		waiting = waiting[1:]
		select {
		case <-c.done:
		case <-ctx.Done(): // the workers finish or drop the chunks without this call
			fail(ctx.Err())
			return
		}
		if c.panic != nil {
			panic(c.panic)
		}
		if err := ctx.Err(); err != nil {
			fail(err)
			return
		}
		if c.err != nil {
			fail(c.err)
			return
		}
		// Pass on its texts, then the error of the stream behind them.
		for i := range c.texts {
			if err := ctx.Err(); err != nil {
				fail(err)
				return
			}
			if !visit(&c.texts[i]) {
				return
			}
		}
		if c.streamErr != nil {
			fail(c.streamErr)
			return
		}
		free = append(free, c)
	}
}

// fillChunk reads texts from the stream until a chunk is full, prepares them, and reports whether
// the stream ended. row counts the texts of the stream.
func (e *Encoder) fillChunk(
	ctx context.Context, c *chunk, role Role, next func() (Text, error, bool), row *int,
) (ended bool) {
	clear(c.texts)
	c.texts, c.err, c.streamErr, c.done = c.texts[:0], nil, nil, make(chan struct{})
	c.batch.IDs = c.batch.IDs[:0]
	for !ended && !e.backend.isFull(c) {
		first := len(c.texts)
		bytes, goroutines := e.backend.readAhead(c)
		for more := true; more && !ended; more = bytes > 0 && !e.backend.isFull(c) {
			if c.streamErr = ctx.Err(); c.streamErr != nil {
				ended = true
				break
			}
			text, err, ok := next()
			if c.streamErr = err; !ok || err != nil {
				ended = true
				break
			}
			t := chunkText{text: text, row: *row}
			*row++
			t.text.Title, t.text.Text = "", text.Full()
			bytes -= len(t.text.Text)
			c.texts = append(c.texts, t)
		}
		if !e.prepareTexts(c, role, first, goroutines) {
			return true
		}
	}
	return ended
}

// prepareTexts tokenizes the texts of a chunk from the first one on, and reports whether all
// succeeded. If one fails, the chunk ends before it, and its error is that of the stream.
func (e *Encoder) prepareTexts(c *chunk, role Role, first, goroutines int) bool {
	added := c.texts[first:]
	prepare := func(i int) (err error) {
		t := &added[i]
		trimmed, _ := e.trimText(role, t.text.Text)
		if t.empty = trimmed == ""; !t.empty {
			t.seq, err = e.backend.prepare(role, trimmed)
		}
		return err
	}
	err := parallel.Do(context.Background(), len(added), goroutines, prepare)
	prepared := len(added)
	if err != nil {
		// parallel.Do returns the error of the lowest text that failed: find it.
		for prepared = 0; prepare(prepared) == nil; prepared++ {
		}
		c.streamErr = added[prepared].text.ErrorAt(added[prepared].row, err)
		clear(added[prepared:])
	}
	c.texts = c.texts[:first+prepared]
	for i := range added[:prepared] {
		c.batch.IDs = append(c.batch.IDs, added[i].seq.ids...)
	}
	return err == nil
}
