package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// spend counts bytes of the answer before they are held. All of them are given back when
// the request has ended.
func (q *request) spend(bytes int) error {
	n, most := int64(bytes), q.s.o.Limits.Answer
	if n > most-q.answered {
		return problem(CodeTooLarge, "the answer has more than %d bytes (max-memory): ask for less at a time", most)
	}
	q.answered += n
	return q.memory.take(q.ctx, asTextToo*n)
}

// asTextToo: while an answer is written as text, what it is made of is there too.
const asTextToo = 2

// answer sends a value as JSON.
func (q *request) answer(status int, v any) error {
	made := q.route.group == writing || q.route.group == transferring // the change: a refusal would have it made again
	text, err := toJSON(v)
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	// Counted for what it is from here on, and no more for what was expected.
	needs := int64(len(text))
	if q.call != nil {
		needs *= agentCopies
	}
	switch rest := needs - q.taken(); {
	case rest <= 0:
		q.memory.give(-rest)
	case made:
		q.memory.owe(rest)
	default:
		if err := q.memory.take(q.ctx, rest); err != nil {
			return err
		}
	}
	return q.send(status, mediaJSON, text)
}

// toJSON is json.Marshal, unless an answer has a faster way.
func toJSON(v any) ([]byte, error) {
	if a, ok := v.(interface{ toJSON() ([]byte, error) }); ok {
		return a.toJSON()
	}
	return json.Marshal(v)
}

// toJSON returns what json.Marshal does, with the metadata last and as it was stored: encoding/json reads
// all of it again, and copies it, which takes longer than the rest of an answer.
func (out searchOut) toJSON() ([]byte, error) {
	size := 256 // bytes
	for i := range out.Results {
		size += 256 + 64*len(out.Results[i].IDs)
		for _, m := range out.Results[i].Metadata {
			size += len(m) + 1
		}
	}
	text := append(make([]byte, 0, size), `{"results":[`...)
	for i, r := range out.Results {
		stored := r.Metadata
		r.Metadata = nil
		object, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, object...)
		if stored == nil {
			continue
		}
		text = append(text[:len(text)-1], `,"metadata":[`...)
		for j, m := range stored {
			if j > 0 {
				text = append(text, ',')
			}
			text = append(text, m...)
		}
		text = append(text, "]}"...)
	}
	text = append(text, ']')
	out.Results = nil
	rest, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return append(text, bytes.TrimPrefix(rest, []byte(`{"results":null`))...), nil
}

// send sends a body. The turn is given back first: how slowly a client takes its answer
// is no matter of others.
func (q *request) send(status int, media string, text []byte) error {
	q.leaveTurn()
	h := q.w.Header()
	if media != "" {
		h.Set("Content-Type", media)
	}
	h.Set("Content-Length", fmt.Sprint(len(text)))
	h.Set("Server-Timing", q.timing())
	q.w.WriteHeader(status)
	_, _ = q.w.Write(text) // who is gone needs no answer
	return nil
}

// stream is an answer that is sent while it is made. One that is short is sent as a whole,
// so that an error is still answered as one; of a long one a broken connection says that
// it is no whole answer.
type stream struct {
	q     *request
	text  []byte // that is to be sent
	room  int    // for it, that is counted
	began bool
}

// streamBytes is how much of a streamed answer is held.
const streamBytes = 1 << 20

func (q *request) stream() (*stream, error) {
	return &stream{q: q, room: streamBytes}, q.memory.take(q.ctx, asTextToo*streamBytes)
}

// vectors appends those of a text, which can be longer than what is held as a rule.
func (s *stream) vectors(m Matrix, write func(to []byte, m Matrix) []byte) error {
	const each = 16 // bytes of a number as text, at most
	if more := len(s.text) + each*len(m.Data) - s.room; more > 0 {
		if err := s.q.memory.take(s.q.ctx, asTextToo*int64(more)); err != nil {
			return err
		}
		s.room += more
	}
	s.text = write(s.text, m)
	return nil
}

// pass sends what there is, if it is enough. The request has no turn meanwhile, and waits
// for another one then.
func (s *stream) pass() error {
	if len(s.text) < streamBytes {
		return nil
	}
	gate := s.q.gate()
	s.q.leaveTurn()
	if err := s.write(); err != nil {
		return err
	}
	return s.q.enterAgain(gate)
}

func (s *stream) write() error {
	if !s.began {
		s.began = true
		s.q.w.Header().Set("Content-Type", mediaJSON)
		s.q.w.WriteHeader(http.StatusOK)
	}
	_, err := s.q.w.Write(s.text)
	s.text = s.text[:0]
	if err != nil {
		return fmt.Errorf("%w: the client takes no more: %w", context.Canceled, err)
	}
	return nil
}

// end sends the rest.
func (s *stream) end() error {
	if !s.began {
		return s.q.send(http.StatusOK, mediaJSON, s.text)
	}
	s.q.leaveTurn()
	return s.write()
}

// recorder remembers what was answered, and cuts clients that do not take it.
type recorder struct {
	http.ResponseWriter
	code   int
	bytes  int64
	failed Code
	cut    bool // the connection is to be broken
	left   bool // the client has, before its change was decided

	control  *http.ResponseController
	pace     pace
	extended time.Time // when the client was given time
}

// extend gives the client time to take what comes next, unless it was given just now: a new deadline
// may wake a thread. Not every server has deadlines.
func (r *recorder) extend() {
	if now := r.pace.now(); now.Sub(r.extended) > r.pace.left/16 {
		r.extended = now
		_ = r.control.SetWriteDeadline(now.Add(r.pace.left))
	}
}

func (r *recorder) status() int { return cmp.Or(r.code, http.StatusOK) }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	r.code = cmp.Or(r.code, code)
	r.extend()
	r.ResponseWriter.WriteHeader(code)
}

var errSlow = errors.New("the client takes its answer too slowly")

// pieceBytes is how much of an answer a client has to take within the time for stalls.
const pieceBytes = 64 << 10

// Write implements http.ResponseWriter. A client that takes its answer steadily is never
// cut, however long that lasts: each piece has a deadline of its own.
func (r *recorder) Write(p []byte) (n int, err error) {
	r.code = r.status()
	for {
		r.extend()
		began := r.pace.now()
		piece := p[n:min(n+pieceBytes, len(p))]
		m, err := r.ResponseWriter.Write(piece)
		n += m
		r.bytes += int64(m)
		if !r.pace.passed(m, began) && err == nil {
			r.cut, err = true, errSlow
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
