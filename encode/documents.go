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

// queued is how many chunks there are for each worker: one that it works on, and
// enough that it never waits for the tokenizer.
const queued = 4

// chunk is texts of one call that a worker computes together, with chunks of other calls
// or alone.
type chunk struct {
	texts   []entry
	batch   engine.Batch // of ids, where they are known
	memory  []float32    // of vectors
	pooler  pool.Pooler
	pooled  []float32
	halves  []byte
	rounded bool // vectors are those of halves
	of      *call
	first   int   // of its vectors among those that the call keeps
	err     error // of the computation
	last    error // of the stream, after these texts
	panic   *parallel.Panic
	done    chan struct{}
}

// entry is a text of a chunk.
type entry struct {
	text    Text
	seq     sequence // empty where ids are not known
	empty   bool
	row     int
	vectors []float32 // that are kept
}

// Report counts what went through an encoder.
type Report struct {
	Texts     int   // encoded
	Empty     int   // of these: without vectors, since they have no text or no token of it is kept
	Truncated int   // of these: cut at the longest length; servers do not tell
	Dropped   int64 // tokens that were cut off
	Unknown   int   // texts of which more than half the tokens are unknown; servers do not tell
	Tokens    int64 // ids computed; of Remote: vectors that came
	Vectors   int64 // kept
	Equal     int   // texts that are equal to one before them, and share its vectors
	Resumed   int   // documents that were there before
}

// String reads like: 46 texts, 1 of them empty, 2 cut, 10255 tokens, 7010 vectors.
func (r *Report) String() string {
	s := fmt.Sprintf("%d texts", r.Texts)
	for _, part := range []struct {
		n    int64
		what string
	}{{int64(r.Resumed), "encoded before"}, {int64(r.Equal), "of them equal to others"}, {int64(r.Empty), "of them empty"},
		{int64(r.Truncated), "cut"}, {r.Dropped, "tokens dropped"}, {int64(r.Unknown), "of unknown tokens"},
		{r.Tokens, "tokens"}, {r.Vectors, "vectors"}} {
		if part.n != 0 {
			s += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return s
}

// Documents encodes a stream of texts, in its order. Texts are tokenized ahead
// and computed by all threads, while the documents before are used. Tokens of a
// document are valid until the next one is asked for.
//
// Memory is bounded: for each thread four chunks of about 500 ids or one text
// (of onnxruntime: 8,192 ids; of a server: one request), with Dim float32 values
// an id, which calls at the same time share, as they share the threads. A stream
// that blocks holds back what is computed.
//
// The first error ends the sequence, after the documents before it. A text that
// is not valid UTF-8 is a [*TextError] around [tokenizer.ErrText].
func (e *Encoder) Documents(ctx context.Context, texts iter.Seq2[Text, error]) iter.Seq2[vectors.Document, error] {
	return e.DocumentsReport(ctx, texts, new(Report))
}

// DocumentsReport is Documents, and counts into r. Only the loop over the sequence may read r: a
// document is counted before it is yielded.
func (e *Encoder) DocumentsReport(ctx context.Context, texts iter.Seq2[Text, error], r *Report) iter.Seq2[vectors.Document, error] {
	return e.documents(ctx, &call{role: Document}, texts, r)
}

func (e *Encoder) documents(ctx context.Context, of *call, texts iter.Seq2[Text, error], r *Report) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		e.run(ctx, of, texts, func(t *entry) bool {
			r.count(t, e.Dim())
			return yield(vectors.Document{ID: t.text.ID, Tokens: t.vectors, Payload: t.text.Payload}, nil)
		}, func(err error) { yield(vectors.Document{}, err) })
	}
}

func (r *Report) count(t *entry, dim int) {
	n := len(t.vectors) / dim
	ids := len(t.seq.ids)
	if t.seq.ids == nil {
		ids = n
	}
	r.add(n, ids, t.empty, &t.seq)
}

