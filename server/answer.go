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

// reserveAnswer counts bytes of the answer before they are held. All of them are given back when
// the request has ended.
func (q *request) reserveAnswer(bytes int) error {
	n, most := int64(bytes), q.server.options.Limits.Answer
	if n > most-q.answerBytes {
		return problem(CodeTooLarge, "the answer has more than %d bytes (max-memory): ask for less at a time", most)
	}
	q.answerBytes += n
	return q.memory.reserve(q.ctx, answerCopies*n)
}

// answerCopies: while an answer is written as text, what it is made of is there too.
const answerCopies = 2

// answerJSON sends a value as JSON.
func (q *request) answerJSON(status int, v any) error {
	made := q.route.group == groupWrite || q.route.group == groupTransfer // the change: a refusal would have it made again
	text, err := toJSON(v)
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	// Counted for what it is from here on, and no more for what was expected.
	needs := int64(len(text))
	if q.agentCall != nil {
		needs *= agentCopies
	}
	switch missing := needs - q.reservedAnswer(); {
	case missing <= 0:
		q.memory.release(-missing)
	case made:
		q.memory.reserveAtOnce(missing)
	default:
		if err := q.memory.reserve(q.ctx, missing); err != nil {
			return err
		}
	}
	return q.sendBody(status, mediaJSON, text)
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

// sendBody sends a body. The turn is given back first: how slowly a client takes its answer
// is no matter of others.
func (q *request) sendBody(status int, media string, text []byte) error {
	q.releaseSlot()
	h := q.w.Header()
	if media != "" {
		h.Set("Content-Type", media)
	}
	h.Set("Content-Length", fmt.Sprint(len(text)))
	h.Set("Server-Timing", q.serverTiming())
	q.w.WriteHeader(status)
	_, _ = q.w.Write(text) // who is gone needs no answer
	return nil
}

// answerStream is an answer that is sent while it is made. One that is short is sent as a whole,
// so that an error is still answered as one; of a long one a broken connection says that
// it is no whole answer.
type answerStream struct {
	request  *request
	pending  []byte // that is to be sent
	reserved int    // for it, that is counted
	began    bool
}

// maxPending is how much of a streamed answer is held.
const maxPending = 1 << 20

func (q *request) newStream() (*answerStream, error) {
	return &answerStream{request: q, reserved: maxPending}, q.memory.reserve(q.ctx, answerCopies*maxPending)
}

// appendVectors appends those of a text, which can be longer than what is held as a rule.
func (s *answerStream) appendVectors(m Matrix, write func(to []byte, m Matrix) []byte) error {
	const each = 16 // bytes of a number as text, at most
	if more := len(s.pending) + each*len(m.Data) - s.reserved; more > 0 {
		if err := s.request.memory.reserve(s.request.ctx, answerCopies*int64(more)); err != nil {
			return err
		}
		s.reserved += more
	}
	s.pending = write(s.pending, m)
	return nil
}

// flushIfFull sends what there is, if it is enough. The request has no turn meanwhile, and waits
// for another one then.
func (s *answerStream) flushIfFull() error {
	if len(s.pending) < maxPending {
		return nil
	}
	gate := s.request.groupGate()
	s.request.releaseSlot()
	if err := s.write(); err != nil {
		return err
	}
	return s.request.reacquireSlot(gate)
}

func (s *answerStream) write() error {
	if !s.began {
		s.began = true
		s.request.w.Header().Set("Content-Type", mediaJSON)
		s.request.w.WriteHeader(http.StatusOK)
	}
	_, err := s.request.w.Write(s.pending)
	s.pending = s.pending[:0]
	if err != nil {
		return fmt.Errorf("%w: the client takes no more: %w", context.Canceled, err)
	}
	return nil
}

// finish sends the rest.
func (s *answerStream) finish() error {
	if !s.began {
		return s.request.sendBody(http.StatusOK, mediaJSON, s.pending)
	}
	s.request.releaseSlot()
	return s.write()
}

// responseRecorder remembers what was answered, and cuts clients that do not take it.
type responseRecorder struct {
	http.ResponseWriter
	statusCode  int
	bytes       int64
	problemCode Code
	aborted     bool // the connection is to be broken
	clientLeft  bool // the client has, before its change was decided

	control    *http.ResponseController
	pace       transferPace
	extendedAt time.Time // when the client was given time
}

// extendDeadline gives the client time to take what comes next, unless it was given just now: a new deadline
// may wake a thread. Not every server has deadlines.
func (r *responseRecorder) extendDeadline() {
	if now := r.pace.now(); now.Sub(r.extendedAt) > r.pace.remainingIdle/16 {
		r.extendedAt = now
		_ = r.control.SetWriteDeadline(now.Add(r.pace.remainingIdle))
	}
}

func (r *responseRecorder) status() int { return cmp.Or(r.statusCode, http.StatusOK) }

// WriteHeader implements http.ResponseWriter.
func (r *responseRecorder) WriteHeader(code int) {
	r.statusCode = cmp.Or(r.statusCode, code)
	r.extendDeadline()
	r.ResponseWriter.WriteHeader(code)
}

var errSlowClient = errors.New("the client takes its answer too slowly")

// maxWrite is how much of an answer a client has to take within the time for stalls.
const maxWrite = 64 << 10

// Write implements http.ResponseWriter. A client that takes its answer steadily is never
// cut, however long that lasts: each piece has a deadline of its own.
func (r *responseRecorder) Write(p []byte) (n int, err error) {
	r.statusCode = r.status()
	for {
		r.extendDeadline()
		began := r.pace.now()
		piece := p[n:min(n+maxWrite, len(p))]
		m, err := r.ResponseWriter.Write(piece)
		n += m
		r.bytes += int64(m)
		if !r.pace.keepsUp(m, began) && err == nil {
			r.aborted, err = true, errSlowClient
		}
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