func (r *Report) add(vectors, ids int, empty bool, s *sequence) {
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

// Queries encodes queries, as many at once as there are threads.
func (e *Encoder) Queries(ctx context.Context, texts []string) ([]Embedding, error) {
	out := make([]Embedding, 0, len(texts))
	var failed error
	stream := make([]Text, len(texts))
	for i, t := range texts {
		stream[i].Text = t
	}
	e.run(ctx, &call{role: Query}, Texts(stream...), func(t *entry) bool {
		var em Embedding
		if !t.empty {
			_, lead := e.trim(Query, t.text.Text)
			em.Tokens = within(e.backend.added(t.seq), t.text.Text, lead)
		}
		em.Vectors = append(em.Vectors, t.vectors...)
		em.Dropped = t.seq.dropped
		out = append(out, em)
		return true
	}, func(err error) { failed = err })
	if failed != nil {
		return nil, failed
	}
	return out, nil
}

// run takes texts through the encoder and gives them to use, in their order,
// until that says false. Tokenizing happens on the goroutine of the caller, where
// a panic of the stream belongs; chunks are computed by the workers. It returns at once
// when the context ends.
func (e *Encoder) run(ctx context.Context, of *call, texts iter.Seq2[Text, error], use func(*entry) bool, fail func(error)) {
	if err := e.begin(); err != nil {
		fail(err)
		return
	}
	defer e.done()
	next, stop := iter.Pull2(texts)
	defer stop()
	var cancel context.CancelFunc
	of.ctx, cancel = context.WithCancel(ctx)
	defer e.workers.leave(of)
	defer cancel()
	var waiting, free []*chunk
	row, ended := 0, false
	for {
		for !ended && (len(waiting) == 0 || len(waiting) < e.ahead()) {
			c := new(chunk)
			if n := len(free); n > 0 {
				c, free = free[n-1], free[:n-1]
			}
			ended = e.fill(ctx, c, of.role, next, &row)
			if len(c.texts) == 0 {
				close(c.done) // of the end, or of an error alone
			} else {
				e.workers.submit(of, c)
			}
			waiting = append(waiting, c)
		}
		if len(waiting) == 0 {
			return
		}
		c := waiting[0]
		waiting = waiting[1:]
		select {
		case <-c.done:
		case <-ctx.Done(): // what is under way is nobody's any more
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
		for i := range c.texts {
			if err := ctx.Err(); err != nil {
				fail(err)
				return
			}
			if !use(&c.texts[i]) {
				return
			}
		}
		if c.last != nil {
			fail(c.last)
			return
		}
		free = append(free, c)
	}
}

// fill takes texts for one chunk from the stream, and says whether they ended.
func (e *Encoder) fill(ctx context.Context, c *chunk, role Role, next func() (Text, error, bool), row *int) (ended bool) {
	clear(c.texts)
	c.texts, c.err, c.last, c.done = c.texts[:0], nil, nil, make(chan struct{})
	c.batch.IDs = c.batch.IDs[:0]
	for !ended && !e.backend.full(c) {
		first := len(c.texts)
		bytes, goroutines := e.backend.ahead(c)
		for more := true; more && !ended; more = bytes > 0 && !e.backend.full(c) {
			if c.last = ctx.Err(); c.last != nil {
				ended = true
				break
			}
			text, err, ok := next()
			if c.last = err; !ok || err != nil {
				ended = true
				break
			}
			t := entry{text: text, row: *row}
			*row++
			t.text.Title, t.text.Text = "", text.Full()
			bytes -= len(t.text.Text)
			c.texts = append(c.texts, t)
		}
		if !e.ready(c, role, first, goroutines) {
			return true
		}
	}
	return ended
}

// ready makes sequences of the texts of a chunk from the first on. Where that fails, the
// chunk ends before the text, with the error.
func (e *Encoder) ready(c *chunk, role Role, first, goroutines int) bool {
	fresh := c.texts[first:]
	prepare := func(i int) (err error) {
		t := &fresh[i]
		trimmed, _ := e.trim(role, t.text.Text)
		if t.empty = trimmed == ""; !t.empty {
			t.seq, err = e.backend.ready(role, trimmed)
		}
		return err
	}
	err := parallel.Do(context.Background(), len(fresh), goroutines, prepare)
	failed := len(fresh)
	if err != nil {
		for failed = 0; prepare(failed) == nil; failed++ { // the lowest, whose error it is
		}
		c.last = fresh[failed].text.Fault(fresh[failed].row, err)
		clear(fresh[failed:])
	}
	c.texts = c.texts[:first+failed]
	for i := range fresh[:failed] {
		c.batch.IDs = append(c.batch.IDs, fresh[i].seq.ids...)
	}
	return err == nil
}
